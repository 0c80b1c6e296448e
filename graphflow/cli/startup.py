"""The application for one command: settings with the command's flags, quiet logs, and names made full."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.cli.command import Verbosity, stop
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note
from graphflow.settings import Settings, load_settings

if TYPE_CHECKING:
    from graphflow.agents.loader import LoadedAgent
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.thread import CheckpointInfo, Thread
    from graphflow.service.application import Application

SEARCHED = 2_000
"""Threads that are looked through for one whose id is given in part."""


def settings_of(folder: str | None = None, **flags: Any) -> Settings:
    """The settings of the folder, with `section__name=value` flags over them."""
    settings = load_settings(folder, flags={name.replace("__", "."): value for name, value in flags.items()})
    for warning in settings.warnings:
        note(f"warning: {warning}")
    return settings


def quiet_logs(settings: Settings) -> None:
    """Logs on stderr only when asked for: a command's own lines say what it does.

    `--verbose` and an explicit log level turn them on; `serve` sets up its own.
    """
    asked = any(os.environ.get(name) for name in ("GRAPHFLOW_LOG_LEVEL", "GRAPHFLOW_LOG_FORMAT"))
    if Verbosity.verbose or asked:
        from graphflow.telemetry.logs import set_up_logs

        set_up_logs("debug" if Verbosity.verbose else settings.log.level, form=settings.log.format)
        return
    logging.getLogger().addHandler(logging.NullHandler())  # else warnings go to stderr as the last resort


@asynccontextmanager
async def opened(**flags: Any) -> AsyncIterator[Application]:
    """The application with its agents loaded; closed, with everything durable, at the end."""
    settings = settings_of(**flags)
    quiet_logs(settings)
    from graphflow.service.application import Application

    if not (Verbosity.verbose or os.environ.get("GRAPHFLOW_LOG_LEVEL")):
        settings = _without_interaction_log(settings)
    async with Application(settings) as app:
        yield app


def _without_interaction_log(settings: Settings) -> Settings:
    import dataclasses

    return dataclasses.replace(settings, llm=dataclasses.replace(settings.llm, interaction_log_enabled=False))


def agent_named(app: Application, given: str) -> LoadedAgent:
    """The agent of a key, or of a file.

    Raises:
        DefinitionError: the file has faults.
        AgentNotFound: no agent has this key, or its file was refused.
    """
    from graphflow.errors import DefinitionError

    if given.endswith(".json") or "/" in given:
        path = Path(given)
        if not path.is_file():
            stop(exits.USAGE, f"there is no file {given!r}", hint="name an agent by its key or its .json file")
        if path.resolve().parent != Path(app.settings.agents.dir).resolve():
            return app.load(path)
        given = path.name.removesuffix(".json")
    refused = next((agent for agent in app.agents.invalid() if agent.key == given), None)
    if refused is not None:
        raise DefinitionError(refused.faults)
    return app.agents.get(given)


def graph_named(app: Application, given: str) -> CompiledGraph:
    """The graph of an agent's key, or of a file, ready to run on the store."""
    return app.compiled(agent_named(app, given))


async def thread_named(app: Application, given: str) -> Thread:
    """The thread of an id, of which a beginning or an end that fits only one is enough."""
    thread_id = await _full_thread_id(app, given)
    graph = await app.graph_of_thread(thread_id)
    return graph.thread(thread_id)


async def _full_thread_id(app: Application, given: str) -> str:
    await app.runs.ready()
    if await app.store.thread(given) is not None or len(given) < 4:
        return given
    cursor, found, seen = None, [], 0
    while seen < SEARCHED:
        page = await app.store.threads(cursor=cursor, limit=200)
        found += [row.thread_id for row in page if row.thread_id.startswith(given) or row.thread_id.endswith(given)]
        seen += len(page)
        if len(page) < 200:
            break
        cursor = page[-1].thread_id
    return _only(found, given, "threads")


async def checkpoint_named(thread: Thread, given: str) -> CheckpointInfo:
    """The checkpoint of an id, of a beginning or an end that fits only one, or `head`.

    Raises:
        CheckpointNotFound: none fits.
    """
    from graphflow.errors import CheckpointNotFound

    tree = await thread.tree()
    if given == "head" and tree:
        return (await thread.history(limit=1))[0]
    found = [row.id for row in tree if row.id.startswith(given) or row.id.endswith(given)]
    wanted = given if given in found else _only(found, given, f"checkpoints of thread {thread.id}")
    for row in tree:
        if row.id == wanted:
            return row
    raise CheckpointNotFound(f"thread {thread.id!r} has no checkpoint {given!r}", threadId=thread.id)


async def forked(thread: Thread, checkpoint_id: str, new_id: str | None, effects: Any) -> Thread:
    """A new thread from the checkpoint on, under `new_id` if it is given."""
    from graphflow.errors import ThreadBusy

    try:
        return await thread.fork(checkpoint_id, thread_id=new_id, effects=effects)
    except ThreadBusy as error:  # the store's word for an id that is taken
        stop(exits.USAGE, error.message, hint="--id NEW stores it under another id")


def _only(found: list[str], given: str, what: str) -> str:
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        stop(exits.USAGE, f"{given!r} fits {len(found)} {what}: {shown}", hint="give more of the id")
    return found[0] if found else given


async def target_named(app: Application, given: str) -> tuple[Thread, CheckpointInfo]:
    """`THREAD@CHECKPOINT`."""
    thread_id, at, checkpoint = given.partition("@")
    if not at or not checkpoint:
        stop(
            exits.USAGE,
            f"{given!r} names no checkpoint; write THREAD@CHECKPOINT",
            hint=f"`graphflow threads show {thread_id}`",
        )
    thread = await thread_named(app, thread_id)
    return thread, await checkpoint_named(thread, checkpoint)
