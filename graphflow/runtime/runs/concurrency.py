"""What a new run does about one that drives the thread: `onBusy` and the queue (spec 2.4, E2, E8).

`reject` refuses, `enqueue` waits for its turn, `interrupt` cancels the run, `rollback` cancels it and goes back to where it
began (`travel.busy_rollback`). A run of another process is asked to stop through the thread's queue (`live_runs`). Interrupting inputs go before
those that wait; every other input comes after them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from graphflow.checkpoints.checkpointer import owner_liveness
from graphflow.checkpoints.rows import Queued, ThreadRow
from graphflow.errors import CodecError, Fenced, GraphflowError, ThreadBusy, ThreadWaiting
from graphflow.events import Event
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import Input
from graphflow.graph.engine.executor import HOLD_MS
from graphflow.runtime.queue_codec import decode_queued, encode_queued
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRuns, PreparedRun
from graphflow.runtime.runs.outbox import Outbox
from graphflow.runtime.runs.preconditions import waits_for_answers

TRIES = 5
"""How often an interrupting input tries to take a thread that others take too."""
TURN_POLL_S = 0.1
"""How often a caller that waits for its turn looks at the queue; an end in this process wakes it at once."""
LOST_POLLS = 10
"""At every so many looks, a caller checks whether those before it are still there."""
HELD_MS = 15_000
"""An attached caller whose turn it is loses it after this time beyond a lease, where nobody can see whether it lives."""

_in_line: set[str] = set()
"""Runs whose callers wait for their turn in this process."""

log = logging.getLogger("graphflow.runtime")


class Audience(msgspec.Struct, frozen=True):
    """Who follows a run: an attached consumer, a run log that many may follow, or nobody."""

    outbox: Outbox | None = None
    log: bool = False
    preamble: tuple[Event, ...] = ()
    """Sent before anything runs: `request.query`, `request.submit`, and `chat.start` if the thread has not begun."""
    hold_ms: int | None = None
    """How long the process waits for answers; None: as long as the kind of audience asks for."""

    def hold(self) -> int:
        return self.hold_ms if self.hold_ms is not None else HOLD_MS if self.log else 0


NOBODY = Audience()


class CheckedInput(msgspec.Struct, frozen=True):
    """A checked input that still has to take its thread."""

    plan: Plan
    request: RunRequest
    """With the ids of its thread and its run."""
    tick: Input
    audience: Audience
    consumes: int | None
    """Its position, when it comes from the queue."""
    supersedes: str | None = None
    """Id of a run that a crash cut off and that can't go on; from the queue, an input comes after any other such run."""


RunFactory = Callable[[CheckedInput], Awaitable[PreparedRun]]
Revival = Callable[[], Awaitable[str | None]]


# --- taking the thread ---------------------------------------------------------------------------


async def take(
    runs: LiveRuns, thread_id: str, *, create: bool = False, new: CheckedInput | None = None, frees: bool = False
) -> ThreadRow:
    """Takes the thread, after its driver was stopped or asked to release it where `new` or `frees` says so.

    Args:
        new: new input, whose `on_busy` and `on_waiting` decide.
        frees: a process that holds the thread while it waits for people lets go of it.

    Raises:
        ThreadBusy, ThreadWaiting: it stays with its owner.
    """
    await runs.ready()
    for attempt in range(TRIES):
        live = runs.by_thread.get(thread_id)
        try:
            if live is not None:
                raise live.busy("cancel it, or pass on_busy")
            return await runs.take(thread_id, create=create)
        except ThreadBusy:
            how = await _how_to_free(runs, thread_id, new, frees)
            if how is None or attempt == TRIES - 1:
                raise
            await runs.preempt(thread_id, how)
    raise AssertionError("the last attempt gives or raises")


async def _how_to_free(runs: LiveRuns, thread_id: str, new: CheckedInput | None, frees: bool) -> str | None:
    """`cancel`, `release` (a process holds the thread while it waits for people), or None: it is busy."""
    if new is None and not frees:
        return None
    if new is not None and new.request.on_busy in ("interrupt", "rollback"):
        return "cancel"
    live = runs.by_thread.get(thread_id)
    if live is not None:
        waits = live.executor.machine.status == "waiting"
    else:
        row = await runs.store.thread(thread_id)
        waits = row is not None and row.facts.status == "waiting"
    if not waits:
        return None
    if new is not None and new.request.on_waiting == "cancel":
        return "cancel"
    if new is None or (new.request.on_waiting == "answer" and new.consumes is None):
        return "release"
    # An enqueued input waits behind the open questions; any other is refused with their list.
    if new.request.on_busy == "enqueue" or new.consumes is not None:
        return None
    open_ = await runs.store.open_interrupts(thread_id=thread_id)
    raise waits_for_answers(thread_id, ((i.interrupt_id, i.kind, i.node) for i in open_))


async def check_turn(runs: LiveRuns, new: CheckedInput, row: ThreadRow) -> None:
    """Refuses an input whose turn it is not, now that the thread is taken."""
    if new.consumes is not None:
        first = await runs.store.queued(row.thread_id)
        if first is None or first[0] != new.consumes:
            raise ThreadBusy(f"it is another input's turn on thread {row.thread_id!r}", retryAfterMs=1000)
        # Another process may have begun a run, and died, since whoever begins this one looked.
        facts = row.facts
        if (
            facts.status == "running"
            and facts.run_id != new.supersedes
            and new.request.on_busy not in ("interrupt", "rollback")
        ):
            raise ThreadBusy(
                f"run {facts.run_id} of thread {row.thread_id!r} has lost its process, and goes on first",
                retryAfterMs=1000,
            )
    # Inputs that interrupt or roll back overtake the queue.
    elif (
        row.queued and new.request.on_busy in ("reject", "enqueue") and await drop_lost(runs, row.thread_id) is not None
    ):
        raise ThreadBusy(
            f"inputs wait for their turn on thread {row.thread_id!r}; pass on_busy='enqueue' to wait behind them, or run "
            "`app.recover()` where no server runs",
            threadId=row.thread_id,
            retryAfterMs=1000,
        )


async def drop_lost(runs: LiveRuns, thread_id: str) -> Queued | None:
    """The first input that somebody waits for; those before it, whose callers died while they waited, leave the queue.

    A caller that drives its own run takes its input with it when it leaves, however it leaves: whoever calls again after
    its death would else run it twice.
    """
    while entries := await runs.store.queue(thread_id, kind="input", limit=1):
        try:
            queued: RunRequest = decode_queued(entries[0])
        except GraphflowError:  # of a program that stores other inputs; only that one can tell
            return entries[0]
        if queued.holder is None or not await is_lost(runs, entries[0], queued):
            return entries[0]
        if await runs.store.withdraw(thread_id, entries[0].position, run_id=queued.run_id):
            log.warning("thread %s: run %s is dropped, its caller died in the queue", thread_id, queued.run_id)
    return None


async def is_lost(runs: LiveRuns, entry: Queued, queued: RunRequest) -> bool:
    """Whether the caller that wanted to drive this queued run itself is gone, or did not take its turn."""
    if queued.holder == runs.owner:
        return queued.run_id not in _in_line
    liveness = owner_liveness(runs.store)
    if liveness is not None and queued.holder is not None and liveness.is_dead(queued.holder):
        return True
    return await _was_left(runs, entry)


async def _was_left(runs: LiveRuns, entry: Queued) -> bool:
    """Whether an input could have begun for so long that whoever should begin it is surely gone."""
    row = await runs.store.thread(entry.thread_id)
    # Behind a run and behind an open question every input waits, however long.
    if row is None or row.facts.status == "waiting" or entry.thread_id in runs.by_thread:
        return False
    # This caller may have taken the thread itself, to look.
    if row.owner != runs.owner and runs.is_driven(row):
        return False
    # The clock of a turn starts when the input is queued or when the thread was last used, whichever is later; a crash
    # leaves the thread taken for a lease more.
    since = max(entry.at, row.facts.updated_at)
    return runs.time.now_ms() - since > HELD_MS + runs.registry.lease_ms


# --- enqueue, for a caller that drives the run itself --------------------------------------------


async def in_turn(
    runs: LiveRuns, factory: RunFactory, new: CheckedInput, queued: RunRequest, revive: Revival
) -> PreparedRun:
    """The run of an input that waits for its turn; leaving takes it out of the queue.

    Args:
        revive: goes on with the run that a crash has cut off, which comes before what waits behind it, to its end; the
            run's id, if it can't go on.

    Raises:
        Fenced: somebody took the input out of the queue, or another process began its run.
    """
    # Try first: on a free thread the input costs no queue entry.
    try:
        return await factory(new)
    except ThreadBusy:
        pass
    _in_line.add(queued.run_id)
    try:
        return await _in_queue(runs, factory, new, queued, revive)
    finally:
        _in_line.discard(queued.run_id)


async def _in_queue(
    runs: LiveRuns, factory: RunFactory, new: CheckedInput, queued: RunRequest, revive: Revival
) -> PreparedRun:
    store, thread_id = runs.store, new.request.thread_id
    position = await _enqueued(runs, thread_id, queued)
    turn = msgspec.structs.replace(new, consumes=position)
    run: PreparedRun | None = None
    looks = 0
    try:
        while run is None:
            if looks % LOST_POLLS == 0:
                await _check_those_before(runs, thread_id, position)
            looks += 1
            first = await store.queued(thread_id)
            # An entry leaves the queue only by a withdrawal or with the first commit of its run.
            if first is None or first[0] > position:
                raise Fenced(
                    f"the input at position {position} of thread {thread_id!r} was withdrawn, or run {queued.run_id} was "
                    "begun by another process",
                    runId=queued.run_id,
                )
            if first[0] == position:
                try:
                    row = await store.thread(thread_id)
                    if row is not None and runs.status_of(row) == "stopped" and row.facts.status == "running":
                        turn = msgspec.structs.replace(turn, supersedes=await revive())
                    run = await factory(turn)
                    continue
                except (ThreadBusy, ThreadWaiting):
                    # Still first in the queue: try again after the next change.
                    pass
            await runs.changed(thread_id, TURN_POLL_S)
        return run
    finally:
        # The caller left without a run, so nobody may begin it later.
        if run is None:
            await store.withdraw(thread_id, position, run_id=queued.run_id)


async def _check_those_before(runs: LiveRuns, thread_id: str, position: int) -> None:
    """Drops inputs of dead callers; refuses to wait behind one that a server accepted and no server begins."""
    first = await drop_lost(runs, thread_id)
    if first is None or first.position >= position or not await _was_left(runs, first):
        return
    with suppress(CodecError):
        if decode_queued(first).holder is not None:
            return
    raise ThreadBusy(
        f"an input that a server has accepted waits on thread {thread_id!r}, and no server begins it; "
        "start one, or call `app.recover()`",
        threadId=thread_id,
        retryAfterMs=1000,
    )


async def _enqueued(runs: LiveRuns, thread_id: str, queued: RunRequest) -> int:
    """The input's position; a caller that leaves in this moment leaves nothing behind."""
    store, now = runs.store, runs.time.now_ms()
    adding = asyncio.ensure_future(  # noqa: TID251 - awaited here, whatever happens
        store.enqueue(thread_id, encode_queued(queued), now=now, run_id=queued.run_id)
    )
    # Shielded: the insert completes even if the caller leaves, so its position is known and can be withdrawn.
    try:
        return await asyncio.shield(adding)
    except asyncio.CancelledError:
        await store.withdraw(thread_id, await adding, run_id=queued.run_id)
        raise
