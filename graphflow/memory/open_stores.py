"""The conversation and long-term stores that the settings name; nothing is read yet."""

from __future__ import annotations

from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Clock
from graphflow.memory.conversations import ConversationStore, MemoryConversations, SqlConversations
from graphflow.memory.sqlite_tables import SqliteTables
from graphflow.memory.store import SqlStore, Store
from graphflow.memory.tables import MemoryTables
from graphflow.settings.table import StoreSettings

FILE = "memory.db"
"""Beside the file of the threads."""


def open_tables(settings: StoreSettings) -> MemoryTables:
    """A schema of its own beside that of the threads in PostgreSQL, else a file beside theirs.

    Raises:
        StoreError: the setting can't be used, or an extra is not installed.
    """
    if not settings.url:
        return SqliteTables(settings.path.with_name(FILE))
    try:
        import psycopg  # noqa: F401 - told now, not at the first use

        from graphflow.memory.postgres_tables import PostgresTables

        return PostgresTables(settings.url, schema=f"{settings.db_schema}_memory")
    except (ImportError, ValueError) as error:
        raise StoreError(f"setting store.url: {error}") from None


def open_conversations(settings: StoreSettings, tables: MemoryTables) -> ConversationStore:
    """Where threads are encrypted, what was said is not written to a second place in clear: the store is in memory then."""
    return MemoryConversations() if settings.keys else SqlConversations(tables)


def open_long_term(settings: StoreSettings, tables: MemoryTables, clock: Clock) -> Store:
    """Encrypted as the threads are."""
    if not settings.keys:
        return SqlStore(tables, clock)
    from graphflow.checkpoints.encryption.cipher import Cipher

    return SqlStore(tables, clock, Cipher(settings.keys, compression=settings.compression))
