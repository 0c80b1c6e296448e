"""The yardstick for `sync`: a bare durable insert, one 256-byte row a transaction, from the program's own thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness import Case, Place, Timed

PACKAGES: list[str] = []


@asynccontextmanager
async def inserts(place: Place) -> AsyncIterator[Timed]:
    db = sqlite3.connect(place.database(), isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, data BLOB)")
    row = os.urandom(256)

    async def run() -> None:
        for _ in range(place.params["n"]):
            db.execute("INSERT INTO log (data) VALUES (?)", (row,))

    yield Timed(run)
    db.close()


CASES: dict[str, Case] = {"chain": inserts, "loop": inserts}
