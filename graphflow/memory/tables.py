"""The tables of the conversation and long-term stores, in a SQLite file or a PostgreSQL schema of their own.

Both speak the same SQL (`?` for parameters) and run the same numbered migrations, so what lies above is written once.
None of this is on a run's way: nothing here is opened before somebody searches chats or uses the long-term store.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

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
        """Runs the statements in one transaction; durable when it returns. How many rows the last one has changed.

        Raises:
            StoreError: nothing of it was kept.
        """

    async def close(self) -> None:
        """Closes the database; a later call opens it again."""


def steps_after(version: int, name: str) -> list[tuple[int, list[str]]]:
    """The migrations that a database of this version lacks: number and statements.

    Raises:
        StoreError: `store_version_unsupported` when the version is none that this program knows.
    """
    steps = [(int(path.name.partition("_")[0]), path) for path in sorted(MIGRATIONS.glob("[0-9]*.sql"))]
    if version > steps[-1][0]:
        raise StoreError(
            f"the memory store {name} has schema version {version}, this graphflow knows up to {steps[-1][0]}: update graphflow",
            code="store_version_unsupported",
        )
    return [(number, _statements(path.read_text(encoding="utf-8"))) for number, path in steps if number > version]


def _statements(script: str) -> list[str]:
    code = "\n".join(line.partition("--")[0] for line in script.splitlines())
    return [statement.strip() for statement in code.split(";") if statement.strip()]


def failure(name: str, error: BaseException) -> StoreError:
    return StoreError(f"the memory store {name} could not be used: {type(error).__name__}: {error}")
