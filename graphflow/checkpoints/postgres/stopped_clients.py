"""Sessions whose process stands still amid a batch of statements: the server keeps the locks that the batch has so far.

From PostgreSQL 17 on the server ends such a transaction by itself (`transaction_timeout`). On an older one whoever waits for a
lock ends the session that holds it; a role may always end its own sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from psycopg import OperationalError

from graphflow.checkpoints.postgres.pipeline import HELD_MS, Connection, ConnectionLost, PostgresError, Statement

LOOK_S = 2.0
"""After so long a statement is taken to wait for a lock."""

_END = Statement(
    "SELECT count(pg_terminate_backend(pid))::integer FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead'"
    " AND xact_start < clock_timestamp() - make_interval(secs => $1::integer / 1000.0) AND pid IN"
    " (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity WHERE usename = current_user AND wait_event_type = 'Lock')",
    "i",
    "i",
)


async def end_stopped_clients(connect: Callable[[], Awaitable[Connection]]) -> None:
    """Ends sessions that others wait for, and whose client has not gone on for longer than a lease; until it is cancelled."""
    while True:
        with suppress(ConnectionLost, OperationalError, PostgresError):
            connection = await connect()
            try:
                while True:
                    await connection.run(_END(HELD_MS))
                    await asyncio.sleep(LOOK_S)
            finally:
                connection.close()
        await asyncio.sleep(LOOK_S)
