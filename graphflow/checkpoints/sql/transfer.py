"""A whole thread out of a store and into it, for exports and imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from graphflow.checkpoints import errors, export
from graphflow.checkpoints.export import QueuedEntry, StoredDocument, ThreadCopy, named_documents
from graphflow.checkpoints.rows import Lineage, LogItem, LooseItem, Record, Rewrite
from graphflow.checkpoints.sql.changes import NUMBER, PUT_DOCUMENT, add_lineage
from graphflow.checkpoints.sql.lists import READ_DOCUMENT
from graphflow.checkpoints.sql.rows import (
    ADD_INTERRUPT,
    ADD_RUN,
    INTERRUPT_COLUMNS,
    INTERRUPT_TYPES,
    READ_THREAD,
    add_thread,
    interrupt_row,
    interrupt_values,
    thread_row,
)
from graphflow.checkpoints.sql.statement import Dialect, Rows, SharedStatement, Work, one
from graphflow.checkpoints.sql.trees import reach

T = TypeVar("T")
_INTERRUPTS = SharedStatement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE thread = $1 ORDER BY opened_at, id",  # noqa: S608 – constants only
    "d",
    INTERRUPT_TYPES,
)
_INPUTS = SharedStatement(
    "SELECT body, at, kind FROM @.inputs WHERE thread = $1 AND kind <> 'webhook' ORDER BY position", "d", "yit"
)
_RUNS = SharedStatement("SELECT run FROM @.runs WHERE thread = $1 ORDER BY run", "d", "d")
ROWS_AT_ONCE = 500
"""Rows that are sent together."""


def copy_thread(db: Dialect, thread_id: str) -> Work[ThreadCopy]:
    """Everything of the thread, for an export."""
    rows = yield from one(READ_THREAD(thread_id))
    if not rows:
        raise errors.unknown_thread(thread_id)
    interrupts, inputs, runs = yield [_INTERRUPTS(thread_id), _INPUTS(thread_id), _RUNS(thread_id)]
    copy = ThreadCopy(
        thread=thread_row(rows[0]),
        interrupts=[interrupt_row(row) for row in interrupts],
        queue=[QueuedEntry(body=body, at=at, kind=kind) for body, at, kind in inputs],
        runs=[run for (run,) in runs],
    )
    for step in (yield from reach(thread_id)):
        copy.lineages.append(Lineage(number=step.number, thread_id=thread_id, parent=step.parent, cut=step.cut))
        upto = NO_LIMIT if step.upto is None else step.upto
        records, entries = yield [db.whole_records(step.number, upto), db.whole_items(step.number, upto)]
        _add_rows(copy, step.number, records, entries)
    for digest in named_documents(copy):
        for (data,) in (yield from one(READ_DOCUMENT(digest))):
            copy.documents.append(StoredDocument(digest=digest, data=data))
    return copy


NO_LIMIT = (1 << 31) - 1


def _add_rows(copy: ThreadCopy, number: int, records: Rows, entries: Rows) -> None:
    """The lineage's records with their items and snapshots, and the entries whose records were pruned."""
    items: dict[int, list[LogItem]] = {row[0]: [] for row in records}
    for record, frame, channel, ordinal, data in entries:
        if record in items:
            items[record].append(LogItem(frame, channel, ordinal, data))
        else:
            loose = LooseItem(
                lineage=number, record=record, frame=frame, channel=channel, ordinal=ordinal, data=data
            )  # fmt: skip
            copy.items.append(loose)
    copy.records += [
        Record(
            id=id_, lineage=number, ordinal=ordinal, checkpoint=checkpoint, meta=meta, data=data,
            items=tuple(items[ordinal]), snapshot=snapshot, effect=effect,
        )
        for ordinal, id_, checkpoint, meta, data, snapshot, effect in records
    ]  # fmt: skip


def import_thread(db: Dialect, exported: ThreadCopy, thread_id: str | None, change: Rewrite | None) -> Work[str]:
    name = thread_id or exported.thread.thread_id
    numbers = [lineage.number for lineage in exported.lineages]
    found = yield [*db.share_trees, READ_THREAD(name), *[NUMBER(number) for number in numbers]]
    there, *taken = found[len(db.share_trees) :]
    if there:
        raise errors.exists(name)
    # A fresh number is 62 random bits, so only those that the export brings along can collide.
    used = {number for number, rows in zip(numbers, taken, strict=True) if rows}
    copy = export.placed(exported, thread_id, used.__contains__, change)
    row, pruned = copy.thread, export.last_gaps(copy)
    # Parents come first in an export, as they began: a lineage must find its parent.
    for lineage in copy.lineages:
        yield [add_lineage(lineage, pruned.get(lineage.number, 0))]
        for part in _parts([record for record in copy.records if record.lineage == lineage.number]):
            yield db.add_records(lineage.number, part)
    for loose in _parts(copy.items):
        yield db.add_items(loose)
    # The thread follows its rows: until it is there, nobody reaches what was imported so far.
    added, *_ = yield [
        add_thread(
            name, row.facts, row.created_at, head=row.head, lineage=row.lineage, ordinal=row.ordinal, fence=row.fence
        ),
        *[ADD_INTERRUPT(*interrupt_values(interrupt)) for interrupt in copy.interrupts],
        *[ADD_RUN(run, name) for run in copy.runs],
    ]
    if not added:
        raise errors.exists(name)
    for queued in _parts(copy.queue):
        yield [db.enqueue(name, entry.at, entry.kind, entry.body) for entry in queued]
    for document in copy.documents:
        yield [PUT_DOCUMENT(document.digest, document.data)]
    return name


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[at : at + ROWS_AT_ONCE]
