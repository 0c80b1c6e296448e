"""What the memory store answers about queues, and about runs that lost their process."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graphflow.checkpoints import errors, export
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.memory.tables import Tables
from graphflow.checkpoints.rows import Queued, ThreadRow


class MemoryQueues:
    """The part of `MemoryCheckpointer` that looks at queues."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables = Tables()

    def _locked(self, *texts: str | None) -> threading.Lock:
        """The lock over everything that the store holds; refuses ids and names that a database could not keep."""
        check_text(*texts)
        return self._lock

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        with self._locked(thread_id, kind, run_id):
            if thread_id not in self._tables.threads:
                raise errors.unknown_thread(thread_id)
            if run_id is not None:
                self._tables.runs.setdefault(run_id, thread_id)
            return self._tables.queue.push(thread_id, export.QueuedEntry(body=body, at=now, kind=kind))

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[Queued]:
        with self._locked(thread_id, kind, owner):
            rows = self._tables.queue.rows(thread_id, kind)
            chosen = (row for row in rows if owner in (None, self._tables.threads[row.thread_id].owner))
            return [row for row, _ in zip(chosen, range(limit), strict=False)]

    async def thread_count(self, status: str) -> int:
        with self._lock:
            return sum(1 for thread in self._tables.threads.values() if thread.facts.status == status)

    async def queue_size(self, kind: str) -> int:
        with self._lock:
            return sum(1 for _ in self._tables.queue.rows(kind=kind))

    async def queues(self, now: int) -> list[str]:
        with self._lock:
            parked, found = self._tables.queue.parked, self._tables.queue.threads()
            rows = [(self._tables.threads[name], newest) for name, newest in found.items()]
            return [
                row.id
                for row, newest in rows
                if not row.is_driven(now) and parked.get(row.id, (row.fence, -1)) < (row.fence, newest)
            ]

    async def unparked(self, kind: str, *, limit: int = 1000) -> list[tuple[Queued, ThreadRow]]:
        with self._locked(kind):
            queue, threads = self._tables.queue, self._tables.threads
            chosen = (
                (row, self._tables.row(threads[row.thread_id]))
                for row in queue.rows(kind=kind)
                if not queue.is_parked_alone(row.position, threads[row.thread_id].fence)
            )
            return [found for found, _ in zip(chosen, range(limit), strict=False)]

    async def still_queued(self, first: int, last: int) -> set[int]:
        with self._lock:
            return {row.position for row in self._tables.queue.rows(kind="input") if first <= row.position <= last}

    async def park(self, thread_id: str, fence: int, *, position: int | None = None) -> None:
        with self._locked(thread_id):
            row = self._tables.threads.get(thread_id)
            if row is not None and row.fence == fence and row.facts.status in ("waiting", "stopped"):
                self._tables.queue.park(thread_id, fence, position)

    async def stopped(self, now: int, *, limit: int = 100) -> list[str]:
        with self._lock:
            rows = self._tables.threads.values()
            return [row.id for row in rows if row.facts.status == "running" and not row.is_driven(now)][:limit]

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        yield True

    async def count_attempt(self, thread_id: str, checkpoint_id: str) -> int:
        with self._locked(thread_id, checkpoint_id):
            row = self._tables.known(thread_id)
            row.attempts = checkpoint_id, row.attempts[1] + 1 if row.attempts[0] == checkpoint_id else 1
            return row.attempts[1]

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        with self._locked(thread_id, run_id):
            if not self._tables.queue.holds(thread_id, position):
                return False
            self._tables.queue.drop(position)
            if run_id is not None:
                self._tables.runs.pop(run_id, None)
            return True

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    async def dequeue(self, thread_id: str) -> bytes | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return entries[0].body if entries and await self.withdraw(thread_id, entries[0].position) else None
