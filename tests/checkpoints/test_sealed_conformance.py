"""The suite that authors of stores run, over sealed stores: nothing that a store promises is lost behind a seal."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.checkpointer import SealedCheckpointer
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.testing.checkpointer_conformance import CheckpointerConformance
from tests.postgres import Schemas

KEYS = ["test-1:" + "A" * 43 + "="]


class TestSqliteSealed(CheckpointerConformance):
    sealed = True

    def make(self, folder: Path) -> Checkpointer:
        return SealedCheckpointer(SqliteCheckpointer(folder / "threads.db"), KEYS, compression=True)


class TestMemorySealed(CheckpointerConformance):
    durable = False
    sealed = True

    def make(self, folder: Path) -> Checkpointer:
        return SealedCheckpointer(MemoryCheckpointer(), KEYS)


class TestMemoryCompressed(CheckpointerConformance):
    durable = False
    sealed = True

    def make(self, folder: Path) -> Checkpointer:
        return SealedCheckpointer(MemoryCheckpointer(), compression=True)


class TestPostgresSealed(CheckpointerConformance):
    sealed = True
    schemas: Schemas
    schema: str

    @pytest.fixture(autouse=True)
    def _at(self, schemas: Schemas, schema: str) -> None:
        self.schemas, self.schema = schemas, schema

    def make(self, folder: Path) -> Checkpointer:
        return SealedCheckpointer(PostgresCheckpointer(self.schemas.url, schema=self.schema), KEYS, compression=True)
