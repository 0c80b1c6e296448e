"""Runs that their caller drives: to their end, or as a stream at the consumer's pace; whoever leaves cancels (E18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager

from graphflow.errors import Fenced, ThreadBusy
from graphflow.events import Event
from graphflow.graph.engine.executor import Executor
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.runs.concurrency import Audience
from graphflow.runtime.runs.live_answer import JoinedRun
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.outbox import Outbox
from graphflow.runtime.runs.remote_answer import RemoteRun


async def finish(preparing: Awaitable[PreparedRun | JoinedRun | RemoteRun]) -> RunResult:
    """The run's outcome; cancelling the caller cancels the run."""
    with _thread_kept():
        prepared = await preparing
        if isinstance(prepared, JoinedRun | RemoteRun):
            return await prepared.result()
        executor = prepared.run.executor
        # In a task of its own, so that the run hears of a cancellation before the code of its nodes does.
        await _ended(executor, asyncio.ensure_future(_drive(prepared)))  # noqa: TID251 - `_ended` awaits it
    return result_from(executor.plan, executor.machine, executor.thread_id, executor.checkpoint_id, executor.run.cause)


async def _drive(prepared: PreparedRun) -> None:
    # Without a store nobody else can drive the thread: no lease, nothing to give back.
    if prepared.runs is None:
        prepared.before()
        await prepared.run.executor.drive(prepared.tick)
    else:
        await prepared.runs.drive(prepared)


async def streamed(
    prepare: Callable[[Audience], Awaitable[PreparedRun | JoinedRun | RemoteRun]],
) -> AsyncGenerator[Event, None]:
    """The run's events; closing the stream cancels the run, unless somebody else drives it."""
    outbox = Outbox()
    with _thread_kept():
        prepared = await prepare(Audience(outbox))
    if isinstance(prepared, JoinedRun | RemoteRun):
        async with aclosing(prepared.events()) as events:
            async for event in events:
                yield event
        return
    executor = prepared.run.executor
    task = asyncio.ensure_future(_drive(prepared))  # noqa: TID251 - `_ended` awaits it
    # The consumer awaits the outbox, not the task, so the end of the task has to end the iteration.
    task.add_done_callback(lambda _: outbox.close())
    try:
        async for event in outbox:
            yield event
        # All events are delivered; now the consumer gets the run's error, if any.
        with _thread_kept():
            await _ended(executor, task)
    finally:
        # The consumer left, which cancels an attached run (E18); its cleanup ends before the stream does.
        if not task.done():
            await _left(executor, task)


@contextmanager
def _thread_kept() -> Iterator[None]:
    """Raises `ThreadBusy` where the run has lost its thread to another process: callers know no fences (E2)."""
    try:
        yield
    except Fenced as lost:
        raise ThreadBusy(
            f"the run ended without a result: {lost.message}; look at the thread before you send the input again",
            **{"retryAfterMs": 1000, **lost.detail},
        ) from lost


async def _ended(executor: Executor, task: asyncio.Task[None]) -> None:
    """Returns when the task that drives the run has ended; cancelling the caller ends the run."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await _left(executor, task)
        raise


async def _left(executor: Executor, task: asyncio.Task[None]) -> None:
    """Ends a run whose caller leaves, and returns when its nodes have ended."""
    executor.leave()
    insists: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as again:  # whoever insists also cancels what the nodes still clean up
            insists = again
            task.cancel()
    if not task.cancelled():
        task.exception()  # the caller hears of the cancellation, not of how that went
    if insists is not None:
        raise insists
