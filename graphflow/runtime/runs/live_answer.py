"""Answers to a run that another task of this process drives, while other branches of it work (E12).

The answers are fed to that run, and their caller waits with it: the thread is not taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from graphflow.capabilities import By
from graphflow.errors import AnswerRefused, ThreadBusy
from graphflow.events import Event
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.runs.answer import answer
from graphflow.runtime.runs.answer_checks import check_answers
from graphflow.runtime.runs.answer_delivery import feed_answers, stale
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_runs import POLL_S, LiveRun, LiveRuns, PreparedRun
from graphflow.runtime.runs.outbox import Outbox
from graphflow.runtime.runs.preconditions import overdue_in
from graphflow.runtime.runs.remote_answer import RemoteRun, hand_over
from graphflow.runtime.runs.run_host import RunHost

T = TypeVar("T")
TRIES = 40
"""How often a caller looks for the run of another caller of this process that is taking the thread just now."""


class JoinedRun:
    """A run that was given answers, and that somebody else drives."""

    def __init__(self, runs: LiveRuns, live: LiveRun, tap: Tap | None) -> None:
        self._runs, self._live, self._tap = runs, live, tap

    async def result(self) -> RunResult:
        """The outcome, once the run has ended or waits.

        Raises:
            GraphflowError: the store failed.
        """
        live = self._live
        await _rest(self._runs, live)
        executor = live.executor
        if executor.error is not None:
            raise executor.error
        return result_from(executor.plan, executor.machine, executor.thread_id, executor.checkpoint_id)

    async def events(self) -> AsyncGenerator[Event, None]:
        """What the run sends from the answers on, until it has ended or waits; leaving it does not end the run."""
        tap = self._tap
        assert tap is not None
        rest = asyncio.ensure_future(self.result())  # noqa: TID251 - awaited or cancelled below
        rest.add_done_callback(lambda _: tap.end())
        try:
            async for event in tap.outbox:
                yield event
            await rest
        finally:
            tap.end()
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)


class Tap:
    """A second reader of a run that its driver reads, on the event loop of that reader.

    It gets no event that the driver's consumer might never get: an event after the lease waits for the lease to be
    confirmed (see `lease`).
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._held: list[Event] = []
        self._live: LiveRun | None = None

    def attach(self, live: LiveRun) -> None:
        """Begins to read; called on the run's loop."""
        events, lease = live.executor.events, live.lease
        first = events.sink
        self._live = live

        def both(event: Event) -> None:
            if first is not None:
                first(event)
            if self._live is not None:
                self._held.append(event)
                if lease is None or not lease.is_over(event.timestamp):
                    self._flush()

        events.sink = both

    def end(self) -> None:
        """Reads no more; the outbox ends after what it has."""
        live, self._live = self._live, None
        if live is not None and live.executor.error is None:
            self._flush()
        self._loop.call_soon_threadsafe(self.outbox.close)

    def _flush(self) -> None:
        held, self._held = self._held, []
        for event in held:
            if self._loop is _running_loop():
                self.outbox.pass_on(event)
            else:
                self._loop.call_soon_threadsafe(self.outbox.pass_on, event)


async def answer_or_join(
    host: RunHost, thread_id: str, answers: Any, by: By = None, audience: Audience = NOBODY
) -> PreparedRun | JoinedRun | RemoteRun:
    """A run that begins with the answers, or the run of another caller or process that was given them.

    Raises:
        AnswerRefused: unknown, stale, ambiguous or ill-typed; nothing has changed.
        ThreadBusy: other callers take the thread again and again.
    """
    runs = host.need_runs()
    await runs.ready()
    for attempt in range(TRIES):
        home = runs.registry.home_of(thread_id)
        if home is not None:
            tap = None if audience.outbox is None else Tap(audience.outbox)
            live = await _on(home.loop, _feed(host, home, thread_id, answers, by, tap))
            if live is not None:
                return JoinedRun(home, live, tap)
        try:
            return await answer(host, thread_id, answers, by, audience)
        except ThreadBusy:
            row = await runs.store.thread(thread_id)
            if row is not None and row.owner not in (None, runs.owner):
                return await hand_over(host, thread_id, answers, by, audience=audience)
            # Another caller of this process has taken the thread, and its run is about to be live.
            if attempt == TRIES - 1 or row is None:
                raise
        await runs.changed(thread_id, POLL_S)
    raise AssertionError("the last attempt gives or raises")


async def _feed(host: RunHost, runs: LiveRuns, thread_id: str, answers: Any, by: By, tap: Tap | None) -> LiveRun | None:
    """Gives the live run the answers; None when it has ended, or only waits: then the thread is taken from it."""
    live = await runs.settled(thread_id)
    if live is None or live.executor.machine.status != "running":
        return None
    executor = live.executor
    # What is due happens first; an answer to it is then stale (E12).
    for interrupt_id in overdue_in(executor.machine, host.clock.now_ms()):
        executor.expire(interrupt_id)
    if executor.ending:
        return None
    try:
        checked = check_answers(executor.machine, answers, by, executor.plan.bounds)
    except AnswerRefused as refusal:
        raise await stale(runs.store, thread_id, refusal) from None
    if tap is not None:
        tap.attach(live)
    feed_answers(executor, checked, by)
    return live


async def _rest(runs: LiveRuns, live: LiveRun) -> None:
    """Returns when the run is over, or when its process holds it for further answers, which are durable questions then."""
    executor = live.executor
    while not live.over.is_set() and not runs.loop.is_closed():
        if executor.machine.status == "waiting" and executor.waiters.would_hold() and not executor.ending:
            await _on(runs.loop, executor.flush())
            return
        # Not awaited on the run's own loop, which may end as soon as its run does, and would cancel this.
        await (runs.changed(live.thread_id, POLL_S) if runs.loop is _running_loop() else asyncio.sleep(POLL_S))


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, run on the event loop that it belongs to."""
    if loop is _running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
