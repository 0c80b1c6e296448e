"""The application for one command: settings with the command's flags, quiet logs, and ids completed."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.cli.command import Verbosity
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, stop
from graphflow.faces import spoken
from graphflow.id_rule import is_id, not_an_id

if TYPE_CHECKING:
    from graphflow.agents.loader import LoadedAgent
    from graphflow.checkpoints.rows import ThreadRow
    from graphflow.runtime.thread import CheckpointInfo, Thread
    from graphflow.service.application import Application
    from graphflow.settings import Settings

SEARCHED = 2_000
"""Threads searched for one whose id is given in part."""
SHORTEST = 4
"""Characters of a prefix or suffix that stands for an id."""
PAGE = 200
"""Rows of one page of the store."""
ANOTHER_ID = "--id NEW stores it under another id"


def settings_of(folder: str | None = None, **flags: Any) -> Settings:
    """The settings of the folder, with `section__name=value` flags over them."""
    from graphflow.settings import load_settings

    settings = load_settings(folder, flags={name.replace("__", "."): value for name, value in flags.items()})
    for warning in settings.warnings:
        note(f"warning: {warning}")
    return settings


def quiet_logs(settings: Settings) -> None:
    """Logs on stderr only on request: a command's own lines say what it does.

    `--verbose` and an explicit log level turn them on; `serve` sets up its own.
    """
    asked = any(os.environ.get(name) for name in ("GRAPHFLOW_LOG_LEVEL", "GRAPHFLOW_LOG_FORMAT"))
    if Verbosity.verbose or asked:
        from graphflow.telemetry.logs import set_up_logs

        set_up_logs("debug" if Verbosity.verbose else settings.log.level, form=settings.log.format)
        return
    logging.getLogger().addHandler(logging.NullHandler())  # else logging prints warnings to stderr as its last resort


@asynccontextmanager
async def opened(**flags: Any) -> AsyncIterator[Application]:
    """The application with its agents loaded; closed, with everything durable, at the end."""
    settings = settings_of(**flags)
    quiet_logs(settings)
    from graphflow.service.application import Application

    if not (Verbosity.verbose or os.environ.get("GRAPHFLOW_LOG_LEVEL")):
        settings = replace(settings, llm=replace(settings.llm, interaction_log_enabled=False))
    async with Application(settings) as app:
        yield app


@asynccontextmanager
async def opened_thread(given: str) -> AsyncIterator[tuple[Application, Thread]]:
    """The application, and the thread of an id that may be given in part."""
    async with opened() as app:
        yield app, await thread_named(app, given)


def agent_named(app: Application, given: str) -> LoadedAgent:
    """The agent of a key, or of a file.

    Raises:
        DefinitionError: the file has errors.
        AgentNotFound: no agent has this key, or its file was refused.
    """
    from graphflow.errors import DefinitionError

    if given.endswith(".json") or "/" in given:
        path = Path(given)
        if not path.is_file():
            stop(exits.USAGE, f"no file {given!r}", hint="give an agent's key or its .json file")
        # A file of the agents folder is that agent, which is loaded already.
        if path.resolve().parent != Path(app.settings.agents.dir).resolve():
            return app.load(path)
        given = path.name.removesuffix(".json")
    # Reported with its errors: "not found" would send the person looking for a file that is there.
    refused = next((agent for agent in app.agents.invalid() if agent.key == given), None)
    if refused is not None:
        raise DefinitionError(refused.errors)
    return app.agents.get(given)


async def thread_named(app: Application, given: str) -> Thread:
    """The thread of an id; a unique prefix or suffix is enough."""
    thread_id = await _full_thread_id(app, given)
    graph = await app.graph_of_thread(thread_id)
    return graph.thread(thread_id)


async def _full_thread_id(app: Application, given: str) -> str:
    await app.runs.ready()
    if await app.store.thread(given) is not None:
        return given
    if not is_id(given):
        stop(exits.USAGE, not_an_id(given), hint="`graphflow threads list`")
    if len(given) < SHORTEST:
        from graphflow.errors import ThreadNotFound

        raise ThreadNotFound(
            f"no thread has the id {given!r}, and a prefix or suffix has {SHORTEST} characters at least"
        )
    found, seen = [], 0
    async for row in threads_in_store(app):
        if row.thread_id.startswith(given) or row.thread_id.endswith(given):
            found.append(row.thread_id)
        seen += 1
        if seen == SEARCHED:
            break
    return _only(found, given, "threads")


async def threads_in_store(app: Application, cursor: str | None = None, **filters: Any) -> AsyncIterator[ThreadRow]:
    """Every thread, the most recently used first, read page by page."""
    await app.runs.ready()
    while page := await app.store.threads(cursor=cursor, limit=PAGE, **filters):
        for row in page:
            yield row
        if len(page) < PAGE:
            return
        cursor = page[-1].thread_id


async def checkpoint_named(thread: Thread, given: str) -> CheckpointInfo:
    """The checkpoint of an id (a unique prefix or suffix is enough), or `head`.

    Raises:
        CheckpointNotFound: none matches.
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


async def forked(thread: Thread, checkpoint_id: str, new_id: str | None, effects: Any, by: str) -> Thread:
    """A new thread that starts at the checkpoint, under `new_id` if given."""
    from graphflow.errors import ThreadExists

    if new_id is not None and not is_id(new_id):
        stop(exits.USAGE, f"--id: {not_an_id(new_id)}")
    try:
        return await thread.fork(checkpoint_id, thread_id=new_id, effects=effects, by=by)
    except ThreadExists as error:
        stop(exits.USAGE, spoken(error.message, "cli"), hint=ANOTHER_ID)


def _only(found: list[str], given: str, what: str) -> str:
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        stop(exits.USAGE, f"{given!r} matches {len(found)} {what}: {shown}", hint="give more of the id")
    return found[0] if found else given


async def _parts(app: Application, given: str) -> tuple[str, str]:
    """`THREAD[@CHECKPOINT]` apart: no checkpoint's id has an `@`, but that of an older thread may."""
    await app.runs.ready()
    thread_id, at, checkpoint = given.rpartition("@")
    return (thread_id, checkpoint) if at and await app.store.thread(given) is None else (given, "")


async def target_named(app: Application, given: str) -> tuple[Thread, CheckpointInfo]:
    """`THREAD@CHECKPOINT`."""
    thread_id, checkpoint = await _parts(app, given)
    if not checkpoint:
        stop(
            exits.USAGE,
            f"{given!r} has no checkpoint; write THREAD@CHECKPOINT",
            hint=f"`graphflow threads show {thread_id}`",
        )
    thread = await thread_named(app, thread_id)
    return thread, await checkpoint_named(thread, checkpoint)


async def place_named(app: Application, given: str) -> tuple[Thread, str | None]:
    """`THREAD[@CHECKPOINT]`: the thread, and the id of the checkpoint if one is given."""
    thread_id, checkpoint = await _parts(app, given)
    thread = await thread_named(app, thread_id)
    return thread, (await checkpoint_named(thread, checkpoint)).id if checkpoint else None
