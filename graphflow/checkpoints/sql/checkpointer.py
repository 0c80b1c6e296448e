"""What the stores on a database have in common: every method of the port that is not hot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from graphflow.checkpoints import export, pruning
from graphflow.checkpoints.process_lock import OwnerLock
from graphflow.checkpoints.rows import (
    Keep,
    Log,
    OpenInterrupt,
    Pruned,
    Queued,
    Record,
    Rewrite,
    Span,
    Spent,
    ThreadFacts,
    ThreadRow,
)
from graphflow.checkpoints.sql import changes, lists, rewriting, transfer, trees
from graphflow.checkpoints.sql import pruning as sql_pruning
from graphflow.checkpoints.sql.statement import Dialect, Work

T = TypeVar("T")


class SqlCheckpointer(ABC):
    """The port but for opening, taking, committing and loading, which each database does in its own way.

    Work is passed as a function that makes it, for it may have to be done again.
    """

    _dialect: Dialect
    _owner_lock: OwnerLock

    @abstractmethod
    async def _read(self, make: Callable[[], Work[T]]) -> T:
        """The result of work that reads; all of it sees one moment."""

    @abstractmethod
    async def _ask(self, make: Callable[[], Work[T]]) -> T:
        """The result of work that reads; each step stands alone."""

    @abstractmethod
    async def _change(self, make: Callable[[], Work[T]], *, forget: str | None = None) -> T:
        """The result of work in one transaction, durably and after all that was queued before.

        Args:
            forget: the thread of which the store no longer knows where it stands.
        """

    @abstractmethod
    async def _do(self, make: Callable[[], Work[T]], *, forget: str | None = None) -> T:
        """The same for work whose steps are transactions of their own, and of which twice is the same as once."""

    @abstractmethod
    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]: ...

    # --- owners

    @property
    def owner(self) -> str:
        """`host/boot id/uuid` of this object; its OS lock is taken with the first thread and lasts until `close`."""
        return self._owner_lock.id

    def is_dead(self, owner: str) -> bool:
        """Whether this owner's process is surely gone; False when that can't be known, as of another host."""
        return self._owner_lock.is_dead(owner)

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        return await self._do(lambda: changes.assign(thread_id, user, now))

    async def release(self, thread_id: str, fence: int) -> None:
        await self._do(lambda: changes.release(thread_id, fence), forget=thread_id)

    # --- reading

    async def thread(self, thread_id: str) -> ThreadRow | None:
        return await self._ask(lambda: lists.thread(thread_id))

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    async def read_records(self, thread_id: str, *, lineage: int, after: int, upto: int) -> list[Record]:
        return await self._read(lambda: trees.read_records(thread_id, lineage, after, upto))

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> list[Record]:
        return await self._read(lambda: trees.read_effects(thread_id, spans))

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> list[Spent]:
        return await self._ask(lambda: lists.spent(since, until, agent_key, thread_id))

    async def threads(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
    ) -> list[ThreadRow]:
        return await self._ask(lambda: lists.threads(cursor, limit, status, agent_key, user))

    async def open_interrupts(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        role: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> list[OpenInterrupt]:
        return await self._ask(
            lambda: lists.open_interrupts(thread_id, owner, role, agent_key, user, cursor, limit)
        )  # fmt: skip

    async def due(self, before: int) -> list[OpenInterrupt]:
        return await self._ask(lambda: lists.due(before))

    async def find_run(self, run_id: str) -> str | None:
        return await self._ask(lambda: lists.find_run(run_id))

    async def document(self, digest: str) -> bytes | None:
        return await self._ask(lambda: lists.document(digest))

    async def note(self, name: str) -> bytes | None:
        return await self._ask(lambda: lists.note(name))

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        # Peeks only: the entry leaves with the commit that consumes it, so a crash in between loses nothing.
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[Queued]:
        return await self._ask(lambda: lists.queue(thread_id, kind, owner, limit))

    async def queue_size(self, kind: str) -> int:
        return await self._ask(lambda: lists.queue_size(kind))

    async def queues(self, now: int) -> list[str]:
        rows = await self._ask(lists.queues)
        # A dead owner's lease need not run out first (E2).
        return [name for name, owner, until in rows if owner is None or until <= now or self.is_dead(owner)]

    # --- changing

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        return await self._change(
            lambda: changes.fork(self._dialect, checkpoint_id, source_id, thread_id, number, facts)
        )  # fmt: skip

    async def delete_thread(self, thread_id: str) -> None:
        await self._change(lambda: changes.delete_thread(self._dialect, thread_id), forget=thread_id)

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        await self._change(
            lambda: sql_pruning.delete_checkpoint(self._dialect, thread_id, checkpoint_id), forget=thread_id
        )

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        pruning.check_keep(thread_id, keep)
        run = self._read if dry_run else self._change
        return await run(lambda: sql_pruning.prune(self._dialect, thread_id, keep, dry_run=dry_run))

    async def put_document(self, digest: str, document: bytes) -> None:
        await self._do(lambda: changes.put_document(digest, document))

    async def put_note(self, name: str, note: bytes) -> None:
        await self._do(lambda: changes.put_note(name, note))

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        return await self._change(lambda: changes.swap_note(name, note, instead_of))

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        return await self._change(lambda: rewriting.rewrite(self._dialect, change, after, limit))

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        return await self._change(lambda: changes.enqueue(self._dialect, thread_id, body, now, kind, run_id))

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        return await self._change(lambda: changes.withdraw(thread_id, position, run_id))

    async def dequeue(self, thread_id: str) -> bytes | None:
        return await self._change(lambda: changes.dequeue(self._dialect, thread_id))

    # --- export

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        copy = await self._read(lambda: transfer.copy_thread(self._dialect, thread_id))
        for line in export.to_lines(copy):
            yield line

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        exported = await export.from_lines(lines)
        return await self._change(lambda: transfer.import_thread(self._dialect, exported, thread_id, change))
