"""Queued commits as rows: the compare-and-swap of E3, and several commits of one thread as one update of its row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from graphflow.checkpoints import refusals
from graphflow.checkpoints._sqlite_rows import INTERRUPT_COLUMNS, interrupt_values, key, pack, unpack
from graphflow.checkpoints.port import Lineage, Record
from graphflow.errors import GraphflowError

if TYPE_CHECKING:
    from graphflow.checkpoints._sqlite_worker import Promise

ADD_RECORD = "INSERT INTO records (record, id, checkpoint, size, meta, data) VALUES (?, ?, ?, ?, ?, ?)"
ADD_ITEM = "INSERT INTO items (item, record, data) VALUES (?, ?, ?)"
ADD_SNAPSHOT = "INSERT INTO snapshots (record, data) VALUES (?, ?)"
ADD_RUN = "INSERT OR IGNORE INTO runs (run, thread) VALUES (?, ?)"
ADD_INTERRUPT = f"INSERT OR REPLACE INTO interrupts ({INTERRUPT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 – constants only

_MOVE_HEAD = (
    "UPDATE threads SET status = ?, run = ?, document = ?, agent_key = ?, title = ?, updated_at = ?, head = ?,"
    " lineage = ?, ordinal = ?, owner = CASE WHEN ? THEN NULL ELSE owner END,"
    " lease_until = CASE WHEN ? THEN 0 ELSE lease_until END"
    " WHERE id = ? AND fence = ? AND head IS ? AND owner IS NOT NULL"
)


class Life:
    """What the writer remembers of a thread that it commits to, so that a commit reads nothing."""

    __slots__ = ("fence", "head", "lineage", "logs", "number", "ordinal", "released", "run_id")

    def __init__(self, fence: int, head: str | None, lineage: int | None, number: int | None, ordinal: int) -> None:
        self.fence = fence
        self.head = head
        self.lineage = lineage
        """The file's own number."""
        self.number = number
        self.ordinal = ordinal
        self.logs: dict[tuple[int, str], int] = {}
        """(frame, channel) → log, of this lineage."""
        self.run_id: str | None = None
        """The last that the index of runs was told of."""
        self.released = False


class Rows:
    """Rows of one transaction, written table by table."""

    __slots__ = ("items", "records", "snapshots")

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.items: list[tuple[Any, ...]] = []
        self.snapshots: list[tuple[Any, ...]] = []

    def write(self, db: sqlite3.Connection) -> None:
        if self.records:
            db.executemany(ADD_RECORD, self.records)
        if self.items:
            db.executemany(ADD_ITEM, self.items)
        if self.snapshots:
            db.executemany(ADD_SNAPSHOT, self.snapshots)


class Commits:
    """Applies commits to the database; lives in the writer's thread."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.broken: dict[str, int] = {}
        """Thread → fence of which a commit failed, so that every later one does."""

    def forget(self) -> None:
        """After a rollback what is remembered may be wrong."""
        self.lives.clear()

    def taken(self, thread_id: str) -> None:
        """Somebody took, gave back or removed the thread."""
        self.lives.pop(thread_id, None)
        self.broken.pop(thread_id, None)

    def apply(self, db: sqlite3.Connection, promises: Sequence[Promise]) -> None:
        """Writes what passes the compare-and-swap; the others carry their error."""
        rows = Rows()
        by_thread: dict[str, list[Promise]] = {}
        for promise in promises:
            promise.error = None
            by_thread.setdefault(promise.thread_id, []).append(promise)
        for thread_id, group in by_thread.items():
            for fence, run in groupby(group, attrgetter("fence")):
                self._run(db, rows, thread_id, fence, list(run))
        rows.write(db)

    def _run(self, db: sqlite3.Connection, rows: Rows, thread_id: str, fence: int, run: list[Promise]) -> None:
        """Commits of one life, in order: up to the first that fails they are one update of the thread."""
        life = self._life(db, thread_id, fence, fresh=any(promise.begins is not None for promise in run))
        if isinstance(life, GraphflowError):
            self._refuse(run, life)
            return
        before = life.head
        steps: list[Step] = []
        failure: GraphflowError | None = None
        for promise in run:
            failure = _objection(life, promise)
            if failure is not None:
                break
            if promise.begins is not None:
                _begin(db, life, promise.begins)
            _advance(life, promise)
            steps.append((promise, life.lineage, life.logs))
        if steps and not _move_head(db, life, before, steps[-1][0]):
            failure, steps = _explain(db, thread_id, fence, before), []
        for step in steps:
            _add(db, rows, life, *step)
        if failure is not None:
            self._refuse(run[len(steps) :], failure)
        if life.released or not steps:
            self.lives.pop(thread_id, None)

    def _life(self, db: sqlite3.Connection, thread_id: str, fence: int, *, fresh: bool) -> Life | GraphflowError:
        """What is known of the thread; read anew where the compare-and-swap must be sure before anything is written."""
        if self.broken.get(thread_id) == fence:
            return refusals.fenced_earlier(thread_id, fence)
        life = self.lives.get(thread_id)
        if life is not None and life.fence == fence and not fresh:
            return life
        row = _read_head(db, thread_id)
        if row is None:
            return refusals.fenced_gone(thread_id, fence)
        if row[0] != fence:
            return refusals.fenced_life(thread_id, fence, row[0])
        if row[5] is None:
            return refusals.fenced_released(thread_id, fence)
        life = self.lives[thread_id] = Life(fence, unpack(row[1]), *row[2:5])
        return life

    def _refuse(self, promises: Sequence[Promise], error: GraphflowError) -> None:
        """The first gets the reason, those after it that they come after it."""
        for promise in promises:
            promise.error = error
            self.broken[promise.thread_id] = promise.fence
            error = refusals.fenced_earlier(promise.thread_id, promise.fence)


Step = tuple["Promise", int | None, dict[tuple[int, str], int]]
"""A commit that passed, its lineage in the file, and that lineage's logs."""


def _read_head(db: sqlite3.Connection, thread_id: str) -> Any:
    return db.execute(
        "SELECT t.fence, t.head, t.lineage, l.number, t.ordinal, t.owner"
        " FROM threads t LEFT JOIN lineages l ON l.lineage = t.lineage WHERE t.id = ?",
        (pack(thread_id),),
    ).fetchone()


def _objection(life: Life, promise: Promise) -> GraphflowError | None:
    if life.released:
        return refusals.fenced_released(promise.thread_id, promise.fence)
    if life.head != promise.expected_head:
        return refusals.fenced_head(promise.thread_id, promise.expected_head, life.head)
    return None


def _explain(db: sqlite3.Connection, thread_id: str, fence: int, expected: str | None) -> GraphflowError:
    """Why the update found no row."""
    row = _read_head(db, thread_id)
    if row is None:
        return refusals.fenced_gone(thread_id, fence)
    if row[0] != fence:
        return refusals.fenced_life(thread_id, fence, row[0])
    if row[5] is None:
        return refusals.fenced_released(thread_id, fence)
    return refusals.fenced_head(thread_id, expected, unpack(row[1]))


def add_lineage(db: sqlite3.Connection, lineage: Lineage) -> int:
    """The file's own number of a new lineage."""
    if db.execute("SELECT 1 FROM lineages WHERE number = ?", (lineage.number,)).fetchone():
        raise refusals.number_taken(lineage.number)
    parent = None
    if lineage.parent is not None:
        row = db.execute("SELECT lineage FROM lineages WHERE number = ?", (lineage.parent,)).fetchone()
        if row is None:
            raise refusals.unknown_parent(lineage.number, lineage.parent)
        parent = row[0]
    values = (lineage.number, pack(lineage.thread_id), parent, lineage.cut)
    added = db.execute("INSERT INTO lineages (number, thread, parent, cut) VALUES (?, ?, ?, ?)", values).lastrowid
    assert added is not None
    return added


def _begin(db: sqlite3.Connection, life: Life, lineage: Lineage) -> None:
    life.lineage, life.number, life.ordinal, life.logs = add_lineage(db, lineage), lineage.number, 0, {}


def _advance(life: Life, promise: Promise) -> None:
    """The life after the commit; refuses records that do not follow without a gap."""
    for record in promise.records:
        if record.lineage != life.number:
            raise refusals.wrong_lineage(promise.thread_id, record.lineage, life.number)
        life.ordinal += 1
        if record.ordinal != life.ordinal:
            raise refusals.wrong_ordinal(promise.thread_id, record.ordinal, life.ordinal)
        life.head = record.id
    life.released = promise.release


def _move_head(db: sqlite3.Connection, life: Life, before: str | None, last: Promise) -> bool:
    """The compare-and-swap; False when the thread is no longer this life's."""
    facts = last.facts
    values = (
        facts.status,
        pack(facts.run_id),
        facts.document,
        facts.agent_key,
        facts.title and facts.title.encode("utf-8", "replace").decode(),  # SQLite's texts have no lone surrogates
        facts.updated_at,
        pack(life.head),
        life.lineage,
        life.ordinal,
        last.release,
        last.release,
        pack(last.thread_id),
        last.fence,
        pack(before),
    )
    return db.execute(_MOVE_HEAD, values).rowcount == 1


def _add(
    db: sqlite3.Connection,
    rows: Rows,
    life: Life,
    promise: Promise,
    lineage: int | None,
    logs: dict[tuple[int, str], int],
) -> None:
    """Everything of a commit that is not in the thread's row."""
    for record in promise.records:
        assert lineage is not None
        add_record(db, rows, record, lineage, logs)
        if record.opened or record.closed:
            _interrupts(db, promise.thread_id, record)
    run_id = promise.facts.run_id
    if run_id is not None and run_id != life.run_id:
        db.execute(ADD_RUN, (pack(run_id), pack(promise.thread_id)))
        life.run_id = run_id
    if promise.consumes is not None:
        values = (promise.consumes, pack(promise.thread_id))
        if db.execute("DELETE FROM inputs WHERE position = ? AND thread = ?", values).rowcount != 1:
            raise refusals.queue_gone(promise.thread_id, promise.consumes)


def add_record(
    db: sqlite3.Connection, rows: Rows, record: Record, lineage: int, logs: dict[tuple[int, str], int]
) -> None:  # fmt: skip
    """The record, its items and its snapshot; `logs` goes on with the logs that are new."""
    size = len(record.meta) + len(record.data)
    for item in record.items:
        size += len(item.data)
        log = logs.get((item.frame, item.channel))
        if log is None:
            log = logs[item.frame, item.channel] = _log(db, lineage, item.frame, item.channel)
        rows.items.append((key(log, item.ordinal), record.ordinal, item.data))
    place = key(lineage, record.ordinal)
    if record.snapshot is not None:
        size += len(record.snapshot)
        rows.snapshots.append((place, record.snapshot))
    rows.records.append((place, pack(record.id), record.checkpoint, size, record.meta, record.data))


def _log(db: sqlite3.Connection, lineage: int, frame: int, channel: str) -> int:
    values = (lineage, frame, channel)
    row = db.execute("SELECT log FROM logs WHERE lineage = ? AND frame = ? AND channel = ?", values).fetchone()
    if row is not None:
        return int(row[0])
    added = db.execute("INSERT INTO logs (lineage, frame, channel) VALUES (?, ?, ?)", values).lastrowid
    assert added is not None
    return added


def _interrupts(db: sqlite3.Connection, thread_id: str, record: Record) -> None:
    for interrupt_id in record.closed:
        db.execute("DELETE FROM interrupts WHERE thread = ? AND id = ?", (pack(thread_id), pack(interrupt_id)))
    for interrupt in record.opened:
        db.execute(ADD_INTERRUPT, interrupt_values(interrupt))
