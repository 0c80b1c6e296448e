"""Taking checkpoints out of the SQLite store: what `pruning.py` decides, as rows.

Each function runs inside one transaction: of the writer's thread where it changes something.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import pruning
from graphflow.checkpoints.pruning import Branch, Change
from graphflow.checkpoints.rows import Keep, OpenInterrupt, Pruned
from graphflow.checkpoints.sqlite.changes import delete_thread
from graphflow.checkpoints.sqlite.reader import find_checkpoint, reach
from graphflow.checkpoints.sqlite.rows import INTERRUPT_COLUMNS, ORDINALS, interrupt_row, pack, read_thread, unpack


def prune(db: sqlite3.Connection, thread_id: str, keep: Keep, *, dry_run: bool) -> Pruned:
    if read_thread(db, thread_id) is None:
        raise refusals.unknown_thread(thread_id)
    branches = branches_of(db, thread_id, keep.records)
    kept = pruning.chosen(branches, keep, _interrupts(db, thread_id))
    changes = pruning.plan(branches, kept)
    dropped = [_dropped(db, change) for change in changes]
    if not dry_run:
        _apply(db, changes)
    return pruning.summed(branches, kept, dropped)


def delete_checkpoint(db: sqlite3.Connection, thread_id: str, checkpoint_id: str) -> None:
    if read_thread(db, thread_id) is None:
        raise refusals.unknown_thread(thread_id)
    if find_checkpoint(db, thread_id, checkpoint_id) is None:
        raise refusals.unknown_checkpoint(thread_id, checkpoint_id)
    if _is_last(db, thread_id):
        delete_thread(db, thread_id)
        return
    branches = branches_of(db, thread_id)
    row = db.execute("SELECT id FROM threads WHERE head = ?", (pack(checkpoint_id),)).fetchone()
    standing = None if row is None else unpack(row[0])
    pruning.check_deletion(thread_id, checkpoint_id, branches, standing, _interrupts(db, thread_id))
    _apply(db, pruning.plan(branches, pruning.all_but(branches, checkpoint_id)))


def _is_last(db: sqlite3.Connection, thread_id: str) -> bool:
    """Whether the thread's tree shows one checkpoint only."""
    count = 0
    for lineage, upto in reach(db, thread_id).items():
        first = lineage * ORDINALS
        last = first + (ORDINALS - 1 if upto is None else upto)
        sql = "SELECT 1 FROM records WHERE record > ? AND record <= ? AND checkpoint = 1 LIMIT 2"
        count += len(db.execute(sql, (first, last)).fetchall())
        if count > 1:
            return False
    return True


def _interrupts(db: sqlite3.Connection, thread_id: str) -> list[OpenInterrupt]:
    sql = f"SELECT {INTERRUPT_COLUMNS} FROM interrupts WHERE thread = ?"  # noqa: S608 – a constant
    return [interrupt_row(row) for row in db.execute(sql, (pack(thread_id),))]


def branches_of(db: sqlite3.Connection, thread_id: str, wanted: Sequence[tuple[int, int]] = ()) -> list[Branch]:
    """The thread's branches whose rows may go: its own, and those that deleted threads left.

    Args:
        wanted: `Keep.records`.
    """
    name, tree = pack(thread_id), reach(db, thread_id)
    rows = {
        place: db.execute("SELECT thread, parent, cut FROM lineages WHERE lineage = ?", (place,)).fetchone()
        for place in sorted(tree)
    }
    scope = {place: (parent, cut) for place, (thread, parent, cut) in rows.items() if thread in (None, name)}
    head = db.execute("SELECT lineage, ordinal FROM threads WHERE id = ?", (name,)).fetchone()
    forks: dict[int, set[int]] = {}
    for lineage, parent, cut in db.execute("SELECT lineage, parent, cut FROM lineages WHERE parent IS NOT NULL"):
        if lineage not in scope:
            forks.setdefault(parent, set()).add(cut)
    out = []
    for place, (parent, cut) in scope.items():
        base = place * ORDINALS
        span = (base, base + ORDINALS)
        listed = "SELECT record, id FROM records WHERE record > ? AND record < ? AND checkpoint = 1 ORDER BY record"
        branch = Branch(
            lineage=place,
            parent=parent,
            cut=cut,
            upto=tree[place],
            checkpoints={record - base: unpack(id_) for record, id_ in db.execute(listed, span)},
            head=head[1] if head[0] == place else None,
            forks=forks.get(place, set()),
        )
        for table, ordinals in (("snapshots", branch.snapshots), ("effects", branch.effects)):
            sql = f"SELECT record FROM {table} WHERE record > ? AND record < ? ORDER BY record"  # noqa: S608 – a constant
            ordinals += (record - base for (record,) in db.execute(sql, span))
        out.append(branch)
    _mark_wanted(db, {branch.lineage: branch for branch in out}, wanted)
    return out


def _mark_wanted(db: sqlite3.Connection, branches: dict[int, Branch], wanted: Sequence[tuple[int, int]]) -> None:
    for number, ordinal in wanted:
        row = db.execute(
            "SELECT lineage FROM lineages l JOIN records r ON r.record = l.lineage * ? + ? WHERE l.number = ?",
            (ORDINALS, ordinal, number),
        ).fetchone()
        if row is not None and row[0] in branches:
            branches[row[0]].wanted.add(ordinal)


def _gone(change: Change) -> list[tuple[int, int]]:
    """Keys (first, last) of the records that a change takes away."""
    base = change.lineage * ORDINALS
    return [(base + first, base + last) for first, last in change.gaps()]


def _dropped(db: sqlite3.Connection, change: Change) -> tuple[int, int]:
    """How many records a change takes away, and their bytes; entries of logs are not counted, for most stay."""
    records = size = 0
    for span in _gone(change):
        sql = "SELECT count(*), total(length(meta) + length(data)) FROM records WHERE record BETWEEN ? AND ?"
        count, length = db.execute(sql, span).fetchone()
        sql = "SELECT total(length(data)) FROM snapshots WHERE record BETWEEN ? AND ?"
        records, size = records + count, size + int(length) + int(db.execute(sql, span).fetchone()[0])
    return records, size


def _apply(db: sqlite3.Connection, changes: Sequence[Change]) -> None:
    for change in changes:
        base = change.lineage * ORDINALS
        _mark_pruned(db, change)
        for span in _gone(change):
            for table in ("records", "snapshots", "effects"):
                db.execute(f"DELETE FROM {table} WHERE record BETWEEN ? AND ?", span)  # noqa: S608 – a constant
        db.executemany("DELETE FROM snapshots WHERE record = ?", [(base + n,) for n in change.islands])
        db.executemany("UPDATE records SET checkpoint = 0 WHERE record = ?", [(base + n,) for n in change.hidden])
        for (log,) in db.execute("SELECT log FROM logs WHERE lineage = ?", (change.lineage,)).fetchall():
            sql = "DELETE FROM items WHERE item >= ? AND item < ? AND record > ?"
            db.execute(sql, (log * ORDINALS, (log + 1) * ORDINALS, change.last))
        if change.gone:
            db.execute("DELETE FROM logs WHERE lineage = ?", (change.lineage,))
            db.execute("DELETE FROM lineages WHERE lineage = ?", (change.lineage,))


def _mark_pruned(db: sqlite3.Connection, change: Change) -> None:
    """Says up to where records are missing, before they are."""
    base, gaps = change.lineage * ORDINALS, change.gaps()
    newest = (
        db.execute(
            "SELECT max(record) FROM records WHERE record > ? AND record < ?", (base, base + ORDINALS)
        ).fetchone()[0]
        or base
    ) - base
    last = newest if newest >= gaps[-1][0] else gaps[-2][1] if len(gaps) > 1 else 0
    db.execute("UPDATE lineages SET pruned = max(pruned, ?) WHERE lineage = ?", (last, change.lineage))
