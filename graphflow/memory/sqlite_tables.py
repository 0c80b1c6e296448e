"""The memory tables in a SQLite file; several processes may use it at once."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.checkpoints.sql.migrations import is_busy, migrate_sqlite
from graphflow.memory.tables import Row, Write, drive, failure, migrations_of
from graphflow.private_files import make_private_file, make_private_folder

if TYPE_CHECKING:
    import aiosqlite

APPLICATION_ID = 0x67666C6D
"""`gflm` in the file's header; it distinguishes the file from databases of other programs."""
BUSY_S = 10.0
"""Seconds to wait for another process that writes."""


class SqliteTables:
    """`MemoryTables` in a SQLite file.

    Args:
        path: created with its folder on first use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: aiosqlite.Connection | None = None
        self._turn = asyncio.Lock()

    async def read(self, sql: str, *values: Any) -> list[Row]:
        async with self._turn:
            try:
                db = await self._open()
                return [tuple(row) for row in await db.execute_fetchall(sql, values)]
            except (sqlite3.Error, OSError) as error:
                raise failure(repr(str(self._path)), error) from error

    async def write(self, *statements: Write) -> int:
        async with self._turn:
            try:
                return await self._written(await self._open(), statements)
            except (sqlite3.Error, OSError) as error:
                raise failure(repr(str(self._path)), error) from error

    async def close(self) -> None:
        async with self._turn:
            db, self._db = self._db, None
            if db is not None:
                await db.close()

    async def _written(self, db: aiosqlite.Connection, statements: tuple[Write, ...]) -> int:
        count = 0
        # The write lock at once: a transaction that takes it later can fail without waiting for `BUSY_S`.
        await db.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in statements:
                count = (await db.execute(sql, values)).rowcount
            await db.execute("COMMIT")
        except BaseException:
            await asyncio.shield(db.execute("ROLLBACK"))
            raise
        return count

    async def _open(self) -> aiosqlite.Connection:
        if self._db is None:
            import aiosqlite

            await asyncio.to_thread(make_private_folder, self._path.parent)
            await asyncio.to_thread(make_private_file, self._path)
            db = await aiosqlite.connect(self._path, timeout=BUSY_S, isolation_level=None)
            try:
                await self._use_wal(db)
                await db.execute("PRAGMA synchronous = FULL")
                await self._migrate(db)
            except BaseException:
                # Shielded: the connection's thread would outlive a cancelled caller.
                await asyncio.shield(db.close())
                raise
            self._db = db
        return self._db

    async def _use_wal(self, db: aiosqlite.Connection) -> None:
        """Retries while another process switches too: SQLite does not wait by itself here."""
        async with asyncio.timeout(BUSY_S):
            while True:
                try:
                    await db.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                await asyncio.sleep(0.005)

    async def _migrate(self, db: aiosqlite.Connection) -> None:
        async def run(sql: str) -> list[Row]:
            return list(await db.execute_fetchall(sql))

        foreign = f"{str(self._path)!r} is a SQLite database of another program: choose another file for memory"
        await db.execute("BEGIN IMMEDIATE")
        try:
            await drive(run, migrate_sqlite(migrations_of(repr(str(self._path)), foreign), APPLICATION_ID))
            await db.execute("COMMIT")
        except BaseException:
            await asyncio.shield(db.execute("ROLLBACK"))
            raise
