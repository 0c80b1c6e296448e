"""A thread as one JSON-lines file, loss-free, whatever the back end (spec 4.1).

A store makes a `ThreadCopy` in one consistent read and stores one in one transaction; this module is
the way between a copy and its lines. Bytes are base64, so a line is plain JSON. The first line names the
format and its version, the last one counts the lines, so a file that was cut off is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from graphflow.checkpoints import record_decoder
from graphflow.checkpoints.blobs import changed_facts, changed_interrupt, changed_record, item_place
from graphflow.checkpoints.rows import Lineage, LooseItem, OpenInterrupt, Place, Record, Rewrite, ThreadRow
from graphflow.errors import StoreError
from graphflow.excerpts import excerpt_of
from graphflow.id_rule import check_id

FORMAT = "graphflow-thread"
VERSION = 1


class QueuedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One input that waits for its turn."""

    body: bytes
    at: int
    """Epoch ms."""
    kind: str = "input"


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    data: bytes


class ThreadCopy(msgspec.Struct, kw_only=True):
    """Everything that a store holds of one thread: its own lineages, and its ancestors' up to the cuts.

    Not the ledger: what was used stays with the store in which it was used, as it stays when a thread is deleted.
    """

    thread: ThreadRow
    documents: list[StoredDocument] = msgspec.field(default_factory=list)
    """The one that the thread is pinned to, and those of its past that records name (see `named_documents`)."""
    lineages: list[Lineage] = msgspec.field(default_factory=list)
    """Parents before children."""
    records: list[Record] = msgspec.field(default_factory=list)
    """With their items and snapshots; open interrupts are listed below instead of in `opened`."""
    items: list[LooseItem] = msgspec.field(default_factory=list)
    interrupts: list[OpenInterrupt] = msgspec.field(default_factory=list)
    queue: list[QueuedEntry] = msgspec.field(default_factory=list)
    runs: list[str] = msgspec.field(default_factory=list)


_ROWS: Mapping[Any, tuple[str, type[msgspec.Struct]]] = {
    "document": ("documents", StoredDocument),
    "lineage": ("lineages", Lineage),
    "record": ("records", Record),
    "item": ("items", LooseItem),
    "interrupt": ("interrupts", OpenInterrupt),
    "input": ("queue", QueuedEntry),
}
"""The kind of a line → the list of a copy that it belongs to and what it holds, in the order of an export."""


def named_documents(copy: ThreadCopy) -> list[str]:
    """Hashes of the documents that have to go along: of the version that the thread is pinned to, and of those before.

    Records that are encrypted name none.
    """
    pinned = copy.thread.facts.document
    named = [] if pinned is None else [pinned]
    for record in copy.records:
        named += record_decoder.named_documents(record.data, record.snapshot)
    return list(dict.fromkeys(named))


def to_lines(copy: ThreadCopy) -> Iterator[dict[str, Any]]:
    """The lines of a copy, in the order in which `from_lines` wants them."""
    count = 2
    thread = msgspec.to_builtins(copy.thread)
    if copy.thread.facts.about is None:  # a field that earlier versions do not have
        del thread["facts"]["about"]
    yield {"kind": FORMAT, "version": VERSION, "thread": thread, "runs": copy.runs}
    for kind, (field, _) in _ROWS.items():
        for row in getattr(copy, field):
            count += 1
            yield {"kind": kind, "row": msgspec.to_builtins(row)}
    yield {"kind": "end", "lines": count}


async def from_lines(lines: AsyncIterator[Mapping[str, Any]]) -> ThreadCopy:
    """The copy that was exported.

    The whole thread is held in memory, because a store takes it in one transaction.

    Raises:
        StoreError: `store_version_unsupported` for a newer format; `store_failed` for anything that is not a whole export.
    """
    copy: ThreadCopy | None = None
    count, ended = 0, False
    async for line in lines:
        count += 1
        if not isinstance(line, Mapping):
            raise StoreError(f"line {count} of the export is not a JSON object but {excerpt_of(line)}")
        kind = line.get("kind")
        if ended:
            raise StoreError(f"line {count} follows the end of the export: one file holds one thread")
        if copy is None:
            copy = _head(line)
        elif kind == "end":
            ended = True
            # The count includes the end line itself, as `to_lines` counts.
            if line.get("lines") != count:
                raise StoreError(f"the export says it has {line.get('lines')} lines, but {count} came: export it again")
        elif kind in _ROWS:
            field, row = _ROWS[kind]
            getattr(copy, field).append(_row(line, row, count))
        else:
            raise StoreError(f"line {count} of the export has kind {kind!r}, which version {VERSION} does not know")
    if copy is None or not ended:
        raise StoreError(f"the export ends after {count} lines without its end line: it was cut off, export it again")
    _check(copy)
    return copy


def last_gaps(copy: ThreadCopy) -> dict[int, int]:
    """Lineage → ordinal of the last record that is missing before one that is there, where any is."""
    reached: dict[int, int] = {}
    out: dict[int, int] = {}
    for record in copy.records:  # in order of ordinals within each lineage
        if record.ordinal > reached.get(record.lineage, 0) + 1:
            out[record.lineage] = record.ordinal - 1
        reached[record.lineage] = record.ordinal
    return out


def changed(copy: ThreadCopy, change: Rewrite) -> ThreadCopy:
    """The copy with every blob but those of its row changed; a blob's place is that which it has in the copy."""
    replace = msgspec.structs.replace
    name = copy.thread.thread_id
    return replace(
        copy,
        documents=[replace(row, data=change(Place("document", row.digest), row.data)) for row in copy.documents],
        records=[changed_record(record, change) for record in copy.records],
        items=[
            replace(i, data=change(item_place(i.lineage, i.ordinal, i.frame, i.channel, i.record), i.data))
            for i in copy.items
        ],
        interrupts=[changed_interrupt(row, change) for row in copy.interrupts],
        queue=[replace(queued, body=change(Place("input", name), queued.body)) for queued in copy.queue],
    )


def placed(
    copy: ThreadCopy, thread_id: str | None, is_taken: Callable[[int], bool], change: Rewrite | None = None
) -> ThreadCopy:
    """The copy under its id in the new store: owned by nobody, lineages that collide numbered anew.

    Args:
        is_taken: whether the store has a lineage of this number already.
        change: applied to every blob in its new place, those of its row included.
    """
    out = _placed(copy, thread_id, is_taken)
    if change is None:
        return out
    row = out.thread
    row = msgspec.structs.replace(row, facts=changed_facts(row.facts, row.thread_id, change))
    return msgspec.structs.replace(changed(out, change), thread=row)


def _placed(copy: ThreadCopy, thread_id: str | None, is_taken: Callable[[int], bool]) -> ThreadCopy:
    if thread_id is not None:
        check_id(thread_id)
    name = thread_id or copy.thread.thread_id
    # Numbers are unique in a store; a copy beside its original needs others.
    numbers = {lineage.number: _fresh(lineage.number, is_taken) for lineage in copy.lineages}
    head = copy.thread.lineage
    replace = msgspec.structs.replace
    return ThreadCopy(
        thread=replace(
            copy.thread,
            thread_id=name,
            lineage=None if head is None else numbers[head],
            owner=None,
            lease_until=0,
        ),
        documents=copy.documents,
        lineages=[
            replace(
                lineage,
                number=numbers[lineage.number],
                thread_id=name,
                parent=None if lineage.parent is None else numbers[lineage.parent],
            )
            for lineage in copy.lineages
        ],
        records=[replace(record, lineage=numbers[record.lineage]) for record in copy.records],
        items=[replace(item, lineage=numbers[item.lineage]) for item in copy.items],
        interrupts=[replace(interrupt, thread_id=name) for interrupt in copy.interrupts],
        queue=copy.queue,
        runs=copy.runs,
    )


_T = TypeVar("_T")


def _head(line: Mapping[str, Any]) -> ThreadCopy:
    if line.get("kind") != FORMAT:
        raise StoreError(
            f"the first line has kind {line.get('kind')!r}, not {FORMAT!r}: this is not an exported thread"
        )
    version = line.get("version")
    # `isinstance` would accept JSON's `true`.
    if type(version) is not int or version < 1:
        raise StoreError(f"line 1 of the export has format version {version!r}, which never was: it is damaged")
    if version > VERSION:
        raise StoreError(
            f"the export has format version {version!r}, this is version {VERSION}: update graphflow to import it",
            code="store_version_unsupported",
        )
    runs = line.get("runs", [])
    return ThreadCopy(thread=_convert(line.get("thread"), ThreadRow, 1), runs=_convert(runs, list[str], 1))


def _row(line: Mapping[str, Any], kind: type[_T], number: int) -> _T:
    return _convert(line.get("row"), kind, number)


def _convert(value: Any, kind: type[_T], number: int) -> _T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError) as error:  # msgspec reports half a surrogate pair as the latter
        raise StoreError(f"line {number} of the export is damaged: {error}") from error


def _check(copy: ThreadCopy) -> None:
    """Every reference within the copy leads somewhere, and nothing stands in it twice."""
    known: set[int] = set()
    for lineage in copy.lineages:
        if lineage.number in known:
            raise StoreError(f"lineage {lineage.number} stands twice in the export: export it again")
        # Parents come before children, so one pass finds a missing parent.
        if lineage.parent is not None and lineage.parent not in known:
            raise StoreError(
                f"lineage {lineage.number} of the export names the parent {lineage.parent}, which is missing"
            )
        known.add(lineage.number)
    reached: dict[int, int] = {}
    for record in copy.records:
        if record.lineage not in known:
            raise StoreError(f"record {record.id!r} of the export names lineage {record.lineage}, which is missing")
        if record.ordinal <= (before := reached.get(record.lineage, 0)):
            raise StoreError(
                f"record {record.id!r} of the export has ordinal {record.ordinal}, but {before} of its lineage stands before it:"
                " export it again"
            )
        reached[record.lineage] = record.ordinal
    for item in copy.items:
        if item.lineage not in known:
            raise StoreError(
                f"an entry of {item.channel!r} names lineage {item.lineage} of the export, which is missing"
            )
    if copy.thread.lineage is not None and copy.thread.lineage not in known:
        raise StoreError(f"the exported thread's head is in lineage {copy.thread.lineage}, which is missing")
    _check_head(copy)


def _check_head(copy: ThreadCopy) -> None:
    """The record that the thread stands at is there; that of a fresh fork is where its lineage was cut."""
    thread = copy.thread
    if thread.head is None:
        if copy.records:
            raise StoreError("the exported thread has records and stands at none of them: export it again")
        return
    lineages = {lineage.number: lineage for lineage in copy.lineages}
    number, ordinal = thread.lineage, thread.ordinal
    while number is not None and ordinal == 0:
        lineage = lineages[number]
        number, ordinal = lineage.parent, lineage.cut
    if not any(r.id == thread.head and (r.lineage, r.ordinal) == (number, ordinal) for r in copy.records):
        raise StoreError(
            f"the exported thread stands at {thread.head!r}, record {ordinal} of lineage {number}, which is missing:"
            " export it again"
        )


def _fresh(number: int, is_taken: Callable[[int], bool]) -> int:
    while is_taken(number):
        number = uuid.uuid4().int >> 66  # 62 bits: as good as never drawn twice, and a signed 64-bit integer
    return number
