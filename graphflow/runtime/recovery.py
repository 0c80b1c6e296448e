"""What is due on threads that nobody drives: one implementation for the sweep of a server and for `app.recover` (E12).

On each thread comes first what came first: questions and timers whose time is over, signals, the run that a crash cut
off, then the oldest queued input. A thread that another process drives, or that waits for people, is left alone.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from graphflow.checkpoints.rows import Queued, ThreadRow
from graphflow.errors import GraphflowError, ThreadBusy
from graphflow.events import Event
from graphflow.runtime.launch import launch, launch_expired, launch_resume
from graphflow.runtime.queue_codec import decode_queued
from graphflow.runtime.recovery_pauses import RecoveryPauses
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.concurrency import TRIES, Audience, is_lost
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns
from graphflow.runtime.runs.remote_answer import queued_answer
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.signals import deliver_queued

ELSEWHERE = frozenset({"thread_busy", "thread_waiting", "fenced", "shutting_down", "answer_stale", "nothing_to_resume"})
"""Refusals that are nobody's failure: another has the thread, or will, or has done it since we looked."""
LATER = ELSEWHERE | {"store_failed", "connection"}
"""Refusals that change nothing: what is due stays due."""
PAGE = 100
"""Runs that are taken over at one look: the others of a dead process are left to other servers, or to the next look."""

log = logging.getLogger("graphflow.runtime")


class Recovery(ABC):
    """Does what is due on threads, in runs that no caller drives. A server and a library say which, and under which graph."""

    takes_over = False
    """Resumes every run that a crash cut off; else only those that something waits behind."""

    pauses: RecoveryPauses
    """Of the process, however many objects look after its threads."""

    @property
    @abstractmethod
    def runs(self) -> LiveRuns: ...

    @property
    @abstractmethod
    def hold_ms(self) -> int:
        """How long this process waits for answers to what its runs ask."""

    @abstractmethod
    async def host(self, row: ThreadRow, queued: RunRequest | None = None) -> RunHost | None:
        """What the thread, or the input that begins on it, runs under; None: it is left to others."""

    async def preamble(self, queued: RunRequest) -> Sequence[Event]:
        """What is sent before a queued input's run begins."""
        return ()

    def begun(self, position: int, queued: RunRequest, run: LiveRun) -> None:
        """The input at this position of its thread's queue has become a run."""
        log.debug("thread %s: run %s has left the queue", queued.thread_id, queued.run_id)

    def refused(self, position: int, queued: RunRequest, refusal: GraphflowError) -> None:
        """The input can never begin, and has left the queue."""
        log.warning("thread %s: run %s can't begin: %s", queued.thread_id, queued.run_id, refusal.message)

    def failed(self, thread_id: str, error: GraphflowError) -> None:
        """What is due on the thread can't be done for now."""
        is_new = self.pauses.failed(thread_id, error, self.runs.clock.monotonic())
        level = logging.WARNING if is_new else logging.DEBUG
        log.log(level, "thread %s: what is due can't be done, and is tried again: %s", thread_id, error.message)

    # --- finding

    async def due(self) -> dict[str, list[str]]:
        """Threads on which something may be due, each with the ids of the interrupts whose time is over."""
        found = await self.overdue()
        for thread_id in await self.runs.store.queues(self.runs.time.now_ms()):
            found.setdefault(thread_id, [])
        return {thread_id: overdue for thread_id, overdue in found.items() if not self._rests(thread_id)}

    async def overdue(self) -> dict[str, list[str]]:
        """Threads with questions and timers whose time is over: their interrupts' ids."""
        found: dict[str, list[str]] = {}
        for interrupt in await self.runs.store.due(self.runs.clock.now_ms()):
            found.setdefault(interrupt.thread_id, []).append(interrupt.interrupt_id)
        return found

    async def cut_off(self) -> list[str]:
        """Threads whose run lost its process."""
        # Those that rest must not fill the page.
        found = await self.runs.store.stopped(self.runs.time.now_ms(), limit=PAGE + len(self.pauses))
        return [thread_id for thread_id in found if not self._rests(thread_id)]

    def _rests(self, thread_id: str) -> bool:
        return self.pauses.rests(thread_id, self.runs.clock.monotonic())

    # --- doing

    async def go_on(self, thread_id: str, overdue: Sequence[str] = ()) -> LiveRun | None:
        """Does what comes first on the thread; the run that goes on or begins by it.

        The caller sees to it that nothing else in this process does the same for this thread at the same time.

        Args:
            overdue: interrupts whose time is over.

        Returns:
            None when nothing is due, when the thread is not free, or when it can't be done.
        """
        live = self.runs.by_thread.get(thread_id)
        # A waiting run of this process holds the thread, so it is given the expiry itself.
        if live is not None and not live.executor.ending:
            for interrupt_id in overdue:
                live.executor.expire(interrupt_id)
            return None
        for _ in range(TRIES):
            row = await self.runs.store.thread(thread_id)
            if row is None or self.runs.is_driven(row):
                self.pauses.done(thread_id)
                return None
            try:
                done = await self._first(row, overdue)
                if done is not None or not self._rests(thread_id):  # else it has failed just now
                    self.pauses.done(thread_id)
                return done
            except ThreadBusy as refusal:  # who had it may be gone again, and something else comes first now
                log.debug("thread %s: what is due waits on: %s", thread_id, refusal.message)
            except GraphflowError as refusal:
                if refusal.code in ELSEWHERE:
                    log.debug("thread %s: what is due waits on: %s", thread_id, refusal.message)
                else:
                    self.failed(thread_id, refusal)
                return None
        return None

    async def _first(self, row: ThreadRow, overdue: Sequence[str]) -> LiveRun | None:
        store, thread_id, hold_ms = self.runs.store, row.thread_id, self.hold_ms
        host = await self.host(row) if row.head is not None else None
        if host is not None:
            if overdue:
                return await launch_expired(host, thread_id, overdue, hold_ms=hold_ms)
            # Handed to a process that is gone; its caller may be gone too.
            audience = Audience(log=True, hold_ms=hold_ms)
            if (answered := await queued_answer(host, self.runs, thread_id, audience)) is not None:
                return self.runs.start(answered)
            if await store.queue(thread_id, kind="signal", limit=1):
                woken = await deliver_queued(host, self.runs, thread_id, hold_ms=hold_ms)
                if woken is not None:
                    return woken
        waiting = await self._next_input(thread_id)
        if host is not None and row.facts.status == "running" and (self.takes_over or waiting is not None):
            try:
                # One that was handed over has lost no process.
                # Nobody follows it here, so it is not held for answers: who waits for it is told at once that it asks.
                run = await launch_resume(host, thread_id, hold_ms=0, counted=row.owner is not None)
                run.unasked = True
                return run
            except GraphflowError as refusal:
                if refusal.code in LATER:
                    raise
                self.failed(thread_id, refusal)  # what waits behind it begins
        while waiting is not None:
            entry, queued = waiting
            if row.facts.status in ("waiting", "stopped") and queued.on_waiting != "cancel" and queued.holder is None:
                if row.facts.status == "waiting" or await store.open_interrupts(thread_id=thread_id, limit=1):
                    await store.park(thread_id, row.fence)
                    return None
            host = await self.host(row, queued)
            if host is None:
                return None
            try:
                # A run that was cut off and is still there could not go on.
                cut_off = row.facts.run_id if row.facts.status == "running" else None
                return await self._begin(host, entry, queued, cut_off)
            except GraphflowError as refusal:
                if refusal.code in LATER:
                    raise
                # It can never begin, and would block those behind it.
                await store.withdraw(thread_id, entry.position, run_id=queued.run_id)
                self.refused(entry.position, queued, refusal)
            waiting = await self._next_input(thread_id)
        return None

    async def _next_input(self, thread_id: str) -> tuple[Queued, RunRequest] | None:
        """The oldest queued input, unless a living caller drives it when its turn comes."""
        entries = await self.runs.store.queue(thread_id, kind="input", limit=1)
        if not entries:
            return None
        queued: RunRequest = decode_queued(entries[0])
        if queued.holder is not None and not await is_lost(self.runs, entries[0], queued):
            return None
        return entries[0], queued

    async def _begin(self, host: RunHost, entry: Queued, queued: RunRequest, cut_off: str | None) -> LiveRun:
        hold_ms = self.hold_ms if queued.hold_ms is None else queued.hold_ms
        request = msgspec.structs.replace(queued, hold_ms=hold_ms)
        preamble = await self.preamble(queued)
        run = await launch(host, request, preamble=preamble, consumes=entry.position, supersedes=cut_off)
        self.begun(entry.position, queued, run)
        return run
