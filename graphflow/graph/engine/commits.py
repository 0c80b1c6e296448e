"""The commits of one life: written in order, and what follows each is said once it is durable (E1, E7)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import Interrupt, Patch
from graphflow.graph.engine.announcements import After, count_after, events_after
from graphflow.graph.engine.plan_events import PlanEvents

if TYPE_CHECKING:
    from graphflow.graph.engine.executor import Executor
    from graphflow.graph.engine.ports import Journal

GIVE_WAY_S = 0.001
"""Seconds for which a run may keep the event loop while its commits are written in the loop's thread."""


class Commits:
    """What one life has written.

    Args:
        checkpoint_id: the newest checkpoint, the parent of the next.
    """

    def __init__(self, executor: Executor, journal: Journal | None, checkpoint_id: str | None) -> None:
        self.executor, self._journal = executor, journal
        executor.events.tasks = PlanEvents.of(executor)
        self.checkpoint_id = checkpoint_id
        self.pending: deque[After] = deque()
        """Commits that are not known to be durable, oldest first."""
        self.paused = False
        """Whether the last commit gave the thread back and knew the number of `run.waiting`."""
        self._gave_way = 0.0
        """When a run whose commits were written at once last let the event loop turn."""

    def write(
        self, commit: Commit, prepared: Any, requests: list[Interrupt], finished: str | None, *, begins: bool
    ) -> None:
        """Queues a record, and notes what is to be said once it is durable.

        Args:
            prepared: what the journal made of the commit; unused without a journal.
            requests: questions that it opens.
            finished: how the run is over with it, if it is.
            begins: whether its tick sets anything in motion.
        """
        if (tasks := self.executor.events.tasks) is not None:
            tasks.tell()
        after = After(commit, None, requests, finished, self.checkpoint_id)
        if self._journal is not None:
            executor = self.executor
            pauses = executor.machine.status == "waiting"
            self.paused = pauses and not begins and executor.rests()
            release = finished is not None or self.paused
            tail = 0
            if release:
                tail = sum(count_after(a) for a in self.pending) + count_after(after) + commit.checkpoint + pauses
            after.durable = self._journal.write(prepared, executor.events.taken(), executor.seq, tail, release)
            if commit.checkpoint:
                self.checkpoint_id = commit.id
        self.pending.append(after)

    def announce(self) -> None:
        """Sends what follows each durable commit, in the order of the commits."""
        executor, pending = self.executor, self.pending
        if not pending:
            return  # the store's late word about a life that is over, which may be gone
        while pending:
            after = pending[0]
            durable = after.durable
            if durable is not None:
                if not durable.done:
                    if not after.awaited:  # only the first is listened to: what comes after it is done later
                        after.awaited = True
                        durable.when_done(self.announce)
                    return
                failure = durable.error
                if failure is not None:
                    executor.store_failed(failure)
                    return
            pending.popleft()
            machine = after.commit.machine or executor.machine
            for event in events_after(after, machine):
                executor.events.emit_at(event, after.commit.at)
        executor.wake()

    async def acknowledged(self, but: int = 0) -> None:
        """Waits until every commit so far is durable, but for the newest `but`."""
        while len(self.pending) > but and self.executor.error is None:
            await self.executor.rest()

    async def acknowledged_soon(self) -> None:
        """As `acknowledged`, by the shortest way that the store knows; the run goes no further before."""
        executor = self.executor
        if self._journal is not None and not executor.tasks.running:
            self._journal.hurry()
        if self.pending or executor.clock.monotonic() - self._gave_way > GIVE_WAY_S:
            await (self.acknowledged() if self.pending else asyncio.sleep(0))
            self._gave_way = executor.clock.monotonic()

    async def pause(self) -> int:
        """Gives the thread back, unless the last commit did; the time of `run.waiting`.

        It takes a record of what was sent since the last one: the commit that opened the questions could not know what
        nodes would still send before they were left (E1).
        """
        executor = self.executor
        if self.paused:
            return executor.machine.last_at
        at = max(executor.clock.now_ms(), executor.machine.last_at)
        if self._journal is not None:
            machine = executor.machine
            commit = Commit(
                executor.ids.new_id(), at, "paused", False, Patch({}, {}, {}), before=machine, machine=machine
            )
            prepared = self._journal.prepare(commit)
            await self._journal.write(prepared, executor.events.taken(), executor.seq, 1, True)
        return at
