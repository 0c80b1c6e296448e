"""What `sql` needs to know of PostgreSQL beside its slots (see `driver.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.checkpoints.postgres.checkpoint_reader import FIND_CHECKPOINT
from graphflow.checkpoints.postgres.checkpoint_writer import ADD_ITEM, rows_of
from graphflow.checkpoints.postgres.driver import SLOTS
from graphflow.checkpoints.postgres.pipeline import BYTEA, INTEGER, Call, Statement, array, bigint, integer
from graphflow.checkpoints.rows import LooseItem, Record
from graphflow.checkpoints.sql.statement import Ask, Dialect, Native, Paged, SharedStatement

_LOCK_TREES = Statement("SELECT pg_advisory_xact_lock(hashtextextended('graphflow tree @', 0))")
_SHARE_TREES = Statement("SELECT pg_advisory_xact_lock_shared(hashtextextended('graphflow tree @', 0))")
_ENQUEUE = Statement(
    "INSERT INTO @.inputs (thread, at, kind, body) SELECT $1, $2, $3, $4 FROM @.threads"
    " WHERE id = $1 AND status IS NOT NULL RETURNING position",
    "tlty",
    "i",
)
_DEQUEUE = Statement(
    "DELETE FROM @.inputs WHERE position ="
    " (SELECT position FROM @.inputs WHERE thread = $1 AND kind = 'input' ORDER BY position LIMIT 1 FOR UPDATE)"
    " RETURNING body",
    "t",
    "y",
)
_ADD_ROWS = Statement(f"SELECT @.add_rows({', '.join(f'${n}' for n in range(1, 16))})")


_PAGED = {
    "records": Paged("lineage, ordinal", "li", "lineage, ordinal, id"),
    "snapshots": Paged("lineage, ordinal", "li", "lineage, ordinal"),
    "items": Paged("lineage, frame, channel, ordinal", "llti", "lineage, frame, channel, ordinal, record"),
    "interrupts": Paged("thread, id", "dd", "thread, id"),
    "documents": Paged("digest", "t", "digest"),
    "inputs": Paged("position", "l", "thread"),
    "threads": Paged("id", "d", "id"),
}


class PostgresDialect(Dialect):
    slots = SLOTS
    record_tables = ("records", "snapshots")
    drop_lineage = (SharedStatement("DELETE FROM @.lineages WHERE number = $1", "l"),)
    drop_items = SharedStatement("DELETE FROM @.items WHERE lineage = $1 AND record > $2", "ll")
    whole_records = SharedStatement(
        "SELECT r.ordinal, r.id, r.checkpoint, r.meta, r.data, s.data, r.effect FROM @.records r"
        " LEFT JOIN @.snapshots s ON s.lineage = r.lineage AND s.ordinal = r.ordinal"
        " WHERE r.lineage = $1 AND r.ordinal <= $2 ORDER BY r.ordinal",
        "ll",
        "idbyyyb",
    )
    whole_items = SharedStatement(
        "SELECT record, frame, channel, ordinal, data FROM @.items WHERE lineage = $1 AND record <= $2"
        " ORDER BY record, frame, channel, ordinal",
        "ll",
        "iitiy",
    )
    # The locks end with the transaction. Commits that begin a lineage share theirs (`begin_lineage`).
    share_trees = (Native(_SHARE_TREES()),)
    lock_trees = (Native(_LOCK_TREES()),)
    paged = _PAGED

    def find_checkpoint(self, thread_id: str, checkpoint_id: str) -> Ask:
        return Native(FIND_CHECKPOINT(thread_id, checkpoint_id))

    def enqueue(self, thread_id: str, at: int, kind: str, body: bytes) -> Ask:
        return Native(_ENQUEUE(thread_id, at, kind, body))

    def dequeue(self, thread_id: str) -> Ask:
        return Native(_DEQUEUE(thread_id))

    def add_records(self, lineage: int, records: Sequence[Record]) -> Sequence[Ask]:
        snapshots = [record for record in records if record.snapshot is not None]
        columns = [
            bigint(lineage), array(INTEGER, [integer(record.ordinal) for record in records]), *rows_of(records),
            array(INTEGER, [integer(record.ordinal) for record in snapshots]),
            array(BYTEA, [record.snapshot for record in snapshots if record.snapshot is not None]),
        ]  # fmt: skip
        return [Native(Call(_ADD_ROWS, columns))]

    def add_items(self, items: Sequence[LooseItem]) -> Sequence[Ask]:
        return [Native(ADD_ITEM(i.lineage, i.frame, i.channel, i.ordinal, i.record, i.data)) for i in items]


POSTGRES = PostgresDialect()
