"""The SQLite store's one writer: a thread that turns queued commits and calls into few transactions.

Event loops append to a queue and go on. The thread takes everything that is there into one transaction (group
commit), so one fsync serves many commits, and tells each loop once per transaction. If a transaction fails, its
entries are tried one by one, so that only the guilty one fails.

A lone run that waits for its commit and an event loop that has nothing else to do would only watch two threads wake each
other: `write_here` writes such a commit in the loop's own thread (ADR 0003 says when).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path

from graphflow.checkpoints.commit_queue import Entry, Promise, QueuedCall, deliver, fail, settle
from graphflow.checkpoints.sql.migrations import is_busy
from graphflow.checkpoints.sqlite.checkpoint_writer import SqliteCheckpointWriter
from graphflow.checkpoints.sqlite.schema import WAL_PAGES, open_writer, store_error
from graphflow.checkpoints.sqlite.worker import Worker
from graphflow.errors import GraphflowError, StoreError

MAX_BATCH = 1024
"""Entries per transaction: bounds how long the first of them waits."""

SLOW_TRANSACTION_S = 0.002
"""Seconds of a transaction in the loop's thread from which on the disk is too slow for that."""

RETRY_AFTER_COMMITS = 100
"""Commits between two tries on a slow or busy file, and between two looks of the thread at the log's length."""

MAX_BYTES_ON_LOOP = 64 * 1024
"""Bytes that are written in the loop's thread at most."""


class SqliteWriterThread(Worker):
    """Owns the writing connection and its thread, whose first act is to open the file."""

    def __init__(self, path: Path, *, synchronous: str, busy_timeout_s: float, encrypted: bool) -> None:
        super().__init__(path, "writer")
        self.commits = SqliteCheckpointWriter()
        self._turn = threading.Lock()
        """Held by whoever takes entries and writes them."""
        self._db: sqlite3.Connection | None = None
        self._on_loop = False
        """Whether the connection is set for `write_here`: it waits for no other process and folds no log in."""
        self._loop_transactions = 0
        """Transactions that `write_here` made."""
        self._left_to_thread = 0
        """Commits that are left to the thread before `write_here` is tried again."""
        self._encrypted = encrypted
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s

    def run(self) -> None:
        db = open_writer(
            self.path, synchronous=self._synchronous, busy_timeout_s=self._busy_timeout_s, encrypted=self._encrypted
        )
        self._db = db
        try:
            while self._step(db):
                pass
        finally:
            with self._turn:
                self._db = None
                _close(db)

    def _step(self, db: sqlite3.Connection) -> bool:
        """One transaction; False when the queue's end was reached."""
        self.wait()
        batch: list[Entry] = []
        ends = False
        with self._turn:
            while self.entries and len(batch) < MAX_BATCH and not ends:
                entry = self.entries.popleft()
                if entry is None:
                    ends = True
                else:
                    batch.append(entry)
            if batch:
                try:
                    # In this thread waiting for another process is fine; on the event loop (`write_here`) it is not.
                    self._configure(db, on_loop=False)
                    self._write(db, batch)
                except Exception as error:  # noqa: BLE001 – the thread must outlive any defect; the entries tell of it
                    self._fail(batch, error)
        # Outside of the turn: whoever hears of a commit may queue the next one at once.
        deliver(batch)
        return not ends

    def write_here(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the event loop: writes the queued commits in this thread, unless somebody could suffer from it.

        They are settled then. What is not written here the writer's thread writes.
        """
        batch: list[Promise] = []
        if self.ended is None and self._turn.acquire(blocking=False):
            try:
                run = self._lone_run(loop)
                if run and self._begin_here():
                    for _ in run:  # no more than these: other threads may have queued something since
                        self.entries.popleft()
                    batch = run
                    self._finish_here(batch)
            finally:
                self._turn.release()
        if batch:
            settle(batch)
        else:
            self.ring()

    def _lone_run(self, loop: asyncio.AbstractEventLoop) -> list[Promise]:
        """The queued commits, if one run alone is at work, the loop has nothing else to run, and it will surely not take long."""
        if self._left_to_thread:
            self._left_to_thread -= 1
            return []
        # A second run would wait for the disk together with this one, although it has work to do.
        if self._db is None or len(self.commits.epochs) > 1 or _is_busy(loop):
            return []
        run: list[Promise] = []
        size = 0
        for entry in list(self.entries):
            if type(entry) is not Promise or entry.loop is not loop or (run and entry.thread_id != run[0].thread_id):
                return []
            run.append(entry)
            size += sum(len(record.data) + sum(len(item.data) for item in record.items) for record in entry.records)
        return run if size <= MAX_BYTES_ON_LOOP else []

    def _begin_here(self) -> bool:
        """Begins a transaction, unless another process has the file's lock."""
        assert self._db is not None
        try:
            self._configure(self._db, on_loop=True)
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._left_to_thread = RETRY_AFTER_COMMITS
            return False
        return True

    def _finish_here(self, batch: list[Promise]) -> None:
        assert self._db is not None
        began = time.monotonic()
        try:
            self._transact(self._db, [*batch])
        except Exception as error:  # noqa: BLE001 – as in the thread: the entries tell of it
            self._fail([*batch], error)
        self._loop_transactions += 1
        if time.monotonic() - began > SLOW_TRANSACTION_S:
            self._left_to_thread = RETRY_AFTER_COMMITS
        elif self._loop_transactions % RETRY_AFTER_COMMITS == 0:
            self._left_to_thread = 1  # the thread's transaction folds the log into the file, if it has grown

    def _configure(self, db: sqlite3.Connection, *, on_loop: bool) -> None:
        # Remembered, since two PRAGMAs cost more than the transaction of a small commit.
        if on_loop is not self._on_loop:
            self._on_loop = on_loop
            db.execute(f"PRAGMA busy_timeout = {0 if on_loop else int(self._busy_timeout_s * 1000)}")
            db.execute(f"PRAGMA wal_autocheckpoint = {0 if on_loop else WAL_PAGES}")

    def _write(self, db: sqlite3.Connection, batch: list[Entry]) -> None:
        if all(type(entry) is QueuedCall and entry.function is None for entry in batch):
            return
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(batch, error)
            return
        self._transact(db, batch)

    def _transact(self, db: sqlite3.Connection, batch: list[Entry]) -> None:
        """The rest of a transaction that has begun."""
        try:
            self._apply(db, batch)
            db.execute("COMMIT")
            self.commits.confirm()
        except Exception as error:  # noqa: BLE001 – whatever it was, nothing of the batch may stay half written
            # Everything that this transaction taught us is gone with it, the heads of threads included.
            self._roll_back(db)
            if len(batch) == 1 or is_busy(error):
                self._fail(batch, error)
            else:
                # One by one, so that the commits of other threads do not fail for the one that broke a rule.
                for entry in batch:
                    self._write(db, [entry])

    def _apply(self, db: sqlite3.Connection, batch: list[Entry]) -> None:
        """All entries in order; neighbouring commits together."""
        run: list[Promise] = []
        for entry in batch:
            if type(entry) is Promise:
                run.append(entry)
                continue
            if run:
                self.commits.apply(db, run)
                run = []
            assert type(entry) is QueuedCall
            _call(db, entry)
        if run:
            self.commits.apply(db, run)

    def _roll_back(self, db: sqlite3.Connection) -> None:
        self.commits.forget()
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")

    def _fail(self, batch: list[Entry], error: Exception) -> None:
        for entry in batch:
            if type(entry) is Promise:
                self.commits.broken[entry.thread_id] = entry.fence
        if not isinstance(error, StoreError):
            known = store_error(self.path, error, "written")
            known.__cause__ = error
            error = known
        fail(batch, error)


def _is_busy(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop has anything else to run; yes, as far as one can't know (uvloop)."""
    ready = getattr(loop, "_ready", None)
    return ready is None or len(ready) > 1  # one is the call that wakes the thread, see `SqliteCheckpointer.commit`


def _call(db: sqlite3.Connection, call: QueuedCall) -> None:
    if call.function is None:
        return
    call.error = None
    # A call may refuse after it has written; commits of other threads share its transaction and must stay.
    db.execute("SAVEPOINT call")
    try:
        call.result = call.function(db)
    except GraphflowError as error:  # a refusal: its own writes go, the others of the transaction stay
        call.error = error
        db.execute("ROLLBACK TO call")
    db.execute("RELEASE call")


def _close(db: sqlite3.Connection) -> None:
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error:
        pass  # another process reads: the log stays for the next one to fold in
    db.close()
