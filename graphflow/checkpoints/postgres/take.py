"""Taking a thread of the PostgreSQL store (E2)."""

from __future__ import annotations

from collections.abc import Callable

from graphflow.checkpoints import errors
from graphflow.checkpoints.postgres.driver import native
from graphflow.checkpoints.postgres.pool import Pool
from graphflow.checkpoints.rows import ThreadRow
from graphflow.checkpoints.sql.rows import READ_THREAD, THREAD_COLUMNS, THREAD_TYPES, thread_row
from graphflow.checkpoints.sql.statement import SharedStatement

_MAY_TAKE = "(t.status IS NULL OR t.owner IS NULL OR t.lease_until <= $3 OR t.owner = $5 OR t.token = $6)"
_FENCE = "fence = CASE WHEN t.token = $6 AND t.owner = $2 THEN t.fence ELSE t.fence + 1 END"
_TAKE = SharedStatement(
    f"UPDATE @.threads t SET owner = $2, lease_until = $4, token = $6, {_FENCE}"  # noqa: S608 – constants only
    f" WHERE id = $1 AND status IS NOT NULL AND {_MAY_TAKE} RETURNING {THREAD_COLUMNS}",
    "ttlltu",
    THREAD_TYPES,
)
_TAKE_OR_MAKE = SharedStatement(
    "INSERT INTO @.threads AS t (id, status, updated_at, ordinal, fence, lease_until, owner, token, created_at)"  # noqa: S608 – constants only
    " VALUES ($1, 'idle', $3, 0, 1, $4, $2, $6, $3) ON CONFLICT (id) DO UPDATE SET owner = $2, lease_until = $4, token = $6,"
    f" {_FENCE}, updated_at = CASE WHEN t.status IS NULL THEN $3 ELSE t.updated_at END,"
    " created_at = CASE WHEN t.status IS NULL THEN $3 ELSE t.created_at END, status = coalesce(t.status, 'idle')"
    f" WHERE {_MAY_TAKE} RETURNING {THREAD_COLUMNS}",
    "ttlltu",
    THREAD_TYPES,
)


async def take(
    pool: Pool,
    thread_id: str,
    owner: str,
    now: int,
    lease_until: int,
    *,
    create: bool,
    is_dead: Callable[[str], bool],
    token: bytes,
) -> ThreadRow:
    """The thread's row after the compare-and-swap of E2, which is one statement."""
    statement = _TAKE_OR_MAKE if create else _TAKE
    dead: str | None = None
    # One statement compares and swaps; what is read beside it only explains why it did not.
    while True:
        taken, seen = await pool.do(
            native(statement)(thread_id, owner, now, lease_until, dead, token), native(READ_THREAD)(thread_id)
        )  # fmt: skip
        if taken:
            return thread_row(taken[0])
        if not seen:
            if create:  # deleted between the two statements
                continue
            raise errors.unknown_thread(thread_id)
        row = thread_row(seen[0])
        if row.owner is None or row.lease_until <= now:  # given back between the two statements
            continue
        if row.owner == dead or not is_dead(row.owner):
            raise errors.busy(thread_id, row.lease_until, now)
        dead = row.owner
