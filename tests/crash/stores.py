"""The stores that processes are killed over. Each child opens its own, after the fork."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec

from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer

STORES = ["sqlite", "postgres"]
SCHEMA = "killed"


class Place(msgspec.Struct, kw_only=True):
    """Where a kind of store is, and what is asked of it."""

    where: str = ""
    """The address of its server."""
    boundaries: set[str]
    """Its own, beside those that every store has."""


def places_of(server: str) -> dict[str, Place]:
    """Every kind's place, the address of a PostgreSQL database given."""
    statements = {f"sql {word} {side}" for word in ("BEGIN", "INSERT", "UPDATE", "COMMIT") for side in "<>"}
    return {
        "sqlite": Place(boundaries=statements),
        "postgres": Place(where=server, boundaries={"trip <", "trip >", "trip answered"}),
    }


def prepare_store(kind: str, where: str, folder: str) -> None:
    """Once per zygote, before any fork: an empty store, so that most seeds need not make one."""

    async def make(store: Any) -> None:
        await store.setup()
        await store.close()

    if kind == "sqlite":
        asyncio.run(make(SqliteCheckpointer(Path(folder) / "empty.db")))
    else:
        asyncio.run(make(open_store(kind, where, folder, 0)))


def open_store(kind: str, where: str, folder: str, seed: int, *, life: int = 0, sync_disk: bool = False) -> Any:
    """The store of one seed in one of its lives, not yet set up."""
    if kind == "sqlite":
        path = Path(folder) / f"seed{seed}" / "t.db"
        if not path.exists() and seed % 8:  # every eighth seed is killed while it makes the file, too
            shutil.copyfile(Path(folder) / "empty.db", path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
        return SqliteCheckpointer(path, synchronous="FULL" if sync_disk else "NORMAL")
    if kind == "postgres":
        from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer

        return PostgresCheckpointer(f"{where}&application_name={_session(seed, life)}", schema=SCHEMA)
    raise ValueError(f"no store {kind!r} to be killed over")


async def hear_out(kind: str, where: str, seed: int, life: int) -> None:
    """Returns when nothing that the dead processes of this seed have sent is under way any more.

    A database server works off what it was sent, however long the sender has been dead.
    """
    if kind != "postgres":
        return
    from psycopg import AsyncConnection

    speaking = (
        "SELECT count(*), pg_sleep(0.001) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name ^@ %s AND application_name <> %s"
    )
    async with await AsyncConnection.connect(where, autocommit=True) as connection:
        while True:
            row = await (await connection.execute(speaking, (_session(seed), _session(seed, life)))).fetchone()
            if row is None or not row[0]:
                return


def _session(seed: int, life: int | str = "") -> str:
    """What the database calls the connections of one life; without a life, how those of all begin."""
    return f"seed{seed}.{life}"
