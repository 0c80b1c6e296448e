"""What `sql` needs to know of SQLite beside its slots (see `driver.py`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.rows import LooseItem, Record
from graphflow.checkpoints.sql.statement import Ask, Dialect, Native, Paged, Rows, SharedStatement
from graphflow.checkpoints.sqlite.checkpoint_reader import find_checkpoint
from graphflow.checkpoints.sqlite.checkpoint_writer import RowBatch, add_loose, add_record
from graphflow.checkpoints.sqlite.driver import NOTE, NUMBER, SLOTS
from graphflow.checkpoints.sqlite.rows import pack

_LOG = "(SELECT {} FROM logs g JOIN lineages l ON l.lineage = g.lineage WHERE g.log = t.item >> 32)"
_ENTRIES = "logs g CROSS JOIN items i ON i.item >= g.log << 32 AND i.item < (g.log + 1) << 32 WHERE g.lineage = @key1"
"""CROSS JOIN keeps this order: the few logs of a lineage, then the range of each by its key."""


_PAGED = {
    "records": Paged("record", "l", f"{NUMBER.format('record >> 32')}, t.record & 4294967295, t.id"),
    "snapshots": Paged("record", "l", f"{NUMBER.format('record >> 32')}, t.record & 4294967295"),
    "items": Paged(
        "item",
        "l",
        f"{_LOG.format('l.number')}, {_LOG.format('g.frame')}, {_LOG.format('g.channel')}, t.item & 4294967295, t.record",
    ),
    "interrupts": Paged("thread, id", "dd", "thread, id"),
    "documents": Paged("digest", "t", "digest", f"digest NOT LIKE '{NOTE}%'"),
    "inputs": Paged("position", "l", "thread"),
    "threads": Paged("id", "d", "id"),
}


class SqliteDialect(Dialect):
    slots = SLOTS
    record_tables = ("records", "snapshots", "effects")
    drop_lineage = (
        SharedStatement("DELETE FROM logs WHERE lineage = @key1", "l"),
        SharedStatement("DELETE FROM lineages WHERE number = $1", "l"),
    )
    drop_items = SharedStatement(
        f"DELETE FROM items WHERE item IN (SELECT i.item FROM {_ENTRIES} AND i.record > $2)",  # noqa: S608 – constants only
        "ll",
    )
    whole_records = SharedStatement(
        "SELECT r.record & 4294967295, r.id, r.checkpoint, r.meta, r.data, s.data, e.record IS NOT NULL FROM records r"
        " LEFT JOIN snapshots s ON s.record = r.record LEFT JOIN effects e ON e.record = r.record"
        " WHERE r.record BETWEEN (@key1 << 32) + 1 AND (@key1 << 32) + $2 ORDER BY r.record",
        "ll",
        "idbyyyb",
    )
    whole_items = SharedStatement(
        f"SELECT i.record, g.frame, g.channel, i.item & 4294967295, i.data FROM {_ENTRIES} AND i.record <= $2"  # noqa: S608 – constants only
        " ORDER BY i.record, g.log, i.item",
        "ll",
        "iitiy",
    )
    share_trees = lock_trees = ()
    """A writing transaction holds the file's only lock."""
    paged = _PAGED

    def find_checkpoint(self, thread_id: str, checkpoint_id: str) -> Ask:
        def find(db: sqlite3.Connection) -> Rows:
            found = find_checkpoint(db, thread_id, checkpoint_id)
            return [] if found is None else [(found.number, found.cut)]

        return Native(find)

    # SQLite has RETURNING since 3.35 only, which not every system has.

    def enqueue(self, thread_id: str, at: int, kind: str, body: bytes) -> Ask:
        def enqueue(db: sqlite3.Connection) -> Rows:
            check_text(kind)
            sql = (
                "INSERT INTO inputs (thread, at, kind, body) SELECT ?1, ?2, ?3, ?4 FROM threads"
                " WHERE id = ?1 AND status IS NOT NULL"
            )
            added = db.execute(sql, (pack(thread_id), at, kind, body))
            return [(added.lastrowid,)] if added.rowcount else []

        return Native(enqueue)

    def dequeue(self, thread_id: str) -> Ask:
        def dequeue(db: sqlite3.Connection) -> Rows:
            sql = "SELECT position, body FROM inputs WHERE thread = ? AND kind = 'input' ORDER BY position LIMIT 1"
            rows = db.execute(sql, (pack(thread_id),)).fetchall()
            for position, _ in rows:
                db.execute("DELETE FROM inputs WHERE position = ?", (position,))
            return [(body,) for _, body in rows]

        return Native(dequeue)

    def add_records(self, lineage: int, records: Sequence[Record]) -> Sequence[Ask]:
        def add(db: sqlite3.Connection) -> Rows:
            # Through the batch of the writer, which knows keys and logs: an import stores the rows that a commit would
            # have stored.
            batch, logs = RowBatch(), dict[tuple[int, str], int]()
            own = _own_number(db, lineage)
            for record in records:
                add_record(db, batch, record, own, logs)
            batch.write(db)
            return []

        return [Native(add)]

    def add_items(self, items: Sequence[LooseItem]) -> Sequence[Ask]:
        def add(db: sqlite3.Connection) -> Rows:
            batch = RowBatch()
            for item in items:
                add_loose(db, batch, item, _own_number(db, item.lineage), {})
            batch.write(db)
            return []

        return [Native(add)]


def _own_number(db: sqlite3.Connection, number: int) -> int:
    return int(db.execute("SELECT lineage FROM lineages WHERE number = ?", (number,)).fetchone()[0])


SQLITE = SqliteDialect()
