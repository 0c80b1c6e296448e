"""Reading threads from SQLite: each function is one visit to the store and runs in one read transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from graphflow.checkpoints import errors
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.rows import ListedRecord, Log, Record, Stored
from graphflow.checkpoints.sql.rows import THREAD_COLUMNS, THREAD_TYPES, thread_row
from graphflow.checkpoints.sql.statement import SharedStatement
from graphflow.checkpoints.sql.trees import reach
from graphflow.checkpoints.sqlite.driver import drive, rows_of
from graphflow.checkpoints.sqlite.rows import ORDINALS, pack, read_thread, unpack

_LOAD_THREAD = SharedStatement(
    f"SELECT {THREAD_COLUMNS}, t.lineage, l.parent, l.cut FROM @.threads t LEFT JOIN @.lineages l ON l.lineage = t.lineage"  # noqa: S608 – constants only
    " WHERE t.id = $1 AND t.status IS NOT NULL",
    "d",
    THREAD_TYPES + "iii",
)


class FileLineageSpan(NamedTuple):
    """One lineage of a chain: the file's own number, the port's, and the last ordinal that counts."""

    lineage: int
    number: int
    cut: int


def load(db: sqlite3.Connection, thread_id: str, checkpoint_id: str | None) -> Stored | None:
    rows = rows_of(db, _LOAD_THREAD(thread_id))
    if not rows:
        return None
    thread = thread_row(rows[0])
    lineage, parent, parent_cut = rows[0][len(THREAD_TYPES) :]
    if checkpoint_id is not None:
        found = find_checkpoint(db, thread_id, checkpoint_id)
        if found is None:
            return None
        chain = _chain(db, found.lineage, found.cut)
    elif lineage is None:
        chain = []
    else:
        if thread.lineage is None:  # its row is gone
            raise errors.missing_records(thread_id, thread.ordinal, 0)
        chain = [] if parent is None else _chain(db, parent, parent_cut)
        chain.append(FileLineageSpan(lineage, thread.lineage, thread.ordinal))
    snapshot, records, target = _since_snapshot(db, thread_id, chain)
    return Stored(
        thread=thread,
        chain=tuple((step.number, step.cut) for step in chain),
        snapshot=snapshot,
        records=records,
        target=target,
    )


_CHAIN = (
    "WITH RECURSIVE chain (lineage, number, parent, cut, upto) AS ("
    " SELECT lineage, number, parent, cut, ? FROM lineages WHERE lineage = ?"
    " UNION ALL SELECT l.lineage, l.number, l.parent, l.cut, c.cut FROM lineages l JOIN chain c ON l.lineage = c.parent)"
    " SELECT lineage, number, upto FROM chain"
)


def _chain(db: sqlite3.Connection, lineage: int, cut: int) -> list[FileLineageSpan]:
    """From the oldest lineage to the given one; each edit begins one, so there may be thousands."""
    return list(map(FileLineageSpan._make, db.execute(_CHAIN, (cut, lineage))))[::-1]


def _reach(db: sqlite3.Connection, thread_id: str) -> list[FileLineageSpan]:
    """Every lineage of the thread's tree with the last ordinal that belongs to it, newest first."""
    tree = drive(db, reach(thread_id))
    return [FileLineageSpan(x.begun, x.number, ORDINALS - 1 if x.upto is None else x.upto) for x in reversed(tree)]


def find_checkpoint(db: sqlite3.Connection, thread_id: str, checkpoint_id: str) -> FileLineageSpan | None:
    """The lineage of a checkpoint up to it, in the thread's tree.

    Ids grow with ordinals, so each lineage is searched by halves; where clocks went back they may not, so what is not found
    is looked for in every row.
    """
    tree = _reach(db, thread_id)
    name = pack(checkpoint_id)
    for search in (_halve, _scan):
        for lineage, number, upto in tree:
            ordinal = search(db, lineage * ORDINALS, min(upto, _newest(db, lineage)), name)
            if ordinal is not None:
                return FileLineageSpan(lineage, number, ordinal)
    return None


def _newest(db: sqlite3.Connection, lineage: int) -> int:
    """The last ordinal of a lineage; 0 while it is empty."""
    first = lineage * ORDINALS
    sql = "SELECT max(record) FROM records WHERE record > ? AND record < ?"
    return (db.execute(sql, (first, first + ORDINALS)).fetchone()[0] or first) - first


_FIRST_BETWEEN = "SELECT record, id, checkpoint FROM records WHERE record >= ? AND record <= ? ORDER BY record LIMIT 1"


def _halve(db: sqlite3.Connection, base: int, last: int, name: Any) -> int | None:
    low, high = 1, last
    while low <= high:
        middle = (low + high) // 2
        # The next one that is there: others may have been pruned.
        row = db.execute(_FIRST_BETWEEN, (base + middle, base + high)).fetchone()
        if row is None:
            high = middle - 1
            continue
        record, found, checkpoint = row
        # Ids are stored as bytes or as text; between the two there is no order to halve by.
        if type(found) is not type(name):
            return None
        if found == name:
            return int(record) - base if checkpoint else None
        if found < name:
            low = record - base + 1
        else:
            high = middle - 1
    return None


def _scan(db: sqlite3.Connection, base: int, last: int, name: Any) -> int | None:
    row = db.execute(
        "SELECT record FROM records WHERE record > ? AND record <= ? AND id = ? AND checkpoint = 1",
        (base, base + last, name),
    ).fetchone()
    return None if row is None else row[0] - base


def _since_snapshot(
    db: sqlite3.Connection, thread_id: str, chain: Sequence[FileLineageSpan]
) -> tuple[bytes | None, tuple[Record, ...], Record | None]:
    """The newest snapshot of the chain, the records after it, and the last record of the chain."""
    # From the youngest lineage back to the first snapshot: what lies before it need not be read.
    parts: list[list[Record]] = []
    snapshot: bytes | None = None
    for step in reversed(chain):
        first, last = step.lineage * ORDINALS, step.lineage * ORDINALS + step.cut
        found = db.execute(
            "SELECT record, data FROM snapshots WHERE record > ? AND record <= ? ORDER BY record DESC LIMIT 1",
            (first, last),
        ).fetchone()
        if found is not None:
            first, snapshot = found
        parts.append(_records(db, step, first % ORDINALS, step.cut, thread_id))
        if found is not None:
            break
    records = tuple(record for part in reversed(parts) for record in part)
    if records:
        return snapshot, records, records[-1]
    last_step = next((step for step in reversed(chain) if step.cut), None)
    target = None if last_step is None else _records(db, last_step, last_step.cut - 1, last_step.cut, thread_id)[0]
    return snapshot, records, target


def _records(db: sqlite3.Connection, step: FileLineageSpan, after: int, upto: int, thread_id: str) -> list[Record]:
    """Records with ordinals in (after, upto]; a missing one is damage."""
    base, number = step.lineage * ORDINALS, step.number
    rows = db.execute(
        "SELECT record, id, checkpoint, meta, data FROM records WHERE record > ? AND record <= ? ORDER BY record",
        (base + after, base + upto),
    ).fetchall()
    # Ordinals have no gaps behind the last snapshot. A missing row is damage, and a state without it would be wrong.
    if len(rows) != max(upto - after, 0):
        raise errors.missing_records(thread_id, upto - after, len(rows))
    return [_record(number, base, row) for row in rows]


def _record(number: int, base: int, row: tuple[Any, ...], *, effect: bool = False) -> Record:
    record, id_, checkpoint, meta, data = row
    return Record(
        id=unpack(id_),
        lineage=number,
        ordinal=record - base,
        checkpoint=bool(checkpoint),
        meta=meta,
        data=data,
        effect=effect,
    )


def read_logs(db: sqlite3.Connection, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
    order = {number: place for place, (number, _) in enumerate(chain)}
    return [_read_log(db, order, log) for log in logs]


_LOGS = (
    "SELECT l.number, g.log FROM logs g JOIN lineages l ON l.lineage = g.lineage"
    " WHERE g.frame = ? AND g.channel = ? AND g.lineage IN (SELECT lineage FROM lineages WHERE number IN ({}))"
)
NUMBERS_AT_ONCE = 500


def _logs_of(db: sqlite3.Connection, order: dict[int, int], log: Log) -> list[int]:
    """The file's numbers of the log in each lineage of a chain that has entries of it, youngest first."""
    check_text(log.channel)
    numbers = list(order)
    found: list[tuple[int, int]] = []
    for at in range(0, len(numbers), NUMBERS_AT_ONCE):
        part = numbers[at : at + NUMBERS_AT_ONCE]
        found += db.execute(_LOGS.format(",".join("?" * len(part))), (log.frame, log.channel, *part)).fetchall()
    return [row[1] for row in sorted(found, key=lambda row: -order[row[0]])]


def _read_log(db: sqlite3.Connection, order: dict[int, int], log: Log) -> list[bytes]:
    """Walks from the youngest lineage back: each has the entries before the first of its child.

    Args:
        order: the chain's lineages (the port's numbers) → their places in it.
    """
    parts: list[list[bytes]] = []
    upper = log.count
    for place in _logs_of(db, order, log):
        if upper <= log.start:
            break
        base = place * ORDINALS
        rows = db.execute(
            "SELECT item, data FROM items WHERE item >= ? AND item < ? ORDER BY item", (base + log.start, base + upper)
        ).fetchall()
        if rows:
            parts.append([data for _, data in rows])
            upper = rows[0][0] - base
    out = [data for part in reversed(parts) for data in part]
    wanted = max(log.count - log.start, 0)
    if len(out) != wanted:
        raise errors.missing_items(log.channel, wanted, len(out))
    return out


def list_records(
    db: sqlite3.Connection, thread_id: str, before: str | None, limit: int | None, *, all_lineages: bool
) -> list[ListedRecord]:
    """Metadata of checkpoints, newest first. Lineages of one tree are begun one after the other, so their order is theirs."""
    thread = read_thread(db, thread_id)
    if thread is None:
        return []
    scope = _scope(db, thread_id, all_lineages=all_lineages)
    if before is not None:
        scope = _older(db, thread_id, scope, before)
    out: list[ListedRecord] = []
    for step in scope:
        left = None if limit is None else limit - len(out)
        if left is not None and left <= 0:
            break
        out += _listed(db, step, left)
    return out


def _scope(db: sqlite3.Connection, thread_id: str, *, all_lineages: bool) -> list[FileLineageSpan]:
    """The lineages to list, newest first."""
    if not all_lineages:
        row = db.execute("SELECT lineage, ordinal FROM threads WHERE id = ?", (pack(thread_id),)).fetchone()
        return [] if row[0] is None else _chain(db, *row)[::-1]
    return _reach(db, thread_id)


def _older(
    db: sqlite3.Connection, thread_id: str, scope: Sequence[FileLineageSpan], before: str
) -> list[FileLineageSpan]:
    found = find_checkpoint(db, thread_id, before)
    if found is not None:
        for index, step in enumerate(scope):
            if step.lineage == found.lineage and found.cut <= step.cut:
                return [step._replace(cut=found.cut - 1), *scope[index + 1 :]]
    raise errors.unknown_checkpoint(thread_id, before)


def _listed(db: sqlite3.Connection, step: FileLineageSpan, limit: int | None) -> list[ListedRecord]:
    """One lineage's checkpoints, newest first; one more than asked for is read, to know the parent of the last."""
    base = step.lineage * ORDINALS
    rows: list[Any] = db.execute(
        "SELECT record, id, size, meta FROM records WHERE record > ? AND record <= ? AND checkpoint = 1"
        " ORDER BY record DESC LIMIT ?",
        (base, base + step.cut, -1 if limit is None else limit + 1),
    ).fetchall()
    wanted = rows if limit is None else rows[:limit]
    out = []
    for index, (record, id_, size, meta) in enumerate(wanted):
        parent = rows[index + 1][1] if index + 1 < len(rows) else _parent_of(db, step.lineage)
        out.append(
            ListedRecord(
                id=unpack(id_), parent=unpack(parent), lineage=step.number, ordinal=record - base, meta=meta, size=size
            )
        )
    return out


def _parent_of(db: sqlite3.Connection, lineage: int) -> Any:
    """The newest checkpoint at or before the cut that a lineage was begun at."""
    while True:
        parent, cut = db.execute("SELECT parent, cut FROM lineages WHERE lineage = ?", (lineage,)).fetchone()
        if parent is None:
            return None
        base = parent * ORDINALS
        row = db.execute(
            "SELECT id FROM records WHERE record > ? AND record <= ? AND checkpoint = 1 ORDER BY record DESC LIMIT 1",
            (base, base + cut),
        ).fetchone()
        if row is not None:
            return row[0]
        lineage = parent


def is_loadable(db: sqlite3.Connection, lineage: int, ordinal: int) -> bool:
    """Whether a thread can be read at this record: nothing from its snapshot on was pruned."""
    pruned = db.execute("SELECT pruned FROM lineages WHERE lineage = ?", (lineage,)).fetchone()[0]
    if not 0 < ordinal <= pruned:
        return True
    base = lineage * ORDINALS
    sql = "SELECT coalesce(max(record), ?) FROM snapshots WHERE record > ? AND record <= ?"
    first = db.execute(sql, (base + 1, base, base + ordinal)).fetchone()[0]
    sql = "SELECT count(*) FROM records WHERE record BETWEEN ? AND ?"
    return bool(db.execute(sql, (first, base + ordinal)).fetchone()[0] == base + ordinal - first + 1)
