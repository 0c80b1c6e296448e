"""The memory tables in a PostgreSQL schema of their own; many hosts may use it at once."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from graphflow.errors import StoreError
from graphflow.memory.tables import Row, Write, failure, steps_after

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('graphflow memory ' || %s, 0))"


class PostgresTables:
    """See `Tables`. A lost connection is opened anew, once for each call.

    Args:
        url: `postgresql://user:password@host/database`; never in a message.
        schema: made when it is first used; the thread store's own is another.

    Raises:
        ValueError: the schema's name can't be one.
    """

    def __init__(self, url: str, *, schema: str = "graphflow_memory") -> None:
        if not _NAME.fullmatch(schema):
            raise ValueError(f"schema={schema!r}: letters, digits and _ only, at most 63, and no digit first")
        self._url, self._schema = url, schema
        self._name = f"in PostgreSQL, schema {schema!r}"
        self._db: AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    async def read(self, sql: str, *values: Any) -> list[Row]:
        async def work(db: AsyncConnection[Any]) -> list[Row]:
            cursor = await db.execute(_ours(sql), values)
            return list(await cursor.fetchall())

        found: list[Row] = await self._do(work)
        return found

    async def write(self, *statements: Write) -> int:
        async def work(db: AsyncConnection[Any]) -> int:
            count = 0
            for sql, values in statements:
                count = (await db.execute(_ours(sql), values)).rowcount
            return count

        changed: int = await self._do(work)
        return changed

    async def close(self) -> None:
        async with self._turn:
            db, self._db = self._db, None
            if db is not None:
                await db.close()

    async def _do(self, work: Any) -> Any:
        """What `work` gives in one transaction. All statements here are such that twice is the same as once."""
        from psycopg import Error, OperationalError

        async with self._turn:
            for last in (False, True):
                db = None
                try:
                    db = await self._open()
                    async with db.transaction():
                        return await work(db)
                except OperationalError as error:
                    if db is None or not db.closed or last:
                        raise failure(self._name, error) from error
                    self._db = None
                except Error as error:
                    raise failure(self._name, error) from error
        raise AssertionError("the second try gives or raises")

    async def _open(self) -> AsyncConnection[Any]:
        if self._db is None or self._db.closed:
            from psycopg import AsyncConnection

            db = await AsyncConnection.connect(self._url, autocommit=True, fallback_application_name="graphflow")
            db._pool = None  # as of a pool: a store that is dropped ends its session without a warning
            try:
                await self._migrate(db)
            except BaseException:
                await asyncio.shield(db.close())
                raise
            self._db = db
        return self._db

    async def _migrate(self, db: AsyncConnection[Any]) -> None:
        async with db.transaction():
            await db.execute(_LOCK, (self._schema,))
            await db.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"'.encode())
            await db.execute(f'SET search_path TO "{self._schema}"'.encode())
            version = await self._version(db)
            for number, statements in steps_after(version, self._name):
                for statement in statements:
                    await db.execute(statement.encode())
                await db.execute("UPDATE memory_version SET version = %s", (number,))

    async def _version(self, db: AsyncConnection[Any]) -> int:
        """0 for an empty schema, which has a table of versions afterwards."""
        rows = await (
            await db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self._schema,))
        ).fetchall()
        names = {name for (name,) in rows}
        if "memory_version" not in names:
            if names:
                raise StoreError(f"the memory store {self._name} has tables of another program: choose another schema")
            await db.execute("CREATE TABLE memory_version (version INTEGER NOT NULL)")
            await db.execute("INSERT INTO memory_version VALUES (0)")
        row = await (await db.execute("SELECT version FROM memory_version")).fetchone()
        return int(row[0]) if row is not None else 0


def _ours(sql: str) -> bytes:
    """The portable SQL in psycopg's form."""
    return sql.replace("%", "%%").replace("?", "%s").encode()
