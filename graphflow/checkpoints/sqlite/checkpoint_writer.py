"""Queued commits as rows: the compare-and-swap of E3, and several commits of one thread as one update of its row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.commit_queue import Promise
from graphflow.checkpoints.ids import check_text, clean_title
from graphflow.checkpoints.rows import Lineage, LooseItem, Record
from graphflow.checkpoints.sql.rows import ADD_INTERRUPT, ADD_RUN, ADD_SPENT, interrupt_values
from graphflow.checkpoints.sqlite.checkpoint_reader import is_loadable
from graphflow.checkpoints.sqlite.driver import rows_of
from graphflow.checkpoints.sqlite.rows import key, pack, unpack
from graphflow.errors import StoreError

ADD_RECORD = "INSERT INTO records (record, id, checkpoint, size, meta, data) VALUES "
ADD_ITEM = "INSERT INTO items (item, record, data) VALUES "
ADD_EFFECT = "INSERT INTO effects (record) VALUES "
ADD_SNAPSHOT = "INSERT INTO snapshots (record, data) VALUES "
_MOVE_HEAD = "UPDATE threads SET head = ?, ordinal = ? WHERE id = ? AND fence = ? AND head IS ? AND owner IS NOT NULL"
"""Names no indexed column: one page less is written per commit."""
_MOVE_ALL = (
    "UPDATE threads SET head = ?, ordinal = ?, status = ?, updated_at = ?, lineage = ?, run = ?, document = ?,"
    " agent_key = ?, title = ?, owner = CASE WHEN ? THEN NULL ELSE owner END,"
    " lease_until = CASE WHEN ? THEN 0 ELSE lease_until END"
    " WHERE id = ? AND fence = ? AND head IS ? AND owner IS NOT NULL"
)
"""For a commit that changes more than most do."""


class SqliteEpoch:
    """What the writer remembers of a thread that it commits to, so that a commit reads nothing."""

    __slots__ = (
        "fence", "head", "lineage", "logs", "name", "number", "ordinal", "packed_head", "rare", "released", "run_id"
    )  # fmt: skip

    def __init__(
        self, name: Any, fence: int, packed_head: Any, lineage: int | None, number: int | None, ordinal: int
    ) -> None:  # fmt: skip
        self.name = name
        """The thread's id as it is stored."""
        self.fence = fence
        self.head: str | None = unpack(packed_head)
        self.packed_head = packed_head
        self.lineage = lineage
        """The file's own number."""
        self.number = number
        self.ordinal = ordinal
        self.logs: dict[tuple[int, str], int] = {}
        """(frame, channel) → log, of this lineage."""
        self.rare: tuple[Any, ...] | None = None
        """The values of the thread's row that few commits change, as they were written last."""
        self.run_id: str | None = None
        """The last that the index of runs was told of."""
        self.released = False


class RowBatch:
    """The rows of one transaction, written table by table."""

    __slots__ = ("effects", "items", "records", "snapshots")

    def __init__(self) -> None:
        self.effects: list[tuple[Any, ...]] = []
        self.records: list[tuple[Any, ...]] = []
        self.items: list[tuple[Any, ...]] = []
        self.snapshots: list[tuple[Any, ...]] = []

    def write(self, db: sqlite3.Connection) -> None:
        if self.records:
            _insert(db, ADD_RECORD, self.records)
        if self.items:
            _insert(db, ADD_ITEM, self.items)
        if self.snapshots:
            _insert(db, ADD_SNAPSHOT, self.snapshots)
        if self.effects:
            _insert(db, ADD_EFFECT, self.effects)


ROWS_AT_ONCE = (64, 8, 1)
"""Rows per statement: a few fixed sizes, so that each is prepared once."""


def _insert(db: sqlite3.Connection, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts the rows in as few statements as possible.

    Every statement releases the interpreter lock and has to reacquire it from a busy event loop: with one row each, that
    costs more than the write.
    """
    at = 0
    for size in ROWS_AT_ONCE:
        while len(rows) - at >= size:
            part = rows[at : at + size]
            places = ", ".join(["(" + ", ".join("?" * len(part[0])) + ")"] * size)
            db.execute(into + places, [value for row in part for value in row])
            at += size


class SqliteCheckpointWriter:
    """Applies commits to the database; lives in the writer's thread."""

    def __init__(self) -> None:
        self.epochs: dict[str, SqliteEpoch] = {}
        self.broken: dict[str, int] = {}
        """Thread → fence of which a commit failed, so that every later one does."""
        self._breaking: dict[str, int] = {}
        """The same of the transaction that is under way: a rollback undoes it, for the commits are tried again."""

    def confirm(self) -> None:
        """After the transaction's COMMIT."""
        if self._breaking:
            self.broken.update(self._breaking)
            self._breaking.clear()

    def forget(self) -> None:
        """After a rollback what is remembered may be wrong."""
        self.epochs.clear()
        self._breaking.clear()

    def apply(self, db: sqlite3.Connection, promises: Sequence[Promise]) -> None:
        """Writes what passes the compare-and-swap; the others carry their error.

        Raises:
            StoreError: a commit breaks a rule of the port; nothing of the transaction may be kept.
        """
        rows = RowBatch()
        runs: dict[tuple[str, int], list[Promise]] = {}
        for promise in promises:
            promise.error = None
            epoch = (promise.thread_id, promise.fence)
            run = runs.get(epoch)
            # A lineage is inserted before the head moves to it, so a commit that begins one starts a new update of the
            # thread.
            if run is None or promise.begins is not None:
                if run is not None:
                    self._run(db, rows, run)
                runs[epoch] = [promise]
            else:
                run.append(promise)
        for run in runs.values():
            self._run(db, rows, run)
        rows.write(db)

    def _run(self, db: sqlite3.Connection, rows: RowBatch, run: list[Promise]) -> None:
        """The commits of one epoch, in order, of which only the first may begin a lineage: one update of the thread."""
        epoch = self._epoch_of(db, run[0])
        if isinstance(epoch, StoreError):
            self._refuse(run, epoch)
            return
        before = epoch.packed_head
        passed, failure = _advance(db, epoch, run)
        # The compare-and-swap is this one UPDATE: what is remembered of the thread only decides what to try.
        if passed and not _move_head(db, epoch, before, run[passed - 1]):
            failure = _why_fenced(db, run[0]) or errors.fenced_head(run[0].thread_id, run[0].expected_head, None)
            passed = 0
        # Rows follow only once the head has moved: a fenced process must not leave records behind.
        for promise in run[:passed]:
            _add(db, rows, epoch, promise)
        if failure is not None:
            self._refuse(run[passed:], failure)
        if epoch.released or failure is not None:
            self.epochs.pop(run[0].thread_id, None)

    def _epoch_of(self, db: sqlite3.Connection, promise: Promise) -> SqliteEpoch | StoreError:
        """What is known of the thread, or why it isn't this epoch's.

        Read anew where a lineage begins: it is inserted before the update that compares and swaps.
        """
        thread_id, fence = promise.thread_id, promise.fence
        if fence in (self.broken.get(thread_id), self._breaking.get(thread_id)):
            return errors.fenced_earlier(thread_id, fence)
        epoch = self.epochs.get(thread_id)
        # The usual way: nothing is read, for nobody else can have moved the head of this fence.
        if epoch is not None and epoch.fence == fence and promise.begins is None:
            return epoch
        refusal = _why_fenced(db, promise)
        if refusal is not None:
            return refusal
        row = _read_head(db, pack(thread_id))
        epoch = self.epochs[thread_id] = SqliteEpoch(pack(thread_id), *row[:5])
        return epoch

    def _refuse(self, promises: Sequence[Promise], error: StoreError) -> None:
        """The first gets the reason, those after it that they come after it."""
        for promise in promises:
            promise.error = error
            self._breaking[promise.thread_id] = promise.fence
            error = errors.fenced_earlier(promise.thread_id, promise.fence)


def _read_head(db: sqlite3.Connection, name: Any) -> Any:
    return db.execute(
        "SELECT t.fence, t.head, t.lineage, l.number, t.ordinal, t.owner FROM threads t"
        " LEFT JOIN lineages l ON l.lineage = t.lineage WHERE t.id = ? AND t.status IS NOT NULL",
        (name,),
    ).fetchone()


def _why_fenced(db: sqlite3.Connection, promise: Promise) -> StoreError | None:
    """Why the thread is no longer this epoch's; None when it is."""
    thread_id, fence = promise.thread_id, promise.fence
    row = _read_head(db, pack(thread_id))
    if row is None:
        return errors.fenced_gone(thread_id, fence)
    if row[0] != fence:
        return errors.fenced_epoch(thread_id, fence, row[0])
    if row[5] is None:
        return errors.fenced_released(thread_id, fence)
    return None


def _advance(db: sqlite3.Connection, epoch: SqliteEpoch, run: Sequence[Promise]) -> tuple[int, StoreError | None]:
    """Moves the epoch along the commits; how many pass, and why the next does not."""
    for index, promise in enumerate(run):
        if epoch.released:
            return index, errors.fenced_released(promise.thread_id, promise.fence)
        if epoch.head != promise.expected_head:
            return index, errors.fenced_head(promise.thread_id, promise.expected_head, epoch.head)
        if promise.begins is not None:
            epoch.lineage, epoch.number = _begin(db, promise.begins), promise.begins.number
            epoch.ordinal = 0
        for record in promise.records:
            epoch.ordinal += 1
            if record.lineage != epoch.number:
                raise errors.wrong_lineage(promise.thread_id, record.lineage, epoch.number)
            if record.ordinal != epoch.ordinal:
                raise errors.wrong_ordinal(promise.thread_id, record.ordinal, epoch.ordinal)
            epoch.head = record.id
        epoch.released = promise.release
    return len(run), None


def _move_head(db: sqlite3.Connection, epoch: SqliteEpoch, before: Any, last: Promise) -> bool:
    """The compare-and-swap; False when the thread is no longer this epoch's."""
    facts = last.facts
    epoch.packed_head = pack(epoch.head)
    rare = (
        facts.status, facts.updated_at, epoch.lineage, facts.run_id, facts.document, facts.agent_key, facts.title, last.release
    )  # fmt: skip
    moved = (epoch.packed_head, epoch.ordinal)
    guard = (epoch.name, epoch.fence, before)
    if rare == epoch.rare:
        return db.execute(_MOVE_HEAD, moved + guard).rowcount == 1
    check_text(facts.status, facts.document, facts.agent_key)
    epoch.rare = rare
    values = (
        facts.status,
        facts.updated_at,
        epoch.lineage,
        pack(facts.run_id),
        facts.document,
        facts.agent_key,
        clean_title(facts.title),
        last.release,
        last.release,
    )
    return db.execute(_MOVE_ALL, moved + values + guard).rowcount == 1


def _add(db: sqlite3.Connection, rows: RowBatch, epoch: SqliteEpoch, promise: Promise) -> None:
    """Everything of a commit that is not in the thread's row."""
    for record in promise.records:
        assert epoch.lineage is not None
        add_record(db, rows, record, epoch.lineage, epoch.logs)
        if record.closed or record.opened:
            _interrupts(db, epoch.name, record)
        if record.spent is not None:
            rows_of(db, ADD_SPENT(promise.thread_id, *msgspec.structs.astuple(record.spent)))
    run_id = promise.facts.run_id
    if run_id is not None and run_id != epoch.run_id:
        rows_of(db, ADD_RUN(run_id, promise.thread_id))
        epoch.run_id = run_id
    if promise.consumes is not None:
        values = (promise.consumes, epoch.name)
        if db.execute("DELETE FROM inputs WHERE position = ? AND thread = ?", values).rowcount != 1:
            raise errors.queue_gone(promise.thread_id, promise.consumes)


def _begin(db: sqlite3.Connection, begins: Lineage) -> int:
    """The file's own number of a lineage that goes on from a record that is there."""
    lineage = add_lineage(db, begins)
    parent = db.execute("SELECT parent FROM lineages WHERE lineage = ?", (lineage,)).fetchone()[0]
    if parent is not None and not is_loadable(db, parent, begins.cut):
        raise errors.pruned_parent(begins.number, begins.parent or 0, begins.cut)
    return lineage


def add_lineage(db: sqlite3.Connection, lineage: Lineage) -> int:
    """The file's own number of a new lineage."""
    if db.execute("SELECT 1 FROM lineages WHERE number = ?", (lineage.number,)).fetchone():
        raise errors.number_taken(lineage.number)
    parent = None
    if lineage.parent is not None:
        row = db.execute("SELECT lineage FROM lineages WHERE number = ?", (lineage.parent,)).fetchone()
        if row is None:
            raise errors.unknown_parent(lineage.number, lineage.parent)
        parent = row[0]
    values = (lineage.number, pack(lineage.thread_id), parent, lineage.cut)
    added = db.execute("INSERT INTO lineages (number, thread, parent, cut) VALUES (?, ?, ?, ?)", values).lastrowid
    assert added is not None
    return added


def add_record(
    db: sqlite3.Connection, rows: RowBatch, record: Record, lineage: int, logs: dict[tuple[int, str], int]
) -> None:  # fmt: skip
    """The record, its items and its snapshot; `logs` goes on with the logs that are new."""
    ordinal = record.ordinal
    size = len(record.meta) + len(record.data)
    for item in record.items:
        size += len(item.data)
        log = logs.get((item.frame, item.channel))
        if log is None:
            log = logs[item.frame, item.channel] = _log(db, lineage, item.frame, item.channel)
        rows.items.append((key(log, item.ordinal), ordinal, item.data))
    place = key(lineage, ordinal)
    if record.snapshot is not None:
        size += len(record.snapshot)
        rows.snapshots.append((place, record.snapshot))
    if record.effect:
        rows.effects.append((place,))
    rows.records.append((place, pack(record.id), record.checkpoint, size, record.meta, record.data))


def add_loose(
    db: sqlite3.Connection, rows: RowBatch, item: LooseItem, lineage: int, logs: dict[tuple[int, str], int]
) -> None:  # fmt: skip
    """An entry whose record was pruned."""
    log = logs.get((item.frame, item.channel))
    if log is None:
        log = logs[item.frame, item.channel] = _log(db, lineage, item.frame, item.channel)
    rows.items.append((key(log, item.ordinal), item.record, item.data))


def _log(db: sqlite3.Connection, lineage: int, frame: int, channel: str) -> int:
    check_text(channel)
    values = (lineage, frame, channel)
    row = db.execute("SELECT log FROM logs WHERE lineage = ? AND frame = ? AND channel = ?", values).fetchone()
    if row is not None:
        return int(row[0])
    added = db.execute("INSERT INTO logs (lineage, frame, channel) VALUES (?, ?, ?)", values).lastrowid
    assert added is not None
    return added


def _interrupts(db: sqlite3.Connection, thread: Any, record: Record) -> None:
    for interrupt_id in record.closed:
        db.execute("DELETE FROM interrupts WHERE thread = ? AND id = ?", (thread, pack(interrupt_id)))
    for interrupt in record.opened:
        rows_of(db, ADD_INTERRUPT(*interrupt_values(interrupt)))
