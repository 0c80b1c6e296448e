"""Returning the space of removed rows to the operating system, which PostgreSQL does only when nobody may read them any more."""

from __future__ import annotations

import asyncio

from graphflow.checkpoints.postgres.errors import held_open, store_error
from graphflow.checkpoints.postgres.pipeline import ConnectionLost, PostgresError, Statement
from graphflow.checkpoints.postgres.pool import FIRST_PAUSE_S, LONGEST_PAUSE_S, Pool, Target

_NEXT = Statement("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", "", "t")
# VACUUM keeps what an older snapshot of this database may read. Its own snapshot is one of them, and that goes back to the
# oldest transaction that writes in any database of the server.
_OLDER = Statement(
    "SELECT pg_snapshot_xmin(pg_current_snapshot()) < $1::text::xid8 OR others.n > 0, others.names"
    " FROM (SELECT count(*) AS n, coalesce(string_agg(format("
    "'process %s of %s in database %s, %s', pid, coalesce(nullif(application_name, ''), '?'), datname, state), '; '), '')"
    " AS names FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND (age(backend_xid) > age($1::text::xid8::xid)"
    " OR datname = current_database() AND age(backend_xmin) > age($1::text::xid8::xid))) AS others",
    "t",
    "bt",
)
_UNLIMITED = Statement("SET transaction_timeout = 0")
_REWRITE = [
    Statement(f"VACUUM FULL @.{table}")
    for table in ("records", "items", "snapshots", "lineages", "interrupts", "inputs")
]


async def compact(pool: Pool, target: Target) -> None:
    """Rewrites the tables once the transactions that are open now have ended.

    Raises:
        StoreError: one of them stays open for longer than the store's patience; nothing was rewritten.
    """
    [[(now,)]] = await pool.ask(_NEXT())
    until = asyncio.get_running_loop().time() + target.patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        [[(held, names)]] = await pool.ask(_OLDER(now))
        if not held:
            break
        if asyncio.get_running_loop().time() >= until:
            raise held_open(target.name, names)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    # By a connection of its own, whose statements may take as long as they need.
    connection = await target.connect()
    try:
        if connection.is_limited:
            await connection.run(_UNLIMITED())
        # One by one: VACUUM can be part of no transaction, and locks only the table that it rewrites.
        for statement in _REWRITE:
            await connection.run(statement())
    except (ConnectionLost, PostgresError) as error:
        raise store_error(target.name, error, "compacted") from error
    finally:
        connection.close()
