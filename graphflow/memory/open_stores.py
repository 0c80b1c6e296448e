"""Opens the conversation and long-term stores of the settings; reads nothing yet."""

from __future__ import annotations

from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Clock
from graphflow.memory.conversations import ConversationStore, InMemoryConversations, SqlConversations
from graphflow.memory.sqlite_tables import SqliteTables
from graphflow.memory.store import SqlStore, Store
from graphflow.memory.tables import MemoryTables
from graphflow.settings.table import StoreSettings

FILE = "memory.db"
"""Name of the SQLite file, in the folder of the threads' file."""


def open_tables(settings: StoreSettings) -> MemoryTables:
    """The memory tables: a separate PostgreSQL schema, or a SQLite file next to that of the threads.

    Raises:
        StoreError: the setting can't be used, or an extra is not installed.
    """
    if not settings.url:
        return SqliteTables(settings.path.with_name(FILE))
    try:
        import psycopg  # noqa: F401 - a missing extra is reported now, not at the first use

        from graphflow.memory.postgres_tables import PostgresTables

        return PostgresTables(settings.url, schema=f"{settings.db_schema}_memory")
    except (ImportError, ValueError) as error:
        raise StoreError(f"setting store.url: {error}") from None


def open_conversations(settings: StoreSettings, tables: MemoryTables) -> ConversationStore:
    """The conversation store; in memory if threads are encrypted, so that no plain text is written to a second place."""
    return InMemoryConversations() if settings.keys else SqlConversations(tables)


def open_long_term(settings: StoreSettings, tables: MemoryTables, clock: Clock) -> Store:
    """The long-term store, encrypted like the threads."""
    if not settings.keys:
        return SqlStore(tables, clock)
    from graphflow.checkpoints.encryption.cipher import Cipher

    return SqlStore(tables, clock, Cipher(settings.keys, compression=settings.compression))
