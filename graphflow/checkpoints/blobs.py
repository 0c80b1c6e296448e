"""The blobs of rows: their size, and how they are changed where they stand, for encryption, exports and imports."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphflow.checkpoints.ids import clean_title
from graphflow.checkpoints.rows import LogItem, OpenInterrupt, Place, Record, Rewrite, ThreadFacts

_replace = msgspec.structs.replace
TEXTS: tuple[Literal["title", "about"], ...] = ("title", "about")
"""Fields of `ThreadFacts`, and kinds of `Place`, that are blobs and stay text."""


def item_place(lineage: int, ordinal: int, frame: int, channel: str, record: int) -> Place:
    """Where an entry of a log stands that the record with this ordinal wrote."""
    return Place("item", "", lineage, ordinal, frame, channel, record)


def changed_record(record: Record, change: Rewrite) -> Record:
    """The record with every blob of it changed."""
    lineage, ordinal = record.lineage, record.ordinal
    snapshot, items, opened = record.snapshot, record.items, record.opened
    if snapshot is not None:
        snapshot = change(Place("snapshot", "", lineage, ordinal), snapshot)
    if items:
        data = [change(item_place(lineage, i.ordinal, i.frame, i.channel, ordinal), i.data) for i in items]
        items = tuple([LogItem(i.frame, i.channel, i.ordinal, d) for i, d in zip(items, data, strict=True)])
    if opened:
        opened = tuple([changed_interrupt(row, change) for row in opened])
    return _replace(
        record,
        data=change(Place("record", record.id, lineage, ordinal), record.data),
        items=items,
        snapshot=snapshot,
        opened=opened,
    )


def changed_interrupt(row: OpenInterrupt, change: Rewrite) -> OpenInterrupt:
    return _replace(row, data=change(Place("interrupt", f"{row.thread_id} {row.interrupt_id}"), row.data))


def changed_facts(facts: ThreadFacts, thread_id: str, change: Rewrite) -> ThreadFacts:
    """The facts with their texts for people changed, which pass as UTF-8."""
    for kind in TEXTS:
        text = getattr(facts, kind)
        if text is not None:
            # An export may be written by hand, with what strict UTF-8 can't encode.
            blob = change(Place(kind, thread_id), (clean_title(text) or "").encode())
            facts = _replace(facts, **{kind: blob.decode()})
    return facts


def stored_size(record: Record) -> int:
    """Stored bytes of the record, its items and its snapshot."""
    size = len(record.meta) + len(record.data)
    for item in record.items:
        size += len(item.data)
    return size if record.snapshot is None else size + len(record.snapshot)
