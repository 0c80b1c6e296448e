"""The suite that authors of stores run, over encrypted stores: nothing that a store promises is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.testing.checkpointer_conformance import CheckpointerConformance
from tests.postgres import Schemas

KEYS = ["test-1:" + "A" * 43 + "="]


class TestSqliteEncrypted(CheckpointerConformance):
    encrypted = True

    def make(self, folder: Path) -> Checkpointer:
        return EncryptedCheckpointer(SqliteCheckpointer(folder / "threads.db"), KEYS, compression=True)


class TestMemoryEncrypted(CheckpointerConformance):
    durable = False
    encrypted = True

    def make(self, folder: Path) -> Checkpointer:
        return EncryptedCheckpointer(MemoryCheckpointer(), KEYS)


class TestMemoryCompressed(CheckpointerConformance):
    durable = False
    encrypted = True

    def make(self, folder: Path) -> Checkpointer:
        return EncryptedCheckpointer(MemoryCheckpointer(), compression=True)


class TestPostgresEncrypted(CheckpointerConformance):
    encrypted = True
    schemas: Schemas
    schema: str

    @pytest.fixture(autouse=True)
    def _at(self, schemas: Schemas, schema: str) -> None:
        self.schemas, self.schema = schemas, schema

    def make(self, folder: Path) -> Checkpointer:
        return EncryptedCheckpointer(PostgresCheckpointer(self.schemas.url, schema=self.schema), KEYS, compression=True)
