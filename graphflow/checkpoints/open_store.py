"""The store that the settings name, for everything that opens it: the application, the command line, `doctor`."""

from __future__ import annotations

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StoreError
from graphflow.settings.table import StoreSettings


def open_store(settings: StoreSettings) -> Checkpointer:
    """PostgreSQL at `url`, else SQLite at `path`, encrypted if keys or compression say so; nothing is read yet.

    Raises:
        StoreError: the URL can't be read, a key is invalid, or an extra is not installed. Texts have no password.
    """
    store = _postgres(settings) if settings.url else _sqlite(settings)
    if not settings.keys and not settings.compression:
        return store
    from graphflow.checkpoints.encryption.checkpointer import with_encryption

    return with_encryption(store, settings.keys, compression=settings.compression)


def _sqlite(settings: StoreSettings) -> Checkpointer:
    from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer

    return SqliteCheckpointer(settings.path)


def _postgres(settings: StoreSettings) -> Checkpointer:
    assert settings.url is not None
    if not settings.url.startswith(("postgresql://", "postgres://")):
        raise StoreError(
            "setting store.url is not a PostgreSQL URL: it has to begin with postgresql:// (its value is not shown)"
        )
    try:
        from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer

        return PostgresCheckpointer(settings.url, schema=settings.db_schema)
    except (ImportError, ValueError) as error:
        raise StoreError(f"setting store.url: {error}") from None
