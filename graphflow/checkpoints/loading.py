"""Reading a thread back: its machine, the end of its log, and where its journal goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import announced_ids, is_announced, unannounced_events
from graphflow.checkpoints.record_decoder import (
    SLICE,
    Folded,
    by_size,
    decode_bodies,
    decode_snapshot,
    filling,
    first_read,
    fold_records,
    wanted_logs,
)
from graphflow.checkpoints.record_fields import Counts, Starts
from graphflow.checkpoints.rows import Log, Record, Stored, ThreadRow
from graphflow.graph.core.machine import Machine
from graphflow.graph.engine.ports import Logged


class Loaded(msgspec.Struct):
    """A thread as it was read."""

    row: ThreadRow
    machine: Machine
    chain: tuple[tuple[int, int], ...]
    counts: Counts
    seq: int
    """Number of the run's last event, `pending` included."""
    pending: list[Logged]
    """What followed the last commit, still to be kept with the next record (E1)."""
    last: Record | None
    """The record that was loaded at; None for a thread that never left this process."""
    checkpoint_id: str | None
    """The newest checkpoint at or before it."""
    bytes_since: int
    """Size of the patches since the last snapshot."""
    snapshot_bytes: int
    mark: int
    """Number of the last event that clients may have as the log has it; the rest of `pending` is sent again."""
    starts: Starts = msgspec.field(default_factory=dict)


async def load_thread(
    store: Checkpointer, thread_id: str, checkpoint_id: str | None = None, *, logs: bool = True
) -> Loaded | None:
    """The thread at its head or at a checkpoint; None when the store has no such thread or checkpoint.

    Without `logs` the lists of append channels are left out, so that it costs the same however long they are: enough to
    go back to a checkpoint or to fork at it, not to run.
    """
    stored = await store.load(thread_id, checkpoint_id)
    if stored is None:
        return None
    # The state is the newest snapshot and the patches after it. Entries of lists are rows of their own and come last.
    start = Folded(Machine(), {})
    if stored.snapshot is not None:
        start = await by_size(len(stored.snapshot), decode_snapshot, stored.snapshot, thread_id)
    folded = await _folded(start, stored.records)
    wanted = [Log(n, key, count, first_read(folded, n, key)) for n, key, count in wanted_logs(folded)] if logs else []
    rows = await store.read_logs(stored.chain, wanted) if wanted else []
    entries = {(log.frame, log.channel): found for log, found in zip(wanted, rows, strict=True)}
    machine = folded.machine
    for made in filling(folded, entries):
        if made is None:
            await asyncio.sleep(0)
        else:
            machine = made
    # Only at the head may something be unannounced still: events behind an older checkpoint have long been sent.
    going_on = checkpoint_id is None and logs
    pending = await _pending(store, stored, machine, folded.seq) if going_on else []
    last_seq = pending[-1][0].seq if pending else folded.seq
    return Loaded(
        stored.thread,
        machine,
        stored.chain,
        folded.counts,
        last_seq,
        pending,
        stored.target,
        await _newest_checkpoint(store, stored),
        sum(len(record.data) for record in stored.records),
        len(stored.snapshot or b""),
        min(folded.seq + folded.tail, last_seq),
        folded.starts,
    )


async def _folded(folded: Folded, records: Sequence[Record]) -> Folded:
    """The machine after these records, however many: the event loop turns between some of them and the next."""
    for begin in range(0, len(records), SLICE):
        if begin:
            await asyncio.sleep(0)
        folded = fold_records(folded, await decode_bodies(records[begin : begin + SLICE]))
    return folded


async def _newest_checkpoint(store: Checkpointer, stored: Stored) -> str | None:
    # Most often it is among the records just read, which saves a query.
    for record in (stored.target, *reversed(stored.records)):
        if record is not None and record.checkpoint:
            return record.id
    listed = await store.list_checkpoints(stored.thread.thread_id, limit=1)
    return listed[0].id if listed else None


async def _pending(store: Checkpointer, stored: Stored, machine: Machine, seq: int) -> list[Logged]:
    """Events after the last commits that no record keeps: derived from the records, with the same numbers (E1)."""
    newest = stored.records[-PAGE:]
    bodies = list(zip(newest, await decode_bodies(newest), strict=True))
    said = announced_ids(body for _, body in bodies)
    # The records read so far may all be unannounced; one more page reaches the last announced one (see `PAGE`).
    if not any(is_announced(record, body, said) for record, body in bodies[1:]):
        lineage, last = stored.chain[-1] if stored.chain else (0, 0)
        first = bodies[0][0].ordinal if bodies else last + 1
        earlier = await store.read_records(
            stored.thread.thread_id, lineage=lineage, after=max(0, first - PAGE), upto=first - 1
        )
        bodies = [*zip(earlier, await decode_bodies(earlier), strict=True), *bodies]
    return unannounced_events(bodies, machine, seq)


PAGE = 600
"""More than the executor ever leaves unacknowledged."""
