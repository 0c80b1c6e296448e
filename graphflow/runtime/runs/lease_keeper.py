"""Keeps the leases of the threads that this process has taken, and gives back what it could not give back in time (E2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import Fenced, GraphflowError
from graphflow.graph.engine.ports import Clock
from graphflow.runtime.runs.lease import Gate, ThreadLease

LEASE_MS = 15_000
"""For how long a thread is taken, where the settings do not say otherwise."""


class LeaseKeeper:
    """Renews leases over one store. A store renews all leases of an owner at once, so a renewal names no thread.

    Args:
        lease_ms: for how long a thread is taken.
    """

    def __init__(self, store: Checkpointer, clock: Clock, lease_ms: Callable[[], int]) -> None:
        self._store, self._clock, self._lease_ms = store, clock, lease_ms
        self._owner = store.owner
        self.owed: dict[str, int] = {}
        """Thread → fence of an epoch that ended when the store could not be written: the thread is still to be given back."""

    def lease_of(self, row: ThreadRow, lose: Callable[[Fenced], None], gate: Gate | None) -> ThreadLease:
        """The lease of the thread that was just taken.

        Args:
            lose: see `ThreadLease`.
        """
        lease = ThreadLease(row.lease_until, lambda: self._renewed(row), lose)
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
        now = self._clock.now_ms()
        held = [lease for lease in leases if lease.until >= now]
        until = await self._renew_all()
        # A process may stand still in the midst of this, and what it renews then is no longer its own. Those that have
        # run out by now are asked about one by one, when they want to act.
        after = self._clock.now_ms()
        for lease in held:
            if lease.until >= after:
                lease.extend(until)

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
                    await self._renew_all()

        task = asyncio.ensure_future(renew())  # noqa: TID251 - ended below
        try:
            yield
        finally:
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

    async def _renew_all(self) -> int:
        """The new end of all leases of this process, epoch ms."""
        until = self._clock.now_ms() + self._lease_ms()
        await self._store.renew(self._owner, lease_until=until)
        return until

    async def _renewed(self, row: ThreadRow) -> int | None:
        """The new end of a lease that has run out, or None when another epoch of the thread has begun."""
        until = await self._renew_all()
        # Read after the renewal: from then on nobody else can take the thread unless it was taken before.
        found = await self._store.thread(row.thread_id)
        return until if found is not None and found.fence == row.fence else None
