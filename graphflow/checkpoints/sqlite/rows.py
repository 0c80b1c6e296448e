"""How the SQLite store writes ids and keys down."""

from __future__ import annotations

import sqlite3

from graphflow.checkpoints.ids import long_id, short_id
from graphflow.checkpoints.rows import ThreadRow
from graphflow.checkpoints.sql.rows import READ_THREAD, thread_row
from graphflow.checkpoints.sqlite.driver import rows_of

ORDINALS = 1 << 32
"""Ordinals have the lower 32 bits of a key; lineage or log has the bits above."""

pack, unpack = short_id, long_id


def key(lineage: int, ordinal: int) -> int:
    """The key of a record or an item. Raises OverflowError beyond the four billionth of a lineage."""
    if not 0 <= ordinal < ORDINALS:
        raise OverflowError(f"ordinal {ordinal} is outside 0 to {ORDINALS - 1}")
    return lineage * ORDINALS + ordinal


def read_thread(db: sqlite3.Connection, thread_id: str) -> ThreadRow | None:
    rows = rows_of(db, READ_THREAD(thread_id))
    return thread_row(rows[0]) if rows else None
