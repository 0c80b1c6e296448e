"""Keeps the leases of the threads that this process has taken, and gives back what it could not give back in time (E2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import Fenced, GraphflowError
from graphflow.graph.engine.ports import Clock
from graphflow.runtime.runs.lease import Gate, ThreadLease
from graphflow.runtime.runs.store_time import Moment, StoreTime

LEASE_MS = 15_000
"""For how long a thread is taken, where the settings do not say otherwise."""


class LeaseKeeper:
    """Renews leases over one store. A store renews all leases of an owner at once, so a renewal names no thread.

    Args:
        lease_ms: for how long a thread is taken.
    """

    def __init__(self, store: Checkpointer, clock: Clock, store_time: StoreTime, lease_ms: Callable[[], int]) -> None:
        self._store, self._clock, self._time, self._lease_ms = store, clock, store_time, lease_ms
        self._owner = store.owner
        self.kept_now = 0
        """How many live runs and changes rely on renewals."""
        self.renewed_at = 0.0
        """When all leases were renewed last, or the first was taken: monotonic seconds."""
        self.owed: dict[str, int] = {}
        """Thread → fence of an epoch that ended when the store could not be written: the thread is still to be given back."""

    def lease_of(self, row: ThreadRow, lose: Callable[[Fenced], None], gate: Gate | None) -> ThreadLease:
        """The lease of the thread that was just taken.

        Args:
            lose: see `ThreadLease`.
        """
        lease = ThreadLease(
            self._time.here(row.lease_until), lambda: self._renewed(row), lose, uptime=self._time.uptime
        )
        if gate is not None:
            lease.guard(gate)
        return lease

    async def renew(self, leases: Iterable[ThreadLease]) -> None:
        """Renews every lease of this process.

        Args:
            leases: those of the live runs.
        """
        # Given back first, or they would be renewed with the others, and nobody could take them.
        await self.give_back(*self.owed)
        await self._time.measure()
        held = [lease for lease in leases if not lease.is_over(self._clock.now_ms())]
        until = await self.renew_all()
        # A process may stand still in the midst of this, and what it renews then is no longer its own. Those that have
        # run out by now are asked about one by one, when they want to act.
        for lease in held:
            if not lease.is_over(self._clock.now_ms()):
                lease.extend(self._time.here(until))

    def begin(self) -> None:
        """Somebody relies on renewals from now on."""
        if not self.kept_now:
            self.renewed_at = time.monotonic()
        self.kept_now += 1

    def end(self) -> None:
        self.kept_now -= 1

    @asynccontextmanager
    async def kept(self, pause_s: float) -> AsyncIterator[None]:
        """Keeps the leases of threads that no live run drives, while the block takes its time.

        Args:
            pause_s: time between two renewals.
        """

        async def renew() -> None:
            while True:
                await asyncio.sleep(pause_s)
                # A failed renewal is tried again well before the lease ends.
                with suppress(GraphflowError):
                    await self.renew_all()

        self.begin()
        task = asyncio.ensure_future(renew())  # noqa: TID251 - ended below
        try:
            yield
        finally:
            self.end()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def give_back(self, *thread_ids: str) -> None:
        """Releases what the ended epochs of these threads could not, as far as the store can be written again."""
        for thread_id in thread_ids:
            fence = self.owed.get(thread_id)
            if fence is None:
                continue
            with suppress(GraphflowError):
                await self._store.release(thread_id, fence)
                if self.owed.get(thread_id) == fence:  # no later epoch has come to owe its own meanwhile
                    del self.owed[thread_id]

    async def renew_all(self) -> int:
        """The new end of all leases of this process, by the store's time; on whatever event loop."""
        until = self._time.now_ms() + self._lease_ms()
        await self._store.renew(self._owner, lease_until=until)
        self.renewed_at = time.monotonic()
        return until

    async def _renewed(self, row: ThreadRow) -> Moment | None:
        """The new end of a lease that has run out, or None when another epoch of the thread has begun."""
        await self._time.measure()
        until = await self.renew_all()
        # Read after the renewal: from then on nobody else can take the thread unless it was taken before.
        found = await self._store.thread(row.thread_id)
        return self._time.here(until) if found is not None and found.fence == row.fence else None
