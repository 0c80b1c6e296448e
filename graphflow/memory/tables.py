"""The tables of the conversation and long-term stores, in a SQLite file or a PostgreSQL schema of their own.

Both speak the same SQL (`?` for parameters) and run the same numbered migrations, so what lies above is written once.
No run waits for this: nothing is opened before a chat search or the first use of the long-term store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from graphflow.checkpoints.sql.migrations import Migrations
from graphflow.checkpoints.sql.statement import Query, Work
from graphflow.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"
Row = Sequence[Any]
Write = tuple[str, Sequence[Any]]
"""A statement and its parameters."""


class MemoryTables(Protocol):
    """A database with the tables of `migrations`. It opens itself with the first call; safe from any task of one loop."""

    async def read(self, sql: str, *values: Any) -> list[Row]:
        """The rows of one statement.

        Raises:
            StoreError: the database can't be read; `store_version_unsupported` when a newer version made it.
        """

    async def write(self, *statements: Write) -> int:
        """Runs the statements in one transaction, durable on return; gives the number of rows that the last one changed.

        Raises:
            StoreError: nothing of it was kept.
        """

    async def close(self) -> None:
        """Closes the database; a later call opens it again."""


def migrations_of(name: str, foreign: str) -> Migrations:
    """The migrations of a database with this name."""
    return Migrations(MIGRATIONS, f"the memory store {name}", foreign)


async def drive(run: Callable[[str], Awaitable[list[Row]]], work: Work[None]) -> None:
    """Does the work in a transaction that has begun; `run` gives the rows of one statement."""
    asks = next(work, None)
    while asks is not None:
        rows = [[tuple(row) for row in await run(ask.statement.sql)] for ask in asks if type(ask) is Query]
        try:
            asks = work.send(rows)
        except StopIteration:
            return


def failure(name: str, error: BaseException) -> StoreError:
    return StoreError(f"the memory store {name} could not be used: {type(error).__name__}: {error}")
