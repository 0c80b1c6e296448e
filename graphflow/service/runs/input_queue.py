"""Inputs that wait for their turn: put into a thread's queue, begun in order, and reported with their position (spec 2.4, 3.1).

The queue is the store's, so it outlives every process. Whoever frees a thread begins the next input, and the sweep of every
server looks for threads that somebody freed and left (`runtime.recovery`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError
from graphflow.events import ChatStart, Event
from graphflow.runtime.queue_codec import encode_queued
from graphflow.runtime.recovery import Recovery
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns
from graphflow.runtime.runs.run_host import RunHost
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import PAGE, QueuedInput, find_queued
from graphflow.service.requests import unknown_run
from graphflow.service.uploads import announced

OBSERVE_S = 0.5
"""How often a process looks whether inputs that it waits for have left the queue through another process."""
FULL_RETRY_MS = 5_000

log = logging.getLogger("graphflow.service")


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a request has set going."""

    run: LiveRun
    run_id: str
    chat_id: str
    request_id: str | None = None
    after: int = 0
    """The requester's stream has the events with higher numbers."""


TurnResult = StartedRun | Literal["gone"]
"""The outcome of an input: its run has begun here, or it has left the queue through another process."""


# --- putting in, looking, taking out


async def add(context: ServiceContext, queued: RunRequest) -> QueuedInput:
    """Accepts an input durably; the caller holds the thread's lock.

    Raises:
        GraphflowError: `overloaded` when the queue is full.
    """
    now, chat_id = context.clock.now_ms(), queued.thread_id
    await _refuse_when_full(context, chat_id)
    position = await context.store.enqueue(chat_id, encode_queued(queued), now=now, run_id=queued.run_id)
    # Registered before the drain starts, or its turn could come before anybody can be notified.
    begins = context.queue.turns[chat_id, position] = asyncio.get_running_loop().create_future()
    entries = await context.store.queue(chat_id, kind="input", limit=PAGE)
    drain_soon(context, chat_id)  # the run may have ended before the input was there
    return QueuedInput(
        run_id=queued.run_id,
        chat_id=chat_id,
        request_id=queued.request_id,
        position=position,
        place=sum(entry.position <= position for entry in entries),
        begins=begins,
    )


async def _refuse_when_full(context: ServiceContext, chat_id: str) -> None:
    most = context.settings.server.max_queued
    if len(await context.store.queue(chat_id, kind="input", limit=most)) >= most:
        raise GraphflowError(
            f"{most} inputs wait on thread {chat_id!r}, the most that a thread takes; try again later",
            code="overloaded",
            retryAfterMs=FULL_RETRY_MS,
        )


async def withdraw(context: ServiceContext, enqueued: QueuedInput) -> bool:
    """Takes the input out of the queue; False when its run has begun or it is gone already."""
    run_id = enqueued.run_id
    async with context.thread_lock(enqueued.chat_id):
        out = await context.store.withdraw(enqueued.chat_id, enqueued.position, run_id=run_id)
    if out:
        _settle(context, enqueued.chat_id, enqueued.position, "gone")
    return out


# --- waiting for the turn


async def wait_for_turn(context: ServiceContext, enqueued: QueuedInput) -> TurnResult:
    """Returns when the input's run begins in this process, or when the input is no longer in the queue.

    Raises:
        GraphflowError: its turn came, and it was refused for good (its agent is gone, say); or `shutting_down`.
    """
    key = (enqueued.chat_id, enqueued.position)
    future: asyncio.Future[TurnResult] | None = enqueued.begins or context.queue.turns.get(key)
    if future is None:
        future = context.queue.turns[key] = asyncio.get_running_loop().create_future()
    if context.queue.closed and not future.done():  # the input got into the store while those who waited were told
        raise _stopping()
    if context.queue.observer is None:
        context.queue.observer = asyncio.ensure_future(_observe(context))  # noqa: TID251 - ends with the last who waits
    # `wait`, not `await future`: a caller that is cancelled must not cancel the future for the others.
    await asyncio.wait((future,))
    return future.result()


async def _observe(context: ServiceContext) -> None:
    """Reports to the waiters here that their input has left the queue, for as long as there are any."""
    try:
        while waited := list(context.queue.turns):
            positions = [position for _, position in waited]
            with suppress(GraphflowError):  # a store that is locked for a moment
                # One question, however many wait.
                still = await context.store.still_queued(min(positions), max(positions))
                # What left the queue without a run here was withdrawn, or begun by another process.
                for chat_id, position in waited:
                    if position not in still:
                        _settle(context, chat_id, position, "gone")
            await asyncio.sleep(OBSERVE_S)
    finally:
        context.queue.observer = None


def _settle(context: ServiceContext, chat_id: str, position: int, turn: TurnResult | GraphflowError) -> None:
    future = context.queue.turns.pop((chat_id, position), None)
    if future is None or future.done():
        return
    if isinstance(turn, GraphflowError):
        future.set_exception(turn)
        future.exception()  # whoever waits gets it; nobody may wait
    else:
        future.set_result(turn)


# --- beginning the next


async def ended(context: ServiceContext, live: LiveRun) -> None:
    """A listener of `RunRegistry.on_end`: the thread is free, or waits."""
    if live.executor.machine.status != "running":
        drain_soon(context, live.thread_id)


def drain_soon(context: ServiceContext, chat_id: str, overdue: Sequence[str] = ()) -> asyncio.Task[None] | None:
    """Does what is due on the thread, soon, if it is free; the task that does it.

    Args:
        overdue: interrupts whose time is over.
    """
    if not context.queue.serving or context.stopping:
        return None
    # Two drains of one thread would begin its inputs out of order; the running one looks once more instead.
    if chat_id in context.queue.draining:
        context.queue.again.add(chat_id)
        return context.queue.draining[chat_id]
    task = asyncio.ensure_future(_drain(context, chat_id, overdue))  # noqa: TID251 - ended by `close`
    context.queue.draining[chat_id] = task
    return task


async def close(context: ServiceContext) -> None:
    """Begins nothing any more; what waits stays in the store, and waiters here get the error."""
    context.queue.serving, context.queue.closed = False, True
    for chat_id, position in list(context.queue.turns):
        _settle(context, chat_id, position, _stopping())
    tasks = [*context.queue.draining.values(), *filter(None, [context.queue.observer])]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(context: ServiceContext, chat_id: str, overdue: Sequence[str]) -> None:
    try:
        while True:
            # Discarded before the look, so a request that comes meanwhile is not lost.
            context.queue.again.discard(chat_id)
            try:
                async with context.thread_lock(chat_id):
                    if not context.stopping:
                        await ServerRecovery(context).go_on(chat_id, overdue)
            except Exception as error:  # a store that is locked for a moment: the sweep comes again
                why = GraphflowError(f"{type(error).__name__}: {error}")
                if context.queue.pauses.failed(chat_id, why, context.clock.monotonic()):
                    log.exception("what is due on thread %s could not be done, and is tried again", chat_id)
            if chat_id not in context.queue.again:
                return
    finally:
        del context.queue.draining[chat_id]


class ServerRecovery(Recovery):
    """Recovery in a process that serves: any thread, under the agent it belongs to."""

    def __init__(self, context: ServiceContext) -> None:
        self.context, self.pauses = context, context.queue.pauses

    @property
    def takes_over(self) -> bool:  # type: ignore[override] # a setting here
        return self.context.settings.server.take_over

    @property
    def runs(self) -> LiveRuns:
        return self.context.runs

    @property
    def hold_ms(self) -> int:
        return self.context.settings.tools.hold_ms

    async def host(self, row: ThreadRow, queued: RunRequest | None = None) -> RunHost:
        context = self.context
        key = None if queued is None else queued.agent_key
        if key is not None and key in {agent.key for agent in context.agents.list()}:
            return (await context.ready_graph(key)).host
        return (await context.graph_of_thread(row.thread_id)).host

    async def preamble(self, queued: RunRequest) -> Sequence[Event]:
        said = () if queued.query is None else (queued.query,)
        begins = ChatStart(chat_id=queued.thread_id, chat_name=queued.title)
        return (*await announced(self.context, queued.thread_id, queued.run_id), *said, begins)

    def begun(self, position: int, queued: RunRequest, run: LiveRun) -> None:
        chat_id = queued.thread_id
        started = StartedRun(run=run, run_id=queued.run_id, chat_id=chat_id, request_id=queued.request_id)
        _settle(self.context, chat_id, position, started)

    def refused(self, position: int, queued: RunRequest, refusal: GraphflowError) -> None:
        super().refused(position, queued, refusal)
        _settle(self.context, queued.thread_id, position, refusal)


def _stopping() -> GraphflowError:
    return GraphflowError("the server stops; the input stays in the queue", code="shutting_down", retryAfterMs=1000)


async def withdraw_run(context: ServiceContext, thread_id: str, run_id: str) -> bool:
    """Takes the input of a run out of the queue; False when its run has begun.

    Raises:
        ThreadNotFound: `run_not_found` when the thread has no such run.
    """
    found = await find_queued(context, run_id)
    if found is not None and found.chat_id == thread_id:
        return await withdraw(context, found)
    if await context.store.thread(thread_id) is None:
        raise unknown_thread(thread_id)
    if await context.store.find_run(run_id) != thread_id:
        raise unknown_run(run_id)
    return False
