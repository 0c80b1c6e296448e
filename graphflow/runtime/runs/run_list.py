"""The runs of a store, each with its status as it is now: the same for Python, the command line and HTTP (spec 3.1)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError
from graphflow.graph.core.budget import known_usage
from graphflow.graph.core.machine import Interrupt, Machine
from graphflow.runtime.history.stored_events import place_before
from graphflow.runtime.queue_codec import decode_queued
from graphflow.runtime.runs.live_runs import LiveRuns
from graphflow.suggestions import choose

RunState = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "stopped", "pruned"]
"""`stopped`: its process died, and it can go on; `cancelled` too if the thread went on without it; `pruned`: its records are gone."""
STATES: tuple[str, ...] = get_args(RunState)
ENDED = frozenset({"completed", "failed", "cancelled", "pruned"})
"""States that a run does not leave."""
PAGE = 100
QUEUED = 10_000
_OF_THREAD: dict[str, RunState] = {"idle": "completed", "failed": "failed", "stopped": "cancelled"}
_MOVES = frozenset({"rewind", "fork", "edit", "migrate"})
"""Sources of the records that put a thread elsewhere."""
Listed = tuple[str, ThreadRow]
"""A run's id and its thread."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run, as far as it has come."""

    run_id: str
    thread_id: str
    agent_key: str | None
    """Of its thread, and of a queued input its own."""
    status: RunState
    created_at: int | None
    """When it was asked for, epoch ms; None where its id does not tell."""
    updated_at: int | None
    """When its newest record was made, epoch ms; None before the first."""
    ended_at: int | None
    usage: dict[str, Any] = {}
    checkpoint_id: str | None = None
    """Its newest."""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    """`{code, message, node?, retryable, detail?}` of a failed run."""


class RunFound(msgspec.Struct, frozen=True, kw_only=True):
    """A run with the machine that it stands in; None before its first record, and of a pruned one."""

    info: RunInfo
    interrupts: tuple[Interrupt, ...] = ()
    """Its open questions."""
    machine: Machine | None = None
    moved: bool = False
    """It only puts the thread elsewhere: a rewind, a fork or an edit from which nothing has gone on, and that asks nothing."""


async def runs_with(
    runs: LiveRuns,
    *,
    status: str | None = None,
    thread_id: str | None = None,
    agent_key: str | None = None,
    user: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
    look_at: int = 1_000,
) -> tuple[list[RunInfo], str | None]:
    """Runs of this status as it is now, by id, the last first, and the cursor of the next page.

    A rewind, a fork and an edit are no runs of their own until the thread goes on from there, or waits there for an answer.

    Args:
        look_at: runs that are looked at for one page in vain: the page may be shorter than `limit` although more follow.

    Raises:
        GraphflowError: `invalid_input` for a status that there is none of.
    """
    if status is not None and status not in STATES:
        raise GraphflowError(f"no run has the status {status!r}; {choose(status, STATES)}", code="invalid_input")
    await runs.ready()
    found: list[RunInfo] = []
    while True:
        before = len(found)
        size = min(limit - before, PAGE) if status is None else min(PAGE, look_at)
        page = await runs.store.runs(thread_id=thread_id, agent_key=agent_key, user=user, cursor=cursor, limit=size)
        for run in await read_runs(runs, page):
            cursor = run.info.run_id
            if not run.moved and status in (None, run.info.status):
                found.append(run.info)
                if len(found) == limit:
                    return found, cursor if len(page) == size or run.info.run_id != page[-1][0] else None
        look_at -= len(page) - (len(found) - before)
        if len(page) < size:
            return found, None
        if look_at <= 0:
            return found, cursor


async def read_runs(runs: LiveRuns, listed: Sequence[Listed], *, logs: bool = False) -> list[RunFound]:
    """These runs, in their order.

    Args:
        logs: with the lists of their state, which an answer may be made of.
    """
    by_thread: dict[str, list[str]] = {}
    for run_id, row in listed:
        by_thread.setdefault(row.thread_id, []).append(run_id)
    rows = {row.thread_id: row for _, row in listed}
    found: dict[str, RunFound] = {}
    for thread_id, ids in by_thread.items():
        found |= {run_id: run async for run_id, run in _of_thread(runs, rows[thread_id], ids, logs=logs)}
    return [found[run_id] for run_id, _ in listed]


async def _of_thread(
    runs: LiveRuns, row: ThreadRow, wanted: Sequence[str], *, logs: bool
) -> AsyncIterator[tuple[str, RunFound]]:
    left = set(wanted)
    live = runs.by_thread.get(row.thread_id)
    # What this process drives is ahead of the store, and until its first tick the machine stands in the run before.
    if live is not None and live.run_id in left and not live.executor.ending:
        machine = live.executor.machine if live.executor.machine.run_id == live.run_id else None
        left.discard(live.run_id)
        yield live.run_id, _found(row, live.run_id, machine, live.executor.checkpoint_id, "running")
    if row.facts.run_id in left:
        loaded = await load_thread(runs.store, row.thread_id, logs=logs)
        if loaded is not None and loaded.machine.run_id == row.facts.run_id:
            going: RunState = "running" if runs.is_driven(loaded.row) else "stopped"
            left.discard(row.facts.run_id)
            run = _found(row, row.facts.run_id, loaded.machine, loaded.checkpoint_id, going)
            yield row.facts.run_id, await _marked(runs, run, loaded)
    if left:
        for entry in await runs.store.queue(row.thread_id, kind="input", limit=QUEUED):
            queued = decode_queued(entry)
            if queued.run_id in left:
                left.discard(queued.run_id)
                yield queued.run_id, _queued(row, queued.run_id, queued.agent_key)
    async for run_id, checkpoint_id in _newest_of_each(runs, row.thread_id, left):
        left.discard(run_id)
        loaded = await load_thread(runs.store, row.thread_id, checkpoint_id, logs=logs)
        machine = None if loaded is None else loaded.machine
        # The thread has gone on without it, so what it was doing or asking is over.
        yield run_id, await _marked(runs, _found(row, run_id, machine, checkpoint_id, "cancelled", over=True), loaded)
    for run_id in left:
        yield run_id, _found(row, run_id, None, None, "pruned")


async def _marked(runs: LiveRuns, run: RunFound, loaded: Loaded | None) -> RunFound:
    """The run, with `moved` where its only record is one of a move."""
    last = None if loaded is None else loaded.last
    if loaded is None or last is None or run.info.status == "waiting":
        return run
    if decode_meta(last.meta, last.id).source not in _MOVES:
        return run
    # An edit of a waiting run belongs to that run.
    if (before := place_before(loaded.chain, last)) is not None:
        lineage, ordinal = before
        rows = await runs.store.read_records(run.info.thread_id, lineage=lineage, after=ordinal - 1, upto=ordinal)
        if any(decode_meta(row.meta, row.id).run_id == run.info.run_id for row in rows):
            return run
    return msgspec.structs.replace(run, moved=True)


async def _newest_of_each(runs: LiveRuns, thread_id: str, wanted: set[str]) -> AsyncIterator[tuple[str, str]]:
    """The newest checkpoint of each of these runs: later ones belong to other runs."""
    left, before = set(wanted), None
    while left:
        page = await runs.store.list_checkpoints(thread_id, before=before, limit=PAGE, all_lineages=True)
        for line in page:
            run_id = decode_meta(line.meta, line.id).run_id
            if run_id in left:
                left.discard(run_id)
                yield run_id, line.id
        if len(page) < PAGE:
            return
        before = page[-1].id


def _found(
    row: ThreadRow,
    run_id: str,
    machine: Machine | None,
    checkpoint_id: str | None,
    going: RunState,
    *,
    over: bool = False,
) -> RunFound:
    """The run in the state of its machine; `going` while that has not ended, `over`: also where it waits."""
    if machine is None:
        status = going
    elif machine.status == "waiting" and not over:
        status = "waiting"
    else:
        status = _OF_THREAD.get(machine.status, going)
    at = None if machine is None else machine.last_at
    info = RunInfo(
        run_id=run_id,
        thread_id=row.thread_id,
        agent_key=row.facts.agent_key,
        status=status,
        created_at=made_at(run_id),
        updated_at=at,
        ended_at=at if status in ENDED else None,
        usage={} if machine is None else known_usage(machine.usage),
        checkpoint_id=None if machine is None else checkpoint_id,
        finish_reason=machine.finish_reason or None if machine is not None and status == "completed" else None,
        error=dict(machine.error) if machine is not None and status == "failed" and machine.error else None,
    )
    open_ = machine.interrupts if machine is not None and status in ("waiting", "running", "stopped") else {}
    return RunFound(info=info, machine=machine, interrupts=tuple(open_.values()))


def _queued(row: ThreadRow, run_id: str, agent_key: str | None) -> RunFound:
    found = _found(row, run_id, None, None, "queued")
    return RunFound(info=msgspec.structs.replace(found.info, agent_key=agent_key or row.facts.agent_key))


def made_at(run_id: str) -> int | None:
    """When the id was made, epoch ms; None when it does not tell."""
    try:
        parsed = uuid.UUID(run_id)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 else None
