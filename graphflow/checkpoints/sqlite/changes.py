"""Changes of the SQLite store that are no commits: taking, forking, deleting, importing, the queue.

Each function runs in the writer's thread, inside its transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import export
from graphflow.checkpoints.rows import Lineage, Rewrite, Spent, ThreadFacts, ThreadRow, spent_from
from graphflow.checkpoints.sqlite.commits import (
    ADD_INTERRUPT,
    ADD_RUN,
    Rows,
    add_lineage,
    add_loose,
    add_record,
    add_spent,
)
from graphflow.checkpoints.sqlite.reader import find_checkpoint, reach
from graphflow.checkpoints.sqlite.rows import ORDINALS, clean, interrupt_values, pack, read_thread

_ADD_THREAD = (
    "INSERT OR REPLACE INTO threads (id, status, updated_at, head, lineage, ordinal, fence, run, document, agent_key, title,"
    " created_at, user_name, owner, lease_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 0)"
)
_BURY_THREAD = (
    "UPDATE threads SET status = NULL, updated_at = 0, head = NULL, lineage = NULL, ordinal = 0, owner = NULL,"
    " lease_until = 0, run = NULL, document = NULL, agent_key = NULL, title = NULL, created_at = 0, user_name = NULL WHERE id = ?"
)


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
    row = read_thread(db, thread_id)
    if row is None:
        if not create:
            raise refusals.unknown_thread(thread_id)
        add_thread(db, thread_id, ThreadFacts(status="idle", updated_at=now), now)
    elif row.owner is not None and row.lease_until > now and not is_dead(row.owner):
        raise refusals.busy(thread_id, row.lease_until, now)
    db.execute(
        "UPDATE threads SET owner = ?, lease_until = ?, fence = fence + 1 WHERE id = ?",
        (owner, now + lease_ms, pack(thread_id)),
    )
    taken = read_thread(db, thread_id)
    assert taken is not None
    return taken


def assign(db: sqlite3.Connection, thread_id: str, user: str, now: int) -> str | None:
    row = read_thread(db, thread_id)
    if row is not None:
        return row.facts.user
    add_thread(db, thread_id, ThreadFacts(status="idle", updated_at=now, user=user), now)
    return user


def add_thread(
    db: sqlite3.Connection,
    thread_id: str,
    facts: ThreadFacts,
    created_at: int,
    *,
    head: str | None = None,
    lineage: int | None = None,
    ordinal: int = 0,
    fence: int = 0,
) -> None:
    """A new row; a namesake that was deleted while somebody drove it leaves its fence to it."""
    name = pack(thread_id)
    grave = db.execute("SELECT fence FROM threads WHERE id = ?", (name,)).fetchone()
    values = (
        name,
        facts.status,
        facts.updated_at,
        pack(head),
        lineage,
        ordinal,
        fence if grave is None else max(fence, grave[0]),
        pack(facts.run_id),
        facts.document,
        facts.agent_key,
        clean(facts.title),
        created_at,
        facts.user,
    )
    db.execute(_ADD_THREAD, values)


def renew(db: sqlite3.Connection, owner: str, lease_until: int) -> None:
    db.execute("UPDATE threads SET lease_until = max(lease_until, ?) WHERE owner = ?", (lease_until, owner))


def release(db: sqlite3.Connection, thread_id: str, fence: int) -> None:
    db.execute("UPDATE threads SET owner = NULL, lease_until = 0 WHERE id = ? AND fence = ?", (pack(thread_id), fence))


def fork(
    db: sqlite3.Connection, checkpoint_id: str, source_id: str, thread_id: str, number: int, facts: ThreadFacts
) -> ThreadRow:  # fmt: skip
    """One row for the thread and one for its lineage, however long the history is."""
    if read_thread(db, source_id) is None:
        raise refusals.unknown_thread(source_id)
    found = find_checkpoint(db, source_id, checkpoint_id)
    if found is None:
        raise refusals.unknown_checkpoint(source_id, checkpoint_id)
    if read_thread(db, thread_id) is not None:
        raise refusals.exists(thread_id)
    parent, cut = found
    lineage = add_lineage(db, Lineage(number=number, thread_id=thread_id, parent=parent.number, cut=cut))
    add_thread(db, thread_id, facts, facts.updated_at, head=checkpoint_id, lineage=lineage)
    forked = read_thread(db, thread_id)
    assert forked is not None
    return forked


def delete_thread(db: sqlite3.Connection, thread_id: str) -> None:
    """Removes the thread, the lineages that nobody else reaches, and of the others the rows behind the last cut."""
    name = pack(thread_id)
    row = read_thread(db, thread_id)
    if row is None:
        return
    reached = sorted(reach(db, thread_id), reverse=True)  # children before parents
    db.execute("DELETE FROM threads WHERE id = ?" if row.owner is None else _BURY_THREAD, (name,))
    _forget_spender(db, name)
    for table in ("interrupts", "runs", "inputs"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (name,))  # noqa: S608 – a constant
    db.execute("UPDATE lineages SET thread = NULL WHERE thread = ?", (name,))
    children: dict[int, dict[int, int]] = {}
    for lineage, parent, cut in db.execute("SELECT lineage, parent, cut FROM lineages WHERE parent IS NOT NULL"):
        children.setdefault(parent, {})[lineage] = cut
    for lineage in reached:
        _drop_unreached(db, lineage, children)


_READ_SPENT = f"SELECT {', '.join(Spent.__struct_fields__)} FROM spent WHERE thread = ?"  # noqa: S608 – constants only


def _forget_spender(db: sqlite3.Connection, name: object) -> None:
    """What was used stays used; by which thread is not told any more."""
    rows = db.execute(_READ_SPENT, (name,)).fetchall()
    db.execute("DELETE FROM spent WHERE thread = ?", (name,))
    for row in rows:
        add_spent(db, "", spent_from(row))


def _drop_unreached(db: sqlite3.Connection, lineage: int, children: dict[int, dict[int, int]]) -> None:
    """Deletes a lineage without owner and children; one with children keeps what the longest of them shares.

    Args:
        children: parent → child → cut; a lineage that goes is taken out of it.
    """
    owner, parent = db.execute("SELECT thread, parent FROM lineages WHERE lineage = ?", (lineage,)).fetchone()
    if owner is not None:
        return
    keep = max(children.get(lineage, {}).values(), default=-1)
    first, last = lineage * ORDINALS + keep + 1, (lineage + 1) * ORDINALS
    for table in ("records", "snapshots", "effects"):
        db.execute(f"DELETE FROM {table} WHERE record >= ? AND record < ?", (first, last))  # noqa: S608 – a constant
    for (log,) in db.execute("SELECT log FROM logs WHERE lineage = ?", (lineage,)).fetchall():
        span = (log * ORDINALS, (log + 1) * ORDINALS, keep)
        db.execute("DELETE FROM items WHERE item >= ? AND item < ? AND record > ?", span)
    if keep < 0:
        db.execute("DELETE FROM logs WHERE lineage = ?", (lineage,))
        db.execute("DELETE FROM lineages WHERE lineage = ?", (lineage,))
        children.get(parent, {}).pop(lineage, None)


def put_document(db: sqlite3.Connection, digest: str, document: bytes) -> None:
    db.execute("INSERT OR IGNORE INTO documents (digest, data) VALUES (?, ?)", (digest, document))


def enqueue(
    db: sqlite3.Connection, thread_id: str, body: bytes, now: int, kind: str = "input", run_id: str | None = None
) -> int:
    if read_thread(db, thread_id) is None:
        raise refusals.unknown_thread(thread_id)
    values = (pack(thread_id), now, kind, body)
    position = db.execute("INSERT INTO inputs (thread, at, kind, body) VALUES (?, ?, ?, ?)", values).lastrowid
    assert position is not None
    if run_id is not None:
        db.execute(ADD_RUN, (pack(run_id), pack(thread_id)))
    return position


def withdraw(db: sqlite3.Connection, thread_id: str, position: int, run_id: str | None = None) -> bool:
    values = (position, pack(thread_id))
    if db.execute("DELETE FROM inputs WHERE position = ? AND thread = ?", values).rowcount != 1:
        return False
    if run_id is not None:
        db.execute("DELETE FROM runs WHERE run = ?", (pack(run_id),))
    return True


def dequeue(db: sqlite3.Connection, thread_id: str) -> bytes | None:
    sql = "SELECT position, body FROM inputs WHERE thread = ? AND kind = 'input' ORDER BY position LIMIT 1"
    row = db.execute(sql, (pack(thread_id),)).fetchone()
    if row is None:
        return None
    db.execute("DELETE FROM inputs WHERE position = ?", (row[0],))
    return bytes(row[1])


def import_thread(
    db: sqlite3.Connection, exported: export.ThreadCopy, thread_id: str | None, change: Rewrite | None = None
) -> str:  # fmt: skip
    def is_taken(number: int) -> bool:
        return db.execute("SELECT 1 FROM lineages WHERE number = ?", (number,)).fetchone() is not None

    copy = export.placed(exported, thread_id, is_taken, change)
    row = copy.thread
    name = row.thread_id
    if read_thread(db, name) is not None:
        raise refusals.exists(name)
    lineages = {lineage.number: add_lineage(db, lineage) for lineage in copy.lineages}
    logs: dict[int, dict[tuple[int, str], int]] = {number: {} for number in lineages}
    rows = Rows()
    for record in copy.records:
        add_record(db, rows, record, lineages[record.lineage], logs[record.lineage])
    for item in copy.items:
        add_loose(db, rows, item, lineages[item.lineage], logs[item.lineage])
    rows.write(db)
    pruned = [(ordinal, lineages[number]) for number, ordinal in export.last_gaps(copy).items()]
    db.executemany("UPDATE lineages SET pruned = ? WHERE lineage = ?", pruned)
    add_thread(
        db,
        name,
        row.facts,
        row.created_at,
        head=row.head,
        lineage=None if row.lineage is None else lineages[row.lineage],
        ordinal=row.ordinal,
        fence=row.fence,
    )
    db.executemany(ADD_INTERRUPT, [interrupt_values(interrupt) for interrupt in copy.interrupts])
    db.executemany(ADD_RUN, [(pack(run), pack(name)) for run in copy.runs])
    for queued in copy.queue:
        enqueue(db, name, queued.body, queued.at, queued.kind)
    for document in copy.documents:
        put_document(db, document.digest, document.data)
    return name
