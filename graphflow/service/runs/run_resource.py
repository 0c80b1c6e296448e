"""Runs as resources: what became of a run, for whoever has only its id (spec 3.1)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from graphflow.graph.core.immutable import thaw
from graphflow.id_rule import is_id
from graphflow.runtime.result import result_from
from graphflow.runtime.runs.run_list import RunFound, RunInfo, read_runs, runs_with
from graphflow.service.access import LOCAL, Caller, check_filter, check_run
from graphflow.service.context import ServiceContext
from graphflow.service.inbox import interrupt_dict
from graphflow.service.live_threads import flush_live
from graphflow.service.queued_inputs import find_run
from graphflow.service.requests import unknown_cursor, unknown_run


async def run_resource(context: ServiceContext, run_id: str, *, caller: Caller = LOCAL) -> dict[str, Any]:
    """The run: status, times, usage, open questions, and its answer or error once it has ended.

    Raises:
        ThreadNotFound: `run_not_found`; also for a run of another user.
    """
    await context.runs.ready()
    await check_run(context, caller, run_id)
    live = next((live for live in context.runs.by_thread.values() if live.run_id == run_id), None)
    thread_id = live.thread_id if live is not None else await find_run(context, run_id)
    if thread_id is not None:
        await context.runs.settled(thread_id)
        await flush_live(context, thread_id)
    row = None if thread_id is None else await context.store.thread(thread_id)
    if row is None:
        raise unknown_run(run_id)
    return await resource_of(context, (await read_runs(context.runs, [(run_id, row)], logs=True))[0])


async def resource_of(context: ServiceContext, found: RunFound) -> dict[str, Any]:
    """The resource of a run that was read with its logs."""
    out = run_line(found.info)
    if found.info.status == "completed" and found.machine is not None:
        host = (await context.graph_of_thread(found.info.thread_id)).host
        plan = await host.documents.pinned(found.machine.document or None)
        out["answer"] = thaw(result_from(plan, found.machine, found.info.thread_id, None).output)
    out["interrupts"] = [interrupt_dict(interrupt) for interrupt in found.interrupts]
    return {key: value for key, value in out.items() if value is not None or key in _ALWAYS}


_ALWAYS = frozenset(("agentKey", "createdAt", "updatedAt", "endedAt", "checkpointId", "answer"))
"""Sent although they are null."""


def run_line(info: RunInfo) -> dict[str, Any]:
    """The run in a list."""
    fields: dict[str, Any] = msgspec.to_builtins(info)
    out = {"chatId": info.thread_id, **fields, "links": links_of(info.run_id, info.thread_id)}
    return {key: value for key, value in out.items() if value is not None or key in _ALWAYS}


def links_of(run_id: str, thread_id: str) -> dict[str, str]:
    """Where the run, its events and its thread are found, relative to the server's address."""
    return {
        "run": f"/api/runs/{quote(run_id, safe='')}",
        "events": f"/api/runs/{quote(run_id, safe='')}/events",
        "thread": f"/api/threads/{quote(thread_id, safe='')}",
    }


async def list_runs(
    context: ServiceContext, *, cursor: str | None = None, user: str | None = None, **filters: Any
) -> tuple[list[dict[str, Any]], str | None]:
    """Runs, newest first, and the cursor of the next page; with `user` this user's alone.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor or status.
    """
    await check_filter(context, filters.get("thread_id"), user)
    if cursor is not None and not is_id(cursor):
        raise unknown_cursor(cursor)
    found, following = await runs_with(context.runs, cursor=cursor, user=user, **filters)
    return [run_line(info) for info in found], following
