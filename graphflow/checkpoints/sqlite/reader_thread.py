"""The SQLite store's reader: one thread with one connection that runs whole visits.

A load is four statements that must see one moment, so it runs here as one function: one hop between threads, one
transaction. `benchmarks/stores.py` measures it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from graphflow.checkpoints.commit_queue import Entry, QueuedCall, deliver
from graphflow.checkpoints.sqlite.schema import FAULTS, open_reader, store_error
from graphflow.checkpoints.sqlite.worker import Worker
from graphflow.errors import StoreError

T = TypeVar("T")


class SqliteReaderThread(Worker):
    """Owns the reading connection and its thread."""

    def __init__(self, path: Path, *, busy_timeout_s: float) -> None:
        super().__init__(path, "reader")
        self._busy_timeout_s = busy_timeout_s

    def run(self) -> None:
        db = self._warm()
        while (call := self._next()) is not None:
            assert type(call) is QueuedCall
            try:
                db = db or open_reader(self.path, busy_timeout_s=self._busy_timeout_s)
                call.result = _visit(db, call.function)
            except (*FAULTS, UnicodeEncodeError) as error:
                call.error = store_error(self.path, error, "read")
                call.error.__cause__ = error
            except Exception as error:  # noqa: BLE001 – the caller gets it; the thread must outlive any defect
                call.error = error
            deliver([call])
        if db is not None:
            db.close()

    def _next(self) -> Entry | None:
        self.wait()
        return self.entries.popleft()

    def _warm(self) -> sqlite3.Connection | None:
        """The connection before anybody asks for it; None when that failed, for now."""
        try:
            return open_reader(self.path, busy_timeout_s=self._busy_timeout_s)
        except StoreError:
            return None


def _visit(db: sqlite3.Connection, function: Callable[[sqlite3.Connection], T] | None) -> T | None:
    if function is None:
        return None
    # One transaction for the whole visit: its statements must see the same commit.
    db.execute("BEGIN")
    try:
        return function(db)
    finally:
        if db.in_transaction:
            db.execute("COMMIT")
