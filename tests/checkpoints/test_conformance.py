"""The suite that authors of stores run, over our own stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.testing.checkpointer_conformance import CheckpointerConformance
from tests.postgres import Schemas


class TestMemory(CheckpointerConformance):
    durable = False

    def make(self, folder: Path) -> MemoryCheckpointer:
        return MemoryCheckpointer()


class TestSqlite(CheckpointerConformance):
    def make(self, folder: Path) -> SqliteCheckpointer:
        return SqliteCheckpointer(folder / "threads.db")


class TestPostgres(CheckpointerConformance):
    schemas: Schemas
    schema: str

    @pytest.fixture(autouse=True)
    def _at(self, schemas: Schemas, schema: str) -> None:
        self.schemas, self.schema = schemas, schema

    def make(self, folder: Path) -> PostgresCheckpointer:
        return PostgresCheckpointer(self.schemas.url, schema=self.schema)
