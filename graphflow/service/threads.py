"""Threads for the server and the command line: their state, history, and how to go on from any point (spec 3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.errors import unknown_checkpoint
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.media.large_bytes import named_parts, read_bytes
from graphflow.errors import CheckpointNotFound, GraphflowError, ThreadExists, ThreadNotFound
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import Interrupt
from graphflow.json_data import plain
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.runs.thread_list import LOOK_AT, ThreadInfo, thread_info, threads_with
from graphflow.runtime.thread import CheckpointInfo, Thread, ThreadState
from graphflow.runtime.thread_about import about_of, title_of
from graphflow.service import uploads
from graphflow.service.access import LOCAL, Caller, check_thread, sees
from graphflow.service.context import ServiceContext
from graphflow.service.inbox import interrupt_dict
from graphflow.service.live_threads import flush_live
from graphflow.service.queued_inputs import queued_inputs
from graphflow.service.requests import unknown_cursor
from graphflow.service.usage import added, line_dict

INLINE = 100
"""Questions that are worded without a thread."""


async def thread_of(context: ServiceContext, thread_id: str) -> Thread:
    """The thread, under its own version of its graph.

    Raises:
        ThreadNotFound: no such thread.
    """
    await context.runs.ready()
    await flush_live(context, thread_id)
    return (await context.graph_of_thread(thread_id)).thread(thread_id)


async def threads(
    context: ServiceContext, *, caller: Caller = LOCAL, cursor: str | None = None, limit: int = 50, **filters: Any
) -> tuple[list[ThreadInfo], str | None]:
    """Threads that the caller may see, the most recently used first, and the cursor of the next page.

    Args:
        filters: `status`, `agent_key` and `metadata` of `threads_with`.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor, or one whose thread was deleted.
    """
    # A cursor is a thread id: another user's must look like one that was never there.
    if cursor is not None and not await sees(context, caller, cursor):
        raise unknown_cursor(cursor)
    try:
        rows, following = await threads_with(
            context.runs, user=caller.user, cursor=cursor, limit=limit, look_at=LOOK_AT, **filters
        )
    except ThreadNotFound:
        raise unknown_cursor(cursor) from None
    return [thread_info(context.runs, row) for row in rows], following


async def update(context: ServiceContext, thread_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The thread's line with these changes made to its `title` and `metadata`; see `Thread.update`."""
    return struct_dict(await (await thread_of(context, thread_id)).update(**changes))


async def summary(context: ServiceContext, thread_id: str, *, caller: Caller = LOCAL) -> dict[str, Any]:
    """Head checkpoint, status, what waits, usage; of a failed thread its trace, if the caller may see code."""
    thread = await thread_of(context, thread_id)
    row = await context.store.thread(thread_id)
    if row is None or row.head is None:
        raise ThreadNotFound(f"thread {thread_id!r} has no checkpoint yet")
    state = await thread.state()
    trace = (await thread.why()).trace if state.status == "failed" and caller.sees_code else None
    return {
        "threadId": thread_id,
        "title": title_of(row) or "",
        "metadata": about_of(row).metadata,
        "agentKey": row.facts.agent_key,
        "version": row.facts.document,
        "status": context.runs.status_of(row),
        "driven": context.runs.is_driven(row),
        "runId": state.run_id,
        "checkpointId": state.checkpoint_id,
        "next": state.next,
        "interrupts": await _told(state.interrupts),
        "state": {key: _short(value) for key, value in state.values.items()},
        "usage": state.usage,
        "createdAt": row.created_at,
        "updatedAt": row.facts.updated_at,
        **({"trace": list(trace)} if trace else {}),
    }


async def _told(interrupts: Sequence[Interrupt]) -> list[dict[str, Any]]:
    """The questions for an answer; thousands of them are worded beside the event loop."""
    return _worded(interrupts) if len(interrupts) <= INLINE else await asyncio.to_thread(_worded, interrupts)


def _worded(interrupts: Sequence[Interrupt]) -> list[dict[str, Any]]:
    return [interrupt_dict(interrupt) for interrupt in interrupts]


def _short(value: Any) -> str:
    """What a value is, for a summary: its kind and size, never the value."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"string of {len(value)}"
    if isinstance(value, Mapping):
        return f"object of {len(value)}"
    if isinstance(value, Sequence):
        return f"list of {len(value)}"
    return type(value).__name__


async def checkpoints(
    context: ServiceContext, thread_id: str, *, cursor: str | None = None, limit: int = 50
) -> tuple[list[CheckpointInfo], str | None]:
    """The tree, newest first, and the cursor of the next page.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor, or one whose checkpoint was pruned.
    """
    thread = await thread_of(context, thread_id)
    try:
        found = await thread.history(limit, before=cursor, all_lineages=True)
    except CheckpointNotFound:
        raise unknown_cursor(cursor) from None
    return found, found[-1].id if len(found) == limit else None


async def state(context: ServiceContext, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any]:
    """The thread in full, at its head or at a checkpoint."""
    found: ThreadState = await (await thread_of(context, thread_id)).state(checkpoint_id)
    # It may have thousands of branches, or megabytes.
    values, frames = await asyncio.to_thread(_plain, found)
    return {
        "threadId": thread_id,
        "checkpointId": found.checkpoint_id,
        "status": found.status,
        "driven": found.driven,
        "runId": found.run_id,
        "values": values,
        "next": found.next,
        "interrupts": await _told(found.interrupts),
        "usage": found.usage,
        "frames": frames,
    }


def _plain(found: ThreadState) -> tuple[dict[str, Any], dict[str, Any]]:
    return thaw(found.values), {path: thaw(values) for path, values in found.own_frames.items()}


async def diff(context: ServiceContext, thread_id: str, a: str, b: str, other: str | None = None) -> dict[str, Any]:
    """What changed between two checkpoints, the second of another thread if one is named: JSON Patch per state key."""
    second = None if other is None else await thread_of(context, other)
    return {"from": a, "to": b, "changes": await (await thread_of(context, thread_id)).diff(a, b, other=second)}


async def blame(
    context: ServiceContext, thread_id: str, key: str, checkpoint_id: str | None, path: str
) -> dict[str, Any]:
    """Who wrote a value; see `Thread.blame`."""
    found = await (await thread_of(context, thread_id)).blame(key, checkpoint_id, path=path)
    # A sum may come from thousands of branches.
    return {"threadId": thread_id, **await asyncio.to_thread(struct_dict, found)}


async def why(
    context: ServiceContext, thread_id: str, checkpoint_id: str | None, *, caller: Caller = LOCAL
) -> dict[str, Any]:
    """Why the thread went on from a checkpoint as it did, with the trace of a failure if the caller may see code."""
    found = await (await thread_of(context, thread_id)).why(checkpoint_id)
    if not caller.sees_code:
        found = msgspec.structs.replace(found, trace=None)
    return {"threadId": thread_id, **struct_dict(found)}


async def cost(context: ServiceContext, thread_id: str) -> dict[str, Any]:
    """What the thread's present branch has used, and `spent`: what all of its branches have, from the store's ledger."""
    told = await (await thread_of(context, thread_id)).cost()
    rows = await context.store.spent(thread_id=thread_id)
    return {"threadId": thread_id, **struct_dict(told), "spent": line_dict(added(rows))}


def struct_dict(value: msgspec.Struct) -> dict[str, Any]:
    """The struct in the names of the wire."""
    out: dict[str, Any] = msgspec.to_builtins(value, enc_hook=plain)
    return out


async def edit(context: ServiceContext, thread_id: str, values: Mapping[str, Any], **options: Any) -> str:
    """A new checkpoint with these values; see `Thread.edit`."""
    async with context.thread_lock(thread_id):
        await context.runs.settled(thread_id)
        return await (await thread_of(context, thread_id)).edit(values, **options)


async def rewind(context: ServiceContext, thread_id: str, checkpoint_id: str, **options: Any) -> str:
    """A new head that goes on from the checkpoint; see `Thread.rewind`."""
    async with context.thread_lock(thread_id):
        await context.runs.settled(thread_id)
        return await (await thread_of(context, thread_id)).rewind(checkpoint_id, **options)


async def part_bytes(
    context: ServiceContext, thread_id: str, name: str, checkpoint_id: str | None = None
) -> tuple[bytes, str | None]:
    """The bytes with this SHA-256 that a message of the thread names, and their media type.

    Raises:
        ThreadNotFound, CheckpointNotFound
        GraphflowError: `not_found` when no message names them.
    """
    await thread_of(context, thread_id)
    loaded = await load_thread(context.store, thread_id, checkpoint_id)
    if loaded is None:
        raise unknown_checkpoint(thread_id, checkpoint_id or "")
    part = (await asyncio.to_thread(named_parts, loaded.machine)).get(name)  # it may have thousands of branches
    if part is None or part.stored is None:
        raise GraphflowError(
            f"no message of thread {thread_id!r} names bytes with the SHA-256 {excerpt_of(name, 80)}; the parts of messages in"
            " its state have it as `blob`",
            code="not_found",
        )
    return await read_bytes(context.store, loaded.chain, name, part.stored), part.media_type


async def fork(
    context: ServiceContext,
    thread_id: str,
    checkpoint_id: str | None,
    new_id: str | None = None,
    effects: Choices = None,
    *,
    caller: Caller = LOCAL,
) -> dict[str, Any]:
    """A new thread that shares the past up to the checkpoint.

    Raises:
        ThreadExists: `new_id` is taken by a thread that the caller may see.
        ThreadNotFound: it is taken by another user's.
    """
    thread = await thread_of(context, thread_id)
    try:
        other = await thread.fork(checkpoint_id, thread_id=new_id, effects=effects, by=caller)
    except ThreadExists as error:
        await check_thread(context, caller, str(error.detail["threadId"]))
        raise
    return {"threadId": other.id, "checkpointId": (await other.state()).checkpoint_id, "forkedFrom": thread_id}


async def cancel(context: ServiceContext, thread_id: str) -> bool:
    """Cancels the run that drives or waits on the thread; see `Thread.cancel`."""
    thread = await thread_of(context, thread_id)
    await context.runs.settled(thread_id)
    return await thread.cancel()


async def queue(context: ServiceContext, thread_id: str) -> list[dict[str, Any]]:
    """The inputs that wait for their turn, in order."""
    await thread_of(context, thread_id)
    return [
        {
            "runId": queued.run_id,
            "requestId": queued.request_id,
            "position": place,
            "message": None if queued.query is None else queued.query.message,
            "agentKey": queued.agent_key,
            "queuedAt": entry.at,
        }
        for place, (entry, queued) in enumerate(await queued_inputs(context, thread_id), 1)
    ]


async def delete(context: ServiceContext, thread_id: str) -> None:
    """Removes the thread and all that no other thread shares; of a chat that has not begun, its uploads.

    Raises:
        ThreadBusy: a run drives it, here or in another process.
    """
    try:
        thread = await thread_of(context, thread_id)
    # A chat may have uploads before its first run, and no thread yet.
    except ThreadNotFound:
        if await uploads.delete(context, thread_id):
            return
        raise
    await context.runs.settled(thread_id)
    # The thread goes first: a search drops a conversation whose thread is gone.
    await thread.delete()
    await context.chat_record.delete(thread_id)
    await context.conversations.delete(thread_id)
    await uploads.delete(context, thread_id)


def checkpoint_dict(info: CheckpointInfo) -> dict[str, Any]:
    """One line of the tree."""
    out: dict[str, Any] = msgspec.to_builtins(info)
    return out
