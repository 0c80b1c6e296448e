"""`SqliteCheckpointer`: the embedded store, one file beside the program (spec 4.4).

Three ways lead to the file, each by its own connection: commits and all other changes go through one writer thread
that batches them (`_sqlite_writer`), loads through one reader thread that takes a whole load in one hop
(`_sqlite_lane`), and lists of threads and interrupts through aiosqlite. Readers never wait for the writer (WAL). Several
processes may use one file; fences and leases keep them apart (E2).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import export, pruning
from graphflow.checkpoints.commit_queue import Call, Promise
from graphflow.checkpoints.process_lock import OwnerLock
from graphflow.checkpoints.rows import (
    Keep,
    Lineage,
    ListedRecord,
    Log,
    OpenInterrupt,
    Pruned,
    Queued,
    Record,
    Rewrite,
    Span,
    Spent,
    Stored,
    ThreadFacts,
    ThreadRow,
    parse_cursor,
)
from graphflow.checkpoints.sqlite import changes, reader, rewriting
from graphflow.checkpoints.sqlite import pruning as _sqlite_pruning
from graphflow.checkpoints.sqlite.read_worker import Lane
from graphflow.checkpoints.sqlite.rows import (
    INTERRUPT_COLUMNS,
    QUEUE_COLUMNS,
    THREAD_COLUMNS,
    THREAD_TABLES,
    interrupt_row,
    pack,
    queue_row,
    read_thread,
    thread_row,
    unpack,
)
from graphflow.checkpoints.sqlite.schema import FAULTS, store_error
from graphflow.checkpoints.sqlite.worker import Worker, closed, forked
from graphflow.checkpoints.sqlite.writer import Writer
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

T = TypeVar("T")

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class SqliteCheckpointer:
    """A `Checkpointer` in one SQLite file; may be used from several event loops and threads.

    Args:
        path: the file; it and its folder are made when missing. Beside it lie `-wal` and `-shm` while it is open, and
            the folder `.owners` while somebody drives a thread.
        synchronous: `FULL` (default) keeps every acknowledged commit through a power failure; `NORMAL` keeps them
            through a crash of the process only and is faster for lone commits. `OFF` and `EXTRA` as in SQLite.
        busy_timeout_s: how long a transaction waits for another process's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"] = "FULL",
        busy_timeout_s: float = 5.0,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise ValueError(f"SqliteCheckpointer({str(path)!r}): name a file, or use MemoryCheckpointer")
        if synchronous not in _SYNCHRONOUS:
            raise ValueError(f"synchronous={synchronous!r}: one of {', '.join(_SYNCHRONOUS)}")
        self.path = Path(path).absolute()
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._owner_lock = OwnerLock(self.path.with_name(self.path.name + ".owners"))
        self._opening = threading.Lock()
        self._writer: Writer | None = None
        self._lane: Lane | None = None
        self._lists: aiosqlite.Connection | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._open = False
        self._closed = False
        self._ringing: asyncio.AbstractEventLoop | None = None
        """The loop that will wake the writer's thread in its next turn."""

    def __repr__(self) -> str:
        return f"SqliteCheckpointer({str(self.path)!r})"

    @property
    def owner(self) -> str:
        """`host/boot id/uuid` of this object; its OS lock is taken with the first thread and lasts until `close`."""
        return self._owner_lock.id

    def is_dead(self, owner: str) -> bool:
        """Whether this owner's process is surely gone; False when that can't be known."""
        return self._owner_lock.is_dead(owner)

    # --- opening and closing ---

    async def setup(self, *, sealed: bool = False) -> None:
        """Opens the file, makes or migrates its schema, and starts the threads; the second time is no effect."""
        if self._owner_lock.forked:
            raise forked(self.path)
        with self._opening:
            if self._closed:
                raise closed(self.path)
            writer = self._writer
            if writer is None or writer.ended is not None:  # never opened, or that failed: try again
                writer = Writer(
                    self.path, synchronous=self._synchronous, busy_timeout_s=self._busy_timeout_s, sealed=sealed
                )
                self._writer, self._lane = writer, Lane(self.path, busy_timeout_s=self._busy_timeout_s)
                if self._end is not None:
                    self._end.detach()  # that of an opening that failed: nothing of it is left to end
                self._end = weakref.finalize(self, _shut, (writer, self._lane), self._owner_lock)
                writer.start()
            lane = self._lane
            assert lane is not None
        await _ask(writer, None)
        lane.start()
        self._open = True

    async def close(self) -> None:
        with self._opening:
            self._closed = True
            lists, self._lists = self._lists, None
        if self._writer is None or self._lane is None or self._owner_lock.forked:
            return
        if lists is not None:
            await lists.close()
        await asyncio.get_running_loop().run_in_executor(None, _shut, (self._writer, self._lane), self._owner_lock)

    async def flush(self) -> None:
        if self._writer is not None:
            await _ask(self._writer, None)

    async def _change(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a function that ran in a transaction of the writer, durably."""
        if not self._open:
            await self.setup()
        assert self._writer is not None
        result: T = await _ask(self._writer, function)
        return result

    async def _visit(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a function that ran in one read transaction."""
        if not self._open:
            await self.setup()
        assert self._lane is not None
        result: T = await _ask(self._lane, function)
        return result

    async def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        """The rows of one statement that stands alone."""
        if self._lists is None or self._owner_lock.forked:
            # Whoever asks may be cancelled; a connection that is half open would be left to nobody.
            await asyncio.shield(asyncio.ensure_future(self._open_lists()))  # noqa: TID251 - `close` closes what it opens
        assert self._lists is not None
        try:
            return list(await self._lists.execute_fetchall(sql, parameters))
        except (*FAULTS, UnicodeEncodeError) as error:
            raise store_error(self.path, error, "read") from error
        except ValueError as error:  # aiosqlite's word for a closed connection
            raise closed(self.path) from error

    async def _open_lists(self) -> None:
        await self.setup()
        connection = aiosqlite.connect(self.path, timeout=self._busy_timeout_s, isolation_level=None)
        # A store that nobody closed must not keep the interpreter from ending.
        thread: Any = getattr(connection, "_thread", connection)
        thread.daemon = True
        try:
            await connection
            await connection.execute("PRAGMA query_only = ON")
        except FAULTS as error:
            await connection.close()
            raise store_error(self.path, error, "opened") from error
        with self._opening:
            surplus = connection if self._lists is not None or self._closed else None
            self._lists = self._lists or (None if self._closed else connection)
        if surplus is not None:  # two coroutines opened it at once, or the store was closed meanwhile
            await surplus.close()
        if self._closed:
            raise closed(self.path)

    # --- taking a thread (E2) ---

    async def take(
        self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True
    ) -> ThreadRow:  # fmt: skip
        taken: ThreadRow | None = None

        def take(db: sqlite3.Connection) -> ThreadRow:
            nonlocal taken
            taken = None
            if owner == self._owner_lock.id:
                self._owner_lock.acquire()
            is_dead = self._owner_lock.is_dead
            taken = changes.take(db, thread_id, owner, now, lease_ms, create=create, is_dead=is_dead)
            self._forget(thread_id)
            return taken

        def give_back(db: sqlite3.Connection) -> None:
            if taken is not None:
                changes.release(db, thread_id, taken.fence)

        try:
            return await self._change(take)
        except asyncio.CancelledError:
            # The thread may be taken by now, or soon: nobody would drive it, yet its lease would be renewed.
            if self._writer is not None:
                self._writer.put(Call(asyncio.get_running_loop(), give_back))
            raise

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        return await self._change(lambda db: changes.assign(db, thread_id, user, now))

    async def renew(self, owner: str, *, lease_until: int) -> None:
        await self._change(lambda db: changes.renew(db, owner, lease_until))

    async def release(self, thread_id: str, fence: int) -> None:
        def release(db: sqlite3.Connection) -> None:
            changes.release(db, thread_id, fence)
            self._forget(thread_id)

        await self._change(release)

    def _forget(self, thread_id: str) -> None:
        """In the writer's thread: what it remembers of the thread is out of date."""
        assert self._writer is not None
        self._writer.commits.lives.pop(thread_id, None)

    # --- commits (E3) ---

    def commit(
        self,
        thread_id: str,
        fence: int,
        expected_head: str | None,
        records: Sequence[Record],
        *,
        facts: ThreadFacts,
        begins: Lineage | None = None,
        release: bool = False,
        consumes: int | None = None,
        awaited: bool = False,
    ) -> Durable:
        """As the port says.

        Args:
            awaited: the caller goes no further before this is durable: it calls `hurry` next, or gives way to the loop.
        """
        writer = self._writer
        if writer is None:
            raise StoreError(f"the store {str(self.path)!r} is not open: take the thread before committing to it")
        loop = asyncio.get_running_loop()
        promise = Promise(loop, thread_id, fence, expected_head, records, facts, begins, release, consumes)
        if not awaited:
            writer.put(promise)
            return promise
        writer.entries.append(promise)
        if self._ringing is not loop:
            self._ringing = loop
            loop.call_soon(self._ring)
        return promise

    def hurry(self) -> None:
        """Writes what was committed with `awaited` in the caller's thread, where nobody else has to wait for that."""
        assert self._writer is not None
        self._writer.write_here(asyncio.get_running_loop())

    def _ring(self) -> None:
        self._ringing = None
        if self._writer is not None:
            self._writer.ring()

    # --- reading ---

    async def thread(self, thread_id: str) -> ThreadRow | None:
        return await self._visit(lambda db: read_thread(db, thread_id))

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        return await self._visit(lambda db: reader.load(db, thread_id, checkpoint_id))

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        return await self._visit(lambda db: reader.read_logs(db, chain, logs))

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        return await self._visit(
            lambda db: reader.list_records(db, thread_id, before, limit, all_lineages=all_lineages)
        )  # fmt: skip

    async def read_records(
        self, thread_id: str, *, lineage: int, after: int, upto: int
    ) -> list[Record]:  # fmt: skip
        return await self._visit(lambda db: reader.read_records(db, thread_id, lineage, after, upto))

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> list[Record]:
        return await self._visit(lambda db: reader.read_effects(db, thread_id, spans))

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> list[Spent]:
        return await self._visit(lambda db: reader.read_spent(db, since, until, agent_key, thread_id))

    async def threads(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
    ) -> list[ThreadRow]:
        where = _Where(("t.status", status), ("t.agent_key", agent_key), ("t.user_name", user))
        where.add("t.status IS NOT NULL")
        if cursor is not None:
            where.add("(t.updated_at, t.id) < (SELECT updated_at, id FROM threads WHERE id = ?)", pack(cursor))
        sql = f"SELECT {THREAD_COLUMNS} FROM {THREAD_TABLES} {where} ORDER BY t.updated_at DESC, t.id DESC LIMIT ?"  # noqa: S608 – constants only
        rows = await self._rows(sql, *where.values, limit)
        if not rows and cursor is not None and await self.thread(cursor) is None:
            raise refusals.unknown_thread(cursor)
        return [thread_row(row) for row in rows]

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
        where = _Where(("thread", pack(thread_id)), ("owner", owner), ("role", role), ("agent_key", agent_key))
        if user is not None:
            where.add("thread IN (SELECT id FROM threads WHERE user_name = ?)", user)
        if cursor is not None:
            at, interrupt_id = parse_cursor(cursor)
            where.add("(opened_at, id) > (?, ?)", at, pack(interrupt_id))
        sql = f"SELECT {INTERRUPT_COLUMNS} FROM interrupts {where} ORDER BY opened_at, id LIMIT ?"  # noqa: S608 – constants only
        return [interrupt_row(row) for row in await self._rows(sql, *where.values, limit)]

    async def due(self, before: int) -> list[OpenInterrupt]:
        sql = f"SELECT {INTERRUPT_COLUMNS} FROM interrupts WHERE due_at <= ? ORDER BY due_at, id"  # noqa: S608 – constants only
        return [interrupt_row(row) for row in await self._rows(sql, before)]

    async def find_run(self, run_id: str) -> str | None:
        rows = await self._rows("SELECT thread FROM runs WHERE run = ?", pack(run_id))
        return unpack(rows[0][0]) if rows else None

    async def document(self, digest: str) -> bytes | None:
        rows = await self._rows("SELECT data FROM documents WHERE digest = ?", digest)
        return rows[0][0] if rows else None

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[Queued]:
        where = _Where(("q.thread", pack(thread_id)), ("q.kind", kind), ("t.owner", owner))
        sql = f"SELECT {QUEUE_COLUMNS} FROM inputs q JOIN threads t ON t.id = q.thread {where} ORDER BY q.position LIMIT ?"  # noqa: S608 – constants only
        return [queue_row(row) for row in await self._rows(sql, *where.values, limit)]

    async def queues(self, now: int) -> list[str]:
        sql = "SELECT DISTINCT t.id, t.owner, t.lease_until FROM inputs q JOIN threads t ON t.id = q.thread"
        rows = [(unpack(name), owner, until) for name, owner, until in await self._rows(sql)]
        return [name for name, owner, until in rows if owner is None or until <= now or self.is_dead(owner)]

    # --- forks, deletion, documents, queue ---

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        return await self._change(lambda db: changes.fork(db, checkpoint_id, source_id, thread_id, number, facts))

    async def delete_thread(self, thread_id: str) -> None:
        def delete(db: sqlite3.Connection) -> None:
            changes.delete_thread(db, thread_id)
            self._forget(thread_id)

        await self._change(delete)

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        def delete(db: sqlite3.Connection) -> None:
            _sqlite_pruning.delete_checkpoint(db, thread_id, checkpoint_id)
            self._forget(thread_id)

        await self._change(delete)

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        pruning.check_keep(thread_id, keep)
        run = self._visit if dry_run else self._change
        return await run(lambda db: _sqlite_pruning.prune(db, thread_id, keep, dry_run=dry_run))

    async def put_document(self, digest: str, document: bytes) -> None:
        await self._change(lambda db: changes.put_document(db, digest, document))

    async def put_note(self, name: str, note: bytes) -> None:
        await self._change(lambda db: rewriting.put_note(db, name, note))

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        return await self._change(lambda db: rewriting.swap_note(db, name, note, instead_of))

    async def note(self, name: str) -> bytes | None:
        return await self.document(rewriting.NOTE + name)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        return await self._change(lambda db: rewriting.rewrite(db, change, after, limit))

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        return await self._change(lambda db: changes.enqueue(db, thread_id, body, now, kind, run_id))

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        return await self._change(lambda db: changes.withdraw(db, thread_id, position, run_id))

    async def dequeue(self, thread_id: str) -> bytes | None:
        return await self._change(lambda db: changes.dequeue(db, thread_id))

    # --- export ---

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        copy = await self._visit(lambda db: reader.copy_thread(db, thread_id))
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
        return await self._change(lambda db: changes.import_thread(db, exported, thread_id, change))


class _Where:
    """A WHERE clause of the conditions that were given."""

    def __init__(self, *equal: tuple[str, Any]) -> None:
        self._parts: list[str] = []
        self.values: list[Any] = []
        for column, value in equal:
            if value is not None:
                self.add(f"{column} = ?", value)

    def add(self, condition: str, *values: Any) -> None:
        self._parts.append(condition)
        self.values.extend(values)

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self._parts)}" if self._parts else ""


async def _ask(worker: Worker, function: Callable[[sqlite3.Connection], Any] | None) -> Any:
    call = Call(asyncio.get_running_loop(), function)
    worker.put(call)
    return await call.future


def _shut(workers: Sequence[Worker], lock: OwnerLock) -> None:
    """Ends the threads, then the lock. Also when the object is collected or the interpreter ends without `close`."""
    for worker in workers:
        worker.stop()
    lock.release()
