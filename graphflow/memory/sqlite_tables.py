"""The memory tables in a SQLite file; several processes may use it at once."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.checkpoints.sqlite.schema import is_busy
from graphflow.errors import StoreError
from graphflow.memory.tables import Row, Write, failure, steps_after

if TYPE_CHECKING:
    import aiosqlite

APPLICATION_ID = 0x67666C6D
"""`gflm` in the file's header: told apart from other people's databases."""
BUSY_S = 10.0
"""Seconds to wait for another process that writes."""


class SqliteTables:
    """See `Tables`.

    Args:
        path: made, with its folder, when it is first used.
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

            await asyncio.to_thread(self._path.parent.mkdir, parents=True, exist_ok=True)
            db = await aiosqlite.connect(self._path, timeout=BUSY_S, isolation_level=None)
            try:
                await self._use_wal(db)
                await db.execute("PRAGMA synchronous = FULL")
                await self._migrate(db)
            except BaseException:
                await asyncio.shield(db.close())
                raise
            self._db = db
        return self._db

    async def _use_wal(self, db: aiosqlite.Connection) -> None:
        """Tries again where another process does the same: for this SQLite does not wait by itself."""
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
        await db.execute("BEGIN IMMEDIATE")
        try:
            version = await self._number(db, "user_version")
            if await self._number(db, "application_id") != APPLICATION_ID:
                tables = await (await db.execute("SELECT count(*) FROM sqlite_master")).fetchone()
                if tables is not None and tables[0]:
                    raise StoreError(
                        f"{str(self._path)!r} is a SQLite database of another program: choose another file for memory"
                    )
                await db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            for number, statements in steps_after(version, repr(str(self._path))):
                for statement in statements:
                    await db.execute(statement)
                await db.execute(f"PRAGMA user_version = {number}")
            await db.execute("COMMIT")
        except BaseException:
            await asyncio.shield(db.execute("ROLLBACK"))
            raise

    @staticmethod
    async def _number(db: aiosqlite.Connection, pragma: str) -> int:
        row = await (await db.execute(f"PRAGMA {pragma}")).fetchone()
        assert row is not None
        return int(row[0])
