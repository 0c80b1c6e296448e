"""The SQLite store's one writer: a thread that turns queued commits and calls into few transactions.

Event loops append to a queue and go on. The thread takes everything that is there into one transaction (group
commit), so one fsync serves many commits, and tells each loop once per transaction. If a transaction fails, its
entries are tried one by one, so that only the guilty one fails.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from graphflow.checkpoints._sqlite_commits import Commits
from graphflow.checkpoints._sqlite_schema import is_busy, open_writer, store_error
from graphflow.checkpoints._sqlite_worker import Call, Entry, Promise, Worker, deliver, fail
from graphflow.errors import GraphflowError, StoreError

MAX_BATCH = 1024
"""Entries per transaction: bounds how long the first of them waits."""


class Writer(Worker):
    """Owns the writing connection and its thread, whose first act is to open the file."""

    def __init__(self, path: Path, *, synchronous: str, busy_timeout_s: float) -> None:
        super().__init__(path, "writer")
        self.commits = Commits()
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s

    def run(self) -> None:
        db = open_writer(self.path, synchronous=self._synchronous, busy_timeout_s=self._busy_timeout_s)
        try:
            while self._step(db):
                pass
        finally:
            _close(db)

    def _step(self, db: sqlite3.Connection) -> bool:
        """One transaction; False when the queue's end was reached."""
        batch: list[Entry] = []
        entry = self.queue.get()
        while entry is not None:
            batch.append(entry)
            if len(batch) == MAX_BATCH or self.queue.empty():
                break
            entry = self.queue.get_nowait()
        if batch:
            try:
                self._write(db, batch)
            except Exception as error:  # noqa: BLE001 – the thread must outlive any defect; the entries tell of it
                self._fail(batch, error)
            deliver(batch)
        return entry is not None

    def _write(self, db: sqlite3.Connection, batch: list[Entry]) -> None:
        if all(type(entry) is Call and entry.function is None for entry in batch):
            return
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(batch, error)
            return
        try:
            self._apply(db, batch)
            db.execute("COMMIT")
            self.commits.confirm()
        except Exception as error:  # noqa: BLE001 – whatever it was, nothing of the batch may stay half written
            self._roll_back(db)
            if len(batch) == 1 or is_busy(error):
                self._fail(batch, error)
            else:
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
            assert type(entry) is Call
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


def _call(db: sqlite3.Connection, call: Call) -> None:
    if call.function is None:
        return
    call.error = None
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
