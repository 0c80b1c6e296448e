"""The suites that authors of stores run, over our own; and what only one back end can get wrong."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from pathlib import Path

import pytest

from graphflow.checkpoints.encryption.cipher import Cipher
from graphflow.errors import StoreError
from graphflow.memory.conversations import ConversationStore, InMemoryConversations, SqlConversations
from graphflow.memory.postgres_tables import PostgresTables
from graphflow.memory.sqlite_tables import SqliteTables
from graphflow.memory.store import SqlStore, Store
from graphflow.testing import FakeClock
from graphflow.testing.conversation_store_conformance import ConversationStoreConformance
from graphflow.testing.in_memory_store import InMemoryStore
from graphflow.testing.store_conformance import StoreConformance
from tests.postgres import Schemas


class TestMemoryStore(StoreConformance):
    durable = False

    def make(self, folder: Path, clock: FakeClock) -> Store:
        return InMemoryStore(clock)


class TestSqliteStore(StoreConformance):
    def make(self, folder: Path, clock: FakeClock) -> Store:
        return SqlStore(SqliteTables(folder / "memory.db"), clock)


KEYS = ("k1:" + base64.b64encode(b"k" * 32).decode(),)


class TestEncryptedStore(StoreConformance):
    def make(self, folder: Path, clock: FakeClock) -> Store:
        return SqlStore(SqliteTables(folder / "memory.db"), clock, Cipher(KEYS))


class TestPostgresStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _at(self, memory_tables: PostgresTables) -> None:
        self.tables = memory_tables

    def make(self, folder: Path, clock: FakeClock) -> Store:
        return SqlStore(self.tables, clock)


class TestMemoryConversations(ConversationStoreConformance):
    def make(self, folder: Path) -> ConversationStore:
        return InMemoryConversations()


class TestSqliteConversations(ConversationStoreConformance):
    def make(self, folder: Path) -> ConversationStore:
        return SqlConversations(SqliteTables(folder / "memory.db"))


class TestPostgresConversations(ConversationStoreConformance):
    @pytest.fixture(autouse=True)
    def _at(self, memory_tables: PostgresTables) -> None:
        self.tables = memory_tables

    def make(self, folder: Path) -> ConversationStore:
        return SqlConversations(self.tables)


# --- SQLite ---------------------------------------------------------------------------------------


async def test_several_processes_may_make_and_use_the_file_at_once(tmp_path: Path) -> None:
    stores = [SqlStore(SqliteTables(tmp_path / "deep" / "memory.db"), FakeClock()) for _ in range(4)]
    await asyncio.gather(*(store.put(("a",), f"k{n}{m}", m) for n, store in enumerate(stores) for m in range(10)))
    assert len(await stores[0].search(("a",), limit=100)) == 40
    await asyncio.gather(*(store.close() for store in stores))


async def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        await SqlStore(SqliteTables(path), FakeClock()).get(("a",), "k")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


async def test_a_newer_versions_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    tables = SqliteTables(path)
    await tables.read("SELECT 1")
    await tables.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError) as refused:
        await tables.read("SELECT 1")
    assert refused.value.code == "store_version_unsupported"


async def test_a_write_that_fails_keeps_nothing(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "memory.db")
    one = ("INSERT INTO conversations VALUES (?, '', NULL, NULL, 0, 0, '')", ("c",))
    with pytest.raises(StoreError):
        await tables.write(one, one)
    assert await tables.read("SELECT * FROM conversations") == []
    await tables.close()


async def test_an_encrypted_value_is_nowhere_in_the_file(tmp_path: Path) -> None:
    store = SqlStore(SqliteTables(tmp_path / "memory.db"), FakeClock(), Cipher(KEYS))
    await store.put(("notes",), "k", {"said": "the plain words"})
    await store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"notes" in content and b"plain words" not in content


# --- PostgreSQL -----------------------------------------------------------------------------------


async def test_a_lost_connection_is_opened_anew(memory_tables: PostgresTables, schemas: Schemas) -> None:
    store = SqlStore(memory_tables, FakeClock())
    await store.put(("a",), "k", 1)
    schemas.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'graphflow' AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    item = await store.get(("a",), "k")
    assert item is not None
    assert item.value == 1


async def test_a_schema_with_other_tables_is_left_alone(schema: str, schemas: Schemas) -> None:
    schemas.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs (x int)")
    tables = PostgresTables(schemas.url, schema=schema)
    with pytest.raises(StoreError, match="another program"):
        await tables.read("SELECT 1")
    await tables.close()
