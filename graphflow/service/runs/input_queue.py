"""Inputs that wait for their turn: put into a thread's queue, begun in order, and reported with their position (spec 2.4, 3.1).

The queue is the store's, so it outlives every process. Whoever frees a thread begins the next input, and the sweep of every
server looks for threads that somebody freed and left: after a crash the run that was cut off goes on first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

import msgspec

from graphflow.checkpoints.checkpointer import owner_liveness
from graphflow.checkpoints.rows import Queued
from graphflow.errors import GraphflowError
from graphflow.events import Event
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.launch import launch, launch_resume
from graphflow.runtime.queue_codec import decode_queued, encode_queued
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.concurrency import HELD_MS
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.runtime.runs.signals import deliver_queued
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import PAGE, QueuedInput, find_queued
from graphflow.service.requests import checked_chat_id
from graphflow.service.uploads import announced

OBSERVE_S = 0.5
"""How often a process looks whether inputs that it waits for have left the queue through another process."""
FULL_RETRY_MS = 5_000
LATER = frozenset({"thread_busy", "thread_waiting", "fenced", "store_failed", "shutting_down", "connection"})
"""Refusals that leave an input in the queue: its turn will come."""

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
    if enqueued.chat_id not in context.queue.observed:
        task = asyncio.ensure_future(_observe(context, enqueued.chat_id))  # noqa: TID251 - ends with the last who waits
        context.queue.observed[enqueued.chat_id] = task
    # `wait`, not `await future`: a caller that is cancelled must not cancel the future for the others.
    await asyncio.wait((future,))
    return future.result()


async def _observe(context: ServiceContext, chat_id: str) -> None:
    """Reports to the waiters here that their input has left the queue, for as long as there are any."""
    try:
        while waited := {position for name, position in list(context.queue.turns) if name == chat_id}:
            try:
                entries = await context.store.queue(chat_id, kind="input", limit=PAGE)
            except GraphflowError:  # a store that is locked for a moment
                entries = None
            if entries is not None:
                # What left the queue without a run here was withdrawn, or begun by another process.
                for position in waited - {entry.position for entry in entries}:
                    _settle(context, chat_id, position, "gone")
            await asyncio.sleep(OBSERVE_S)
    finally:
        context.queue.observed.pop(chat_id, None)


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


def drain_soon(context: ServiceContext, chat_id: str) -> None:
    """Begins what is next on the thread, soon, if it is free."""
    if not context.queue.serving or context.stopping:
        return
    # Two drains of one thread would begin its inputs out of order; the running one looks once more instead.
    if chat_id in context.queue.draining:
        context.queue.again.add(chat_id)
        return
    task = asyncio.ensure_future(_drain(context, chat_id))  # noqa: TID251 - ended by `close`
    context.queue.draining[chat_id] = task


async def sweep(context: ServiceContext) -> None:
    """Looks at every thread with something queued that nobody drives."""
    for chat_id in await context.store.queues(context.clock.now_ms()):
        if chat_id not in context.runs.by_thread:
            await _signals(context, chat_id)
            drain_soon(context, chat_id)


async def close(context: ServiceContext) -> None:
    """Begins nothing any more; what waits stays in the store, and waiters here get the error."""
    context.queue.serving, context.queue.closed = False, True
    for chat_id, position in list(context.queue.turns):
        _settle(context, chat_id, position, _stopping())
    tasks = [*context.queue.draining.values(), *context.queue.observed.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(context: ServiceContext, chat_id: str) -> None:
    try:
        while True:
            # Discarded before the look, so a request that comes meanwhile is not lost.
            context.queue.again.discard(chat_id)
            try:
                async with context.thread_lock(chat_id):
                    await _next(context, chat_id)
            except Exception:  # a store that is locked for a moment: the sweep comes again
                log.exception("the next input of thread %s could not be begun", chat_id)
            if chat_id not in context.queue.again:
                return
    finally:
        del context.queue.draining[chat_id]


async def _next(context: ServiceContext, chat_id: str) -> None:
    first = await context.store.queued(chat_id)
    row = await context.store.thread(chat_id) if first is not None else None
    if first is None or row is None or context.stopping or context.runs.is_driven(row):
        return
    queued = decode_queued(Queued(thread_id=chat_id, position=first[0], kind="input", body=first[1], at=0))
    if queued.holder is not None and not await _is_lost(context, chat_id, queued.holder):
        return
    # The run that a crash cut off came before every queued input, so it goes first.
    if row.facts.status == "running" and await _goes_on(context, chat_id):
        return
    try:
        _settle(context, chat_id, first[0], await _begin(context, chat_id, queued, first[0]))
    except GraphflowError as refusal:
        if refusal.code in LATER:
            log.debug("thread %s: the next input waits on: %s", chat_id, refusal.message)
            return
        log.warning("thread %s: run %s can't begin: %s", chat_id, queued.run_id, refusal.message)
        # It can never begin, and would block those behind it.
        await context.store.withdraw(chat_id, first[0], run_id=queued.run_id)
        _settle(context, chat_id, first[0], refusal)
        context.queue.again.add(chat_id)


async def _goes_on(context: ServiceContext, chat_id: str) -> bool:
    """Whether a run that a crash cut off goes on, or will: its input was there before those that wait."""
    try:
        graph = await context.graph_of_thread(chat_id)
        await launch_resume(graph.host, chat_id, hold_ms=context.settings.tools.hold_ms)
    except GraphflowError as refusal:
        if refusal.code not in LATER:
            log.warning("thread %s: its run can't go on, so the next input begins: %s", chat_id, refusal.message)
            return False
    return True


async def _begin(context: ServiceContext, chat_id: str, queued: RunRequest, position: int) -> StartedRun:
    graph = await _graph(context, chat_id, queued.agent_key)
    preamble: list[Event] = [*await announced(context, chat_id, queued.run_id)]
    if queued.query is not None:
        preamble.append(queued.query)
    hold_ms = context.settings.tools.hold_ms if queued.hold_ms is None else queued.hold_ms
    request = msgspec.structs.replace(queued, hold_ms=hold_ms)
    run = await launch(graph.host, request, preamble=preamble, consumes=position)
    return StartedRun(run=run, run_id=queued.run_id, chat_id=chat_id, request_id=queued.request_id)


async def _graph(context: ServiceContext, chat_id: str, agent_key: str | None) -> CompiledGraph:
    if agent_key is not None and agent_key in {agent.key for agent in context.agents.list()}:
        return context.graph(agent_key)
    return await context.graph_of_thread(chat_id)


async def _is_lost(context: ServiceContext, chat_id: str, holder: str) -> bool:
    """Whether a caller that wanted to drive its run itself is surely gone, or did not take its turn."""
    store = context.store
    liveness = owner_liveness(store)
    if liveness is not None and liveness.is_dead(holder):
        return True
    entries = await store.queue(chat_id, kind="input", limit=1)
    row = await store.thread(chat_id)
    # The clock of a turn starts when the input is queued or when the thread was last used, whichever is later.
    since = max(entries[0].at if entries else 0, row.facts.updated_at if row is not None else 0)
    return context.clock.now_ms() - since > HELD_MS


async def _signals(context: ServiceContext, chat_id: str) -> None:
    if await context.store.queue(chat_id, kind="signal", limit=1):
        graph, hold = await context.graph_of_thread(chat_id), context.settings.tools.hold_ms
        await deliver_queued(graph.host, context.runs, chat_id, hold_ms=hold)


def _stopping() -> GraphflowError:
    return GraphflowError("the server stops; the input stays in the queue", code="shutting_down", retryAfterMs=1000)


async def withdraw_run(context: ServiceContext, thread_id: str, run_id: str) -> bool:
    """Takes the input of a run out of the queue; False when it is not there (any more)."""
    checked_chat_id(thread_id, "threadId")
    found = await find_queued(context, run_id)
    return found is not None and found.chat_id == thread_id and await withdraw(context, found)
