"""Schemas of a PostgreSQL database that are emptied and used again, which is faster than making them."""

from __future__ import annotations

from typing import Any, Self

import psycopg


class Schemas:
    """Hands out names of schemas that are empty or not there yet.

    Args:
        url: of the database that they lie in.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._free: list[str] = []
        self._taken: list[str] = []
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def take(self) -> str:
        if self._free:
            name = self._free.pop()
        else:
            self._made += 1
            name = f"schema_{self._made}"
        self._taken.append(name)
        return name

    def empty(self) -> None:
        """Empties what was taken; a schema that a test has changed is dropped."""
        taken, self._taken = self._taken, []
        for name in taken:
            tables = self.run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}' ORDER BY 1")
            if [table for (table,) in tables] == TABLES:
                self.run("; ".join(f"DELETE FROM {name}.{table}" for table in TABLES if table != "schema_version"))
                self._free.append(name)
            else:
                self.run(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of one statement, behind the stores' backs."""
        try:
            cursor = self._connected().execute(sql.encode())
        except psycopg.OperationalError:  # a test has restarted the server
            cursor = self._connected().execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection


TABLES = [
    "documents", "inputs", "interrupts", "items", "lineages", "notes", "records", "runs", "schema_version", "snapshots", "spent",
    "threads",
]  # fmt: skip
