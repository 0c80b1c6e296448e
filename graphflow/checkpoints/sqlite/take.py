"""Taking a thread of the SQLite store (E2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from graphflow.checkpoints import errors
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.rows import ThreadFacts, ThreadRow
from graphflow.checkpoints.sql.rows import add_thread
from graphflow.checkpoints.sqlite.driver import rows_of
from graphflow.checkpoints.sqlite.rows import pack, read_thread


def take(
    db: sqlite3.Connection,
    thread_id: str,
    owner: str,
    now: int,
    lease_ms: int,
    *,
    create: bool,
    is_dead: Callable[[str], bool],
) -> ThreadRow:
    """The thread's row after the compare-and-swap of E2; the transaction holds the file's only write lock."""
    check_text(owner)
    row = read_thread(db, thread_id)
    if row is None:
        if not create:
            raise errors.unknown_thread(thread_id)
        rows_of(db, add_thread(thread_id, ThreadFacts(status="idle", updated_at=now), now))
    elif row.owner is not None and row.lease_until > now and not is_dead(row.owner):
        raise errors.busy(thread_id, row.lease_until, now)
    db.execute(
        "UPDATE threads SET owner = ?, lease_until = ?, fence = fence + 1 WHERE id = ?",
        (owner, now + lease_ms, pack(thread_id)),
    )
    taken = read_thread(db, thread_id)
    assert taken is not None
    return taken
