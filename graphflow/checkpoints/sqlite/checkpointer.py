"""`SqliteCheckpointer`: the embedded store, one file beside the program (spec 4.4).

Two threads lead to the file, each with its own connection: commits and all other changes go through one writer that batches
them (`writer_thread.py`), and everything that only reads goes through one reader (`reader_thread.py`). Readers never wait for the
writer (WAL). Several processes may use one file; fences and leases keep them apart (E2).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from graphflow.arguments import checked
from graphflow.checkpoints.commit_queue import Promise, QueuedCall
from graphflow.checkpoints.process_lock import OwnerLock
from graphflow.checkpoints.rows import Lineage, ListedRecord, Log, Record, Stored, ThreadFacts, ThreadRow
from graphflow.checkpoints.sql import changes as sql
from graphflow.checkpoints.sql.checkpointer import SqlCheckpointer
from graphflow.checkpoints.sql.statement import Work
from graphflow.checkpoints.sqlite import checkpoint_reader
from graphflow.checkpoints.sqlite.dialect import SQLITE
from graphflow.checkpoints.sqlite.driver import drive
from graphflow.checkpoints.sqlite.reader_thread import SqliteReaderThread
from graphflow.checkpoints.sqlite.schema import compact_file, has_document
from graphflow.checkpoints.sqlite.take import take as take_thread
from graphflow.checkpoints.sqlite.worker import Worker, closed, forked
from graphflow.checkpoints.sqlite.writer_thread import SqliteWriterThread
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

T = TypeVar("T")

_INDEX_USERS = (
    "CREATE INDEX IF NOT EXISTS threads_by_user ON threads (user_name, updated_at, id) WHERE user_name IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS runs_by_thread ON runs (thread)",
)
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def _index_users(db: sqlite3.Connection) -> None:
    for index in _INDEX_USERS:
        db.execute(index).close()


class SqliteCheckpointer(SqlCheckpointer):
    """A `Checkpointer` in one SQLite file; may be used from several event loops and threads.

    Args:
        path: the file; created with its folder if missing. Next to it are `-wal` and `-shm` while it is open, and
            the folder `.owners` while a process drives a thread.
        synchronous: `FULL` (default) keeps every acknowledged commit through a power failure; `NORMAL` keeps them
            through a crash of the process only and is faster for lone commits. `OFF` and `EXTRA` as in SQLite.
        busy_timeout_s: how long a transaction waits for another process's.
    """

    @checked
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
        self._dialect = SQLITE
        self.path = Path(path).absolute()
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._owner_lock = OwnerLock(self.path.with_name(self.path.name + ".owners"))
        self._opening = threading.Lock()
        self._writer: SqliteWriterThread | None = None
        self._reader: SqliteReaderThread | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._open = False
        self._closed = False
        self._users_are_indexed = False
        self._ringing: asyncio.AbstractEventLoop | None = None
        """The loop that will wake the writer's thread in its next turn."""

    def __repr__(self) -> str:
        return f"SqliteCheckpointer({str(self.path)!r})"

    # --- opening and closing ---

    async def setup(self, *, encrypted: bool = False) -> None:
        """Opens the file, makes or migrates its schema, and starts the threads; calling it again has no effect."""
        if self._owner_lock.forked:
            raise forked(self.path)
        with self._opening:
            if self._closed:
                raise closed(self.path)
            writer = self._writer
            if writer is None or writer.ended is not None:  # never opened, or that failed: try again
                writer = SqliteWriterThread(
                    self.path, synchronous=self._synchronous, busy_timeout_s=self._busy_timeout_s, encrypted=encrypted
                )
                self._writer, self._reader = writer, SqliteReaderThread(self.path, busy_timeout_s=self._busy_timeout_s)
                if self._end is not None:
                    self._end.detach()  # that of an opening that failed: nothing of it is left to end
                # A store that nobody closed still makes its queue durable, when it is collected or the interpreter
                # ends.
                self._end = weakref.finalize(self, _shut, (writer, self._reader), self._owner_lock)
                writer.start()
            reader = self._reader
            assert reader is not None
        await _result(writer, None)
        reader.start()
        self._open = True

    async def close(self) -> None:
        with self._opening:
            self._closed = True
        if self._writer is None or self._reader is None or self._owner_lock.forked:
            return
        await asyncio.get_running_loop().run_in_executor(None, _shut, (self._writer, self._reader), self._owner_lock)

    async def flush(self) -> None:
        if self._writer is not None:
            await _result(self._writer, None)

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a function that ran in a transaction of the writer, durably."""
        if not self._open:
            await self.setup()
        assert self._writer is not None
        result: T = await _result(self._writer, function)
        return result

    async def _visit(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a function that ran in one read transaction."""
        if not self._open:
            await self.setup()
        assert self._reader is not None
        result: T = await _result(self._reader, function)
        return result

    async def _read(self, make: Callable[[], Work[T]]) -> T:
        return await self._visit(lambda db: drive(db, make()))

    _ask = _read

    async def _change(self, make: Callable[[], Work[T]], *, forget: str | None = None) -> T:
        def change(db: sqlite3.Connection) -> T:
            result = drive(db, make())
            if forget is not None:
                self._forget(forget)
            return result

        return await self._write(change)

    _do = _change

    async def compact(self) -> None:
        await self.setup()
        await self.flush()
        # By a connection of its own: the writer's calls run in a transaction, where SQLite refuses VACUUM.
        await asyncio.to_thread(compact_file, self.path, busy_timeout_s=self._busy_timeout_s)

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        # Made with the first user and not by a migration: their pages would weigh much in the small store of one person.
        if not self._users_are_indexed:
            await self._write(_index_users)
            self._users_are_indexed = True
        return await self._change(lambda: sql.assign(thread_id, user, now=now))

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
            taken = take_thread(db, thread_id, owner, now, lease_ms, create=create, is_dead=is_dead)
            self._forget(thread_id)
            return taken

        def give_back(db: sqlite3.Connection) -> None:
            if taken is not None:
                drive(db, sql.release(thread_id, taken.fence))

        try:
            return await self._write(take)
        except asyncio.CancelledError:
            # The thread may be taken by now, or soon: nobody would drive it, yet its lease would be renewed.
            if self._writer is not None:
                self._writer.put(QueuedCall(asyncio.get_running_loop(), give_back))
            raise

    async def renew(self, owner: str, *, lease_until: int) -> None:
        await self._do(lambda: sql.renew(owner, lease_until))

    def _forget(self, thread_id: str) -> None:
        """In the writer's thread: what it remembers of the thread is out of date."""
        assert self._writer is not None
        self._writer.commits.epochs.pop(thread_id, None)

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

    def has_document(self, digest: str) -> bool:
        """Whether a document is stored: read from the file in the caller's thread, whether the store is open or not."""
        return has_document(self.path, digest, busy_timeout_s=self._busy_timeout_s)

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        return await self._visit(lambda db: checkpoint_reader.load(db, thread_id, checkpoint_id))

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        return await self._visit(lambda db: checkpoint_reader.read_logs(db, chain, logs))

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        return await self._visit(
            lambda db: checkpoint_reader.list_records(db, thread_id, before, limit, all_lineages=all_lineages)
        )  # fmt: skip


async def _result(worker: Worker, function: Callable[[sqlite3.Connection], Any] | None) -> Any:
    call = QueuedCall(asyncio.get_running_loop(), function)
    worker.put(call)
    return await call.future


def _shut(workers: Sequence[Worker], lock: OwnerLock) -> None:
    """Ends the threads, then the lock. Also when the object is collected or the interpreter ends without `close`."""
    if any(worker.is_current for worker in workers):
        # Collected in one of these threads, which can't wait for itself. They are daemons, so without somebody who waits
        # the interpreter could end before what is queued is durable; it waits for a thread that is none.
        threading.Thread(target=_shut, args=(workers, lock), name="graphflow-sqlite-end", daemon=False).start()
        return
    for worker in workers:
        worker.stop()
    lock.release()
