"""The memory tables in a PostgreSQL schema of their own; many hosts may use it at once."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from graphflow.checkpoints.sql.migrations import PostgresSchema, migrate_postgres
from graphflow.checkpoints.sql.statement import SharedStatement
from graphflow.memory.tables import Row, Write, drive, failure, migrations_of

if TYPE_CHECKING:
    from psycopg import AsyncConnection

# The name is written into SQL, where a parameter is not possible.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class PostgresTables:
    """`MemoryTables` in PostgreSQL. A lost connection is reopened, once per call.

    Args:
        url: `postgresql://user:password@host/database`; never in a message.
        schema: created on first use; not the thread store's schema.

    Raises:
        ValueError: the name is not a valid schema name.
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
        """The result of `work` in one transaction. It may run twice: all statements here are idempotent."""
        from psycopg import Error, OperationalError

        async with self._turn:
            for last in (False, True):
                db = None
                try:
                    db = await self._open()
                    async with db.transaction():
                        return await work(db)
                except OperationalError as error:
                    # Only a connection that broke is worth a second try; a full disk fails again.
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
                # Shielded: a cancelled caller must not leave a session open on the server.
                await asyncio.shield(db.close())
                raise
            self._db = db
        return self._db

    async def _migrate(self, db: AsyncConnection[Any]) -> None:
        async def run(sql: str) -> list[Row]:
            cursor = await db.execute(sql.replace("@", f'"{self._schema}"').encode())
            return list(await cursor.fetchall()) if cursor.description else []

        schema = PostgresSchema(
            SharedStatement(f"SELECT pg_advisory_xact_lock(hashtextextended('graphflow memory {self._schema}', 0))"),
            SharedStatement(
                "SELECT to_regclass('@.memory_version') IS NOT NULL,"  # noqa: S608 – a name of letters
                f" EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = '{self._schema}'), to_regnamespace('@') IS NOT NULL"
            ),
            "memory_version",
        )
        foreign = f"the memory store {self._name} has tables of another program: choose another schema"
        async with db.transaction():
            await db.execute(f'SET search_path TO "{self._schema}"'.encode())
            await drive(run, migrate_postgres(migrations_of(self._name, foreign), schema))


def _ours(sql: str) -> bytes:
    """The portable SQL in psycopg's form."""
    return sql.replace("%", "%%").replace("?", "%s").encode()
