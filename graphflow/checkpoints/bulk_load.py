"""Many states of one thread: one load for the oldest, then record by record (spec 4.2).

A state that is loaded alone decodes every entry of its lists. States that follow each other differ in what their records
changed, so here each entry is decoded once, and what two states have in common they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.record_decoder import RecordBody, decode_body, decode_entry, put_entries
from graphflow.checkpoints.record_fields import Counts
from graphflow.checkpoints.rows import ListedRecord, Log, Record
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.patches import apply_patch

Rows = Mapping[tuple[int, str], Iterator[bytes]]
"""(frame, channel) → the log's entries that are still to be read, in order."""


async def load_machines(
    store: Checkpointer, thread_id: str, checkpoints: Sequence[ListedRecord]
) -> dict[str, Machine]:  # fmt: skip
    """The machine at each of these checkpoints, by id; one that is gone from the store is left out.

    Each lineage among them costs three visits to the store, or three for each stretch that a prune has left of it.

    Raises:
        StoreError: a row is damaged or missing.
    """
    out: dict[str, Machine] = {}
    for _, group in groupby(sorted(checkpoints, key=_place), key=lambda checkpoint: checkpoint.lineage):
        left = list(group)
        while left:
            found = await _stretch(store, thread_id, left)
            out |= found
            left = left[max(1, len(found)) :]
    return out


def _place(checkpoint: ListedRecord) -> tuple[int, int]:
    return checkpoint.lineage, checkpoint.ordinal


async def _stretch(store: Checkpointer, thread_id: str, checkpoints: Sequence[ListedRecord]) -> dict[str, Machine]:
    """The machines at the first of these checkpoints of one lineage, and at the others up to the next gap in its records."""
    first, last = checkpoints[0], checkpoints[-1]
    loaded = await load_thread(store, thread_id, first.id)
    if loaded is None:
        return {}
    # The records between the checkpoints are read once for all of them, up to the first gap that a prune left.
    records = _unbroken(
        first.ordinal,
        await store.read_records(thread_id, lineage=first.lineage, after=first.ordinal, upto=last.ordinal),
    )
    bodies = [decode_body(record.data, record.id) for record in records]
    rows = await _entries(store, loaded, bodies)
    wanted = {checkpoint.id for checkpoint in checkpoints}
    machine, counts = loaded.machine, dict(loaded.counts)
    out = {first.id: machine}
    for record, body in zip(records, bodies, strict=True):
        _fill(body, rows, counts)
        machine = apply_patch(machine, body.patch)
        if record.id in wanted:
            out[record.id] = machine
    return out


def _unbroken(after: int, records: Sequence[Record]) -> list[Record]:
    """The records up to the first that was pruned."""
    # An ordinal that is out of step means a gap: what follows can't be folded onto the state before it.
    return [record for ordinal, record in enumerate(records, after + 1) if record.ordinal == ordinal]


async def _entries(store: Checkpointer, loaded: Loaded, bodies: Sequence[RecordBody]) -> Rows:
    """The log entries that these records add to what was loaded."""
    added: Counts = {}
    for body in bodies:
        for place, count in body.counts.items():
            added[place] = added.get(place, 0) + count
    starts = [loaded.counts.get(place, 0) for place in added]
    logs = [Log(*place, start + added[place], start) for place, start in zip(added, starts, strict=True)]
    if not logs:
        return {}
    *older, (lineage, cut) = loaded.chain
    found = await store.read_logs((*older, (lineage, cut + len(bodies))), logs)
    return {place: iter(rows) for place, rows in zip(added, found, strict=True)}


def _fill(body: RecordBody, rows: Rows, counts: Counts) -> None:
    """Puts the record's log entries back into its patch, and moves the counts on."""
    for place, count in body.counts.items():
        entries = [decode_entry(next(rows[place]), place[1]) for _ in range(count)]
        put_entries(body.patch, *place, entries, counts.get(place, 0))
        counts[place] = counts.get(place, 0) + count
