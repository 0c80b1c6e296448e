"""What the stores on a database have in common: every method of the port that is not hot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from graphflow.checkpoints import export, pruning
from graphflow.checkpoints.process_lock import OwnerLock
from graphflow.checkpoints.rows import (
    Keep,
    Log,
    Pruned,
    Rewrite,
    ThreadFacts,
    ThreadRow,
)
from graphflow.checkpoints.sql import changes, lists, rewriting, transfer, trees
from graphflow.checkpoints.sql import pruning as sql_pruning
from graphflow.checkpoints.sql.statement import Dialect, Work

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    run: Literal["_read", "_ask", "_change", "_do"], work: Callable[P, Work[T]]
) -> Callable[Concatenate[SqlCheckpointer, P], Coroutine[Any, Any, T]]:
    """A method of the port that is one piece of work of the same arguments, run by this method of the store."""

    async def method(self: SqlCheckpointer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await getattr(self, run)(lambda: work(*args, **kwargs))
        return result

    return method


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

    assign = _method("_do", changes.assign)

    async def release(self, thread_id: str, fence: int) -> None:
        await self._do(lambda: changes.release(thread_id, fence), forget=thread_id)

    # --- reading

    thread = _method("_ask", lists.thread)

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    read_records = _method("_read", trees.read_records)
    read_effects = _method("_read", trees.read_effects)
    spent = _method("_ask", lists.spent)
    threads = _method("_ask", lists.threads)
    open_interrupts = _method("_ask", lists.open_interrupts)
    due = _method("_ask", lists.due)
    find_run = _method("_ask", lists.find_run)
    document = _method("_ask", lists.document)
    note = _method("_ask", lists.note)

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        # Peeks only: the entry leaves with the commit that consumes it, so a crash in between loses nothing.
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    queue = _method("_ask", lists.queue)
    queue_size = _method("_ask", lists.queue_size)

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

    put_document = _method("_do", changes.put_document)
    put_note = _method("_do", changes.put_note)
    swap_note = _method("_change", changes.swap_note)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        return await self._change(lambda: rewriting.rewrite(self._dialect, change, after, limit))

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        return await self._change(lambda: changes.enqueue(self._dialect, thread_id, body, now, kind, run_id))

    withdraw = _method("_change", changes.withdraw)

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
