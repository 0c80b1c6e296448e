"""What a new run does about one that drives the thread: `onBusy` and the queue (spec 2.4, E2, E8).

`reject` refuses, `enqueue` waits for its turn, `interrupt` cancels the run, `rollback` cancels it and goes back to where it
began. A run of another process is asked to stop through the thread's queue (`live.py`). Interrupting inputs go before
those that wait; every other input comes after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import CheckpointNotFound, Fenced, ThreadBusy, ThreadWaiting
from graphflow.events import Event
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.ticks import AnyTick, Input
from graphflow.graph.engine.executor import HOLD_MS
from graphflow.runtime.history.effects import CHOICES, Choices, choose, effects_behind
from graphflow.runtime.queue import encode_queued
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns
from graphflow.runtime.runs.outbox import Outbox

if TYPE_CHECKING:
    from graphflow.runtime.compiled_graph import CompiledGraph

TRIES = 5
"""How often an interrupting input tries to take a thread that others take too."""
TURN_POLL_S = 0.1
"""How often a caller that waits for its turn looks at the queue; an end in this process wakes it at once."""
HELD_MS = 15_000
"""A caller that does not take its turn for so long after it came has lost it: others begin its run."""


class Audience(msgspec.Struct, frozen=True):
    """Who hears a life: an attached consumer, a run log that many may follow, or nobody."""

    outbox: Outbox | None = None
    log: bool = False
    preamble: tuple[Event, ...] = ()
    """Sent before anything runs: `request.query`, `chat.start`, `request.submit`."""
    hold_ms: int | None = None
    """How long the process waits for answers; None: as long as the kind of audience asks for."""

    def hold(self) -> int:
        return self.hold_ms if self.hold_ms is not None else HOLD_MS if self.log else 0


class Life(msgspec.Struct):
    """A life that is about to be driven."""

    run: LiveRun
    tick: AnyTick | None
    before: Callable[[], None]
    """Sends what comes before the first tick."""


class Begin(msgspec.Struct, frozen=True):
    """A new input that has been checked and wants the thread."""

    runs: LiveRuns
    thread_id: str
    tick: Input
    audience: Audience
    on_waiting: str
    on_busy: str
    title: str | None
    consumes: int | None
    """Its position, when it comes from the queue."""


Begun = Callable[[Begin], Awaitable[Life]]


# --- taking the thread ---------------------------------------------------------------------------


async def take(runs: LiveRuns, thread_id: str, *, create: bool, begin: Begin | None, frees: bool) -> ThreadRow:
    """Takes the thread, after whoever drives it has made way where it shall.

    Args:
        begin: new input, whose `on_busy` and `on_waiting` decide.
        frees: a process that holds the thread while it waits for people lets go of it.

    Raises:
        ThreadBusy, ThreadWaiting: it stays with whom it is.
    """
    await runs.ready()
    for attempt in range(TRIES):
        live = runs.by_thread.get(thread_id)
        try:
            if live is not None:
                raise busy_here(live)
            return await runs.take(thread_id, create=create)
        except ThreadBusy:
            how = await _how_to_free(runs, thread_id, begin, frees)
            if how is None or attempt == TRIES - 1:
                raise
            await runs.make_way(thread_id, how)
    raise AssertionError("the last attempt gives or raises")


def busy_here(live: LiveRun) -> ThreadBusy:
    return ThreadBusy(
        f"thread {live.thread_id!r} is driven by run {live.run_id}; wait for it, cancel it, or pass onBusy",
        retryAfterMs=1000,
        runId=live.run_id,
    )


async def _how_to_free(runs: LiveRuns, thread_id: str, begin: Begin | None, frees: bool) -> str | None:
    """`cancel`, `release` (a process holds the thread while it waits for people), or None: it is busy."""
    if begin is None and not frees:
        return None
    if begin is not None and begin.on_busy in ("interrupt", "rollback"):
        return "cancel"
    live = runs.by_thread.get(thread_id)
    if live is not None:
        waits = live.executor.machine.status == "waiting"
    else:
        row = await runs.store.thread(thread_id)
        waits = row is not None and row.facts.status == "waiting"
    if not waits:
        return None
    if begin is not None and begin.on_waiting == "cancel":
        return "cancel"
    if begin is None or (begin.on_waiting == "answer" and begin.consumes is None):
        return "release"
    if begin.on_busy == "enqueue" or begin.consumes is not None:
        return None
    open_ = await runs.store.open_interrupts(thread_id=thread_id)
    raise ThreadWaiting(
        f"thread {thread_id!r} waits for {len(open_)} answer(s); answer first, or pass onWaiting: cancel",
        interrupts=[{"interruptId": i.interrupt_id, "kind": i.kind, "node": i.node} for i in open_],
    )


async def check_turn(begin: Begin, row: ThreadRow) -> None:
    """Refuses an input whose turn it is not, now that the thread is taken."""
    if begin.consumes is not None:
        first = await begin.runs.store.queued(row.thread_id)
        if first is None or first[0] != begin.consumes:
            raise ThreadBusy(f"it is another input's turn on thread {row.thread_id!r}", retryAfterMs=1000)
    elif row.queued and begin.on_busy in ("reject", "enqueue"):
        raise ThreadBusy(
            f"inputs wait for their turn on thread {row.thread_id!r}; pass onBusy: enqueue to wait behind them",
            threadId=row.thread_id,
            retryAfterMs=1000,
        )


# --- enqueue, for a caller that drives the run itself --------------------------------------------


async def in_turn(begun: Begun, begin: Begin, queued: RunRequest) -> Life:
    """The life of an input that waits for its turn; leaving takes it out of the queue.

    Raises:
        Fenced: somebody took the input out of the queue, or another process began its run.
    """
    runs, store, thread_id = begin.runs, begin.runs.store, begin.thread_id
    try:
        return await begun(begin)
    except ThreadBusy:
        pass
    position = await _enqueued(runs, thread_id, queued)
    turn = msgspec.structs.replace(begin, consumes=position)
    life: Life | None = None
    try:
        while life is None:
            first = await store.queued(thread_id)
            if first is None or first[0] > position:
                raise Fenced(
                    f"the input at position {position} of thread {thread_id!r} was withdrawn, or run {queued.run_id} was "
                    "begun by another process",
                    runId=queued.run_id,
                )
            if first[0] == position:
                try:
                    life = await begun(turn)
                    continue
                except (ThreadBusy, ThreadWaiting):
                    pass
            await runs.changed(thread_id, TURN_POLL_S)
        return life
    finally:
        if life is None:
            await store.withdraw(thread_id, position, run_id=queued.run_id)


async def _enqueued(runs: LiveRuns, thread_id: str, queued: RunRequest) -> int:
    """The input's position; a caller that leaves in this moment leaves nothing behind."""
    store, now = runs.store, runs.clock.now_ms()
    adding = asyncio.ensure_future(  # noqa: TID251 - awaited here, whatever happens
        store.enqueue(thread_id, encode_queued(queued), now=now, run_id=queued.run_id)
    )
    try:
        return await asyncio.shield(adding)
    except asyncio.CancelledError:
        await store.withdraw(thread_id, await adding, run_id=queued.run_id)
        raise


# --- rollback ------------------------------------------------------------------------------------


async def after_rollback(app: CompiledGraph, begun: Begun, begin: Begin, effects: Choices) -> Life:
    """The life of an input that undoes the run which drives the thread; without one it just begins.

    Raises:
        EffectsNeedChoice: that run has done `write` effects which have no choice; it goes on.
    """
    runs, thread_id = begin.runs, begin.thread_id
    last: ThreadBusy | None = None
    for _ in range(TRIES):
        await runs.ready()
        await _roll_back(app, runs, thread_id, effects)
        try:
            # Whoever has taken the thread in between is rolled back too, not only interrupted.
            return await begun(msgspec.structs.replace(begin, on_busy="next"))
        except ThreadBusy as busy:
            last = busy
    assert last is not None
    raise last


async def _roll_back(app: CompiledGraph, runs: LiveRuns, thread_id: str, effects: Choices) -> None:
    """Cancels the run that drives the thread, and commits a head that goes on from where it began."""
    live = runs.by_thread.get(thread_id)
    if live is not None and live.journal is not None:
        await live.journal.flush()
    row = await runs.store.thread(thread_id)
    if row is None or not runs.is_driven(row) or row.facts.status == "waiting":
        return
    run_id = row.facts.run_id
    head = await load_thread(runs.store, thread_id)
    if head is None or head.row.head is None:  # taken, and nothing recorded yet
        await runs.make_way(thread_id)
        return
    target = await _before_run(runs, head, run_id)
    choose(await effects_behind(runs.store, head, target), effects, "rollback", CHOICES)
    await runs.make_way(thread_id)
    row = await runs.store.thread(thread_id)
    if row is not None and row.facts.run_id == run_id:
        await app.thread(thread_id).travel().rewind_to(target, effects, cancel=False, by=None)


async def _before_run(runs: LiveRuns, head: Loaded, run_id: str | None) -> Loaded:
    """The thread as it was before the run; before a thread's first run it is empty.

    Raises:
        CheckpointNotFound: that checkpoint was pruned.
    """
    store, thread_id = runs.store, head.row.thread_id
    before: str | None = None
    first = None
    while rows := await store.list_checkpoints(thread_id, before=before, limit=100):
        for listed in rows:
            if decode_meta(listed.meta, listed.id).run_id != run_id:
                found = await load_thread(store, thread_id, listed.id)
                if found is not None:
                    return found
        first, before = rows[-1], rows[-1].id
    if first is not None and (first.ordinal != 1 or first.lineage != head.chain[0][0]):
        raise CheckpointNotFound(
            f"the checkpoint before run {run_id!r} of thread {thread_id!r} was pruned, so it can't be rolled back; "
            "pass onBusy: interrupt"
        )
    return msgspec.structs.replace(
        head, machine=Machine(), chain=(), counts={}, seq=0, pending=[], last=None, checkpoint_id=None, bytes_since=0,
        snapshot_bytes=0, mark=0,
    )  # fmt: skip
