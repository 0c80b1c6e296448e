"""What the stores on a database have in common: every method of the port that is not hot."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.process_lock import OwnerLock
from graphflow.checkpoints.rows import (
    Keep,
    Log,
    Pruned,
    Rewrite,
    ThreadFacts,
    ThreadRow,
)
from graphflow.checkpoints.sql import changes, lists, trees
from graphflow.checkpoints.sql.statement import Dialect, Work

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    port: Callable[Concatenate[Checkpointer, P], Coroutine[Any, Any, T]],
    run: Literal["_read", "_ask", "_change", "_do"],
    work: Callable[P, Work[T]],
) -> Callable[Concatenate[SqlCheckpointer, P], Coroutine[Any, Any, T]]:
    """This method of the port as one piece of work of the same arguments, run by `run` of the store."""

    async def method(self: SqlCheckpointer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await getattr(self, run)(lambda: work(*args, **kwargs))
        return result

    functools.update_wrapper(method, port)
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

    assign = _method(Checkpointer.assign, "_do", changes.assign)

    describe = _method(Checkpointer.describe, "_change", changes.describe)

    async def release(self, thread_id: str, fence: int) -> None:
        await self._do(lambda: changes.release(thread_id, fence), forget=thread_id)

    # --- reading

    thread = _method(Checkpointer.thread, "_ask", lists.thread)

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    read_records = _method(Checkpointer.read_records, "_read", trees.read_records)
    read_effects = _method(Checkpointer.read_effects, "_read", trees.read_effects)
    spent = _method(Checkpointer.spent, "_ask", lists.spent)
    threads = _method(Checkpointer.threads, "_ask", lists.threads)
    open_interrupts = _method(Checkpointer.open_interrupts, "_ask", lists.open_interrupts)
    due = _method(Checkpointer.due, "_ask", lists.due)
    find_run = _method(Checkpointer.find_run, "_ask", lists.find_run)
    runs = _method(Checkpointer.runs, "_ask", lists.runs)
    document = _method(Checkpointer.document, "_ask", lists.document)
    note = _method(Checkpointer.note, "_ask", lists.note)

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        # Peeks only: the entry leaves with the commit that consumes it, so a crash in between loses nothing.
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    queue = _method(Checkpointer.queue, "_ask", lists.queue)
    unparked = _method(Checkpointer.unparked, "_ask", lists.unparked)
    thread_count = _method(Checkpointer.thread_count, "_ask", lists.thread_count)
    queue_size = _method(Checkpointer.queue_size, "_ask", lists.queue_size)

    still_queued = _method(Checkpointer.still_queued, "_ask", lists.still_queued)

    async def queues(self, now: int) -> list[str]:
        return await self._left(lambda: lists.queues(now))

    async def stopped(self, now: int, *, limit: int = 100) -> list[str]:
        return await self._left(lambda: lists.stopped(now, limit))

    async def _left(self, make: Callable[[], Work[tuple[list[str], list[str]]]]) -> list[str]:
        """Threads that no living owner drives."""
        found, owners = await self._ask(make)
        # A dead owner's lease need not run out first (E2).
        if dead := [owner for owner in owners if self.is_dead(owner)]:
            for owner in dead:
                await self._do(functools.partial(changes.lapse, owner))
            found, _ = await self._ask(make)
        return found

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
        from graphflow.checkpoints.sql import pruning  # here and below: a program that only runs loads no such work

        await self._change(lambda: pruning.delete_checkpoint(self._dialect, thread_id, checkpoint_id), forget=thread_id)

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        from graphflow.checkpoints.pruning import check_keep
        from graphflow.checkpoints.sql import pruning

        check_keep(thread_id, keep)
        run = self._read if dry_run else self._change
        return await run(lambda: pruning.prune(self._dialect, thread_id, keep, dry_run=dry_run))

    put_document = _method(Checkpointer.put_document, "_do", changes.put_document)
    put_note = _method(Checkpointer.put_note, "_do", changes.put_note)
    swap_note = _method(Checkpointer.swap_note, "_change", changes.swap_note)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        from graphflow.checkpoints.sql import rewriting

        return await self._change(lambda: rewriting.rewrite(self._dialect, change, after, limit))

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        return await self._change(lambda: changes.enqueue(self._dialect, thread_id, body, now, kind, run_id))

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        yield True

    park = _method(Checkpointer.park, "_change", changes.park)
    count_attempt = _method(Checkpointer.count_attempt, "_change", changes.count_attempt)
    withdraw = _method(Checkpointer.withdraw, "_change", changes.withdraw)

    async def dequeue(self, thread_id: str) -> bytes | None:
        return await self._change(lambda: changes.dequeue(self._dialect, thread_id))

    # --- export

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        from graphflow.checkpoints import export
        from graphflow.checkpoints.sql import transfer

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
        from graphflow.checkpoints.imports.readable import checked_copy
        from graphflow.checkpoints.sql import transfer

        exported = await checked_copy(lines)
        return await self._change(lambda: transfer.import_thread(self._dialect, exported, thread_id, change))
