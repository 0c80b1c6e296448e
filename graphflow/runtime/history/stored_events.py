"""A run's log as the store has it: its events, the epochs that sent them, and what followed its last record (E1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import EPOCH, read_events, unannounced_events, was_checkpoint
from graphflow.checkpoints.record_decoder import RecordBody, beside_loop, decode_bodies, decode_body, decode_meta
from graphflow.checkpoints.rows import Record
from graphflow.errors import CheckpointNotFound
from graphflow.graph.core.machine import Machine, Patch
from graphflow.graph.core.patches import apply_patch
from graphflow.graph.engine.ports import Logged
from graphflow.runtime.queue_codec import decode_queued

Chain = Sequence[tuple[int, int]]
PAGE = 256
LEAST_PAGE = 16
"""Most runs are short and looked for at the end of the log: reading begins with little."""


class StoredLog(msgspec.Struct, kw_only=True):
    """What the store knows of a run's log; blocks are their snapshots."""

    events: list[Logged]
    epochs: list[tuple[int, int]]
    """(fence, mark) of each epoch that recorded something: `mark` is the last number that clients of the epochs
    before it have as the log has it; 0 for the first."""
    sent: int
    """Number of the last event that clients of the last epoch may have as the log has it."""
    pruned: bool = False
    """Its beginning was pruned: `events` are those of what is left of its end."""


async def stored_log(store: Checkpointer, thread_id: str, chain: Chain, run_id: str, *, over: bool = True) -> StoredLog:
    """The log of one run, from the branch that `chain` names.

    Args:
        over: nobody drives the run, so what followed its last record is made from the record.
    """
    records = await records_of_run(store, thread_id, chain, run_id)
    parent = await _checkpoint_before(store, thread_id, chain, records[0]) if over and records else None
    log = await stored_log_of(store, chain, records, over=over, parent=parent)
    log.pruned = log.pruned or await _lost_its_beginning(store, thread_id, chain, run_id, records)
    return log


async def _lost_its_beginning(
    store: Checkpointer, thread_id: str, chain: Chain, run_id: str, records: Sequence[Record]
) -> bool:
    """Whether the record before the first that was found is missing, or all are although the run was known."""
    if not records:
        if await store.find_run(run_id) != thread_id:
            return False
        # An input that waits for its turn is known by its run id, but has no records yet.
        waiting = await store.queue(thread_id, kind="input", limit=10_000)
        return all(decode_queued(entry).run_id != run_id for entry in waiting)
    before = place_before(chain, records[0])
    if before is None:
        return False
    lineage, ordinal = before
    return not await store.read_records(thread_id, lineage=lineage, after=ordinal - 1, upto=ordinal)


async def stored_log_of(
    store: Checkpointer, chain: Chain, records: Sequence[Record], *, over: bool = True, parent: str | None = None
) -> StoredLog:
    """The same from the run's records, all of them, oldest first.

    Args:
        parent: the checkpoint before them, for the graph family's events.
    """
    records, pruned = await beside_loop(records, without_gap, chain, records)
    bodies = await decode_bodies(records)
    events = await read_events(store, chain, records, bodies)
    return await beside_loop(records, _log_of, records, bodies, events, over, parent, pruned)


def _log_of(
    records: Sequence[Record],
    bodies: Sequence[RecordBody],
    events: list[Logged],
    over: bool,
    parent: str | None,
    pruned: bool,
) -> StoredLog:
    last = bodies[-1] if bodies else None
    sent = last.seq if last is not None else 0
    if over and last is not None:
        machine = settled(bodies)
        if not machine.run_id:  # its beginning was pruned
            machine = msgspec.structs.replace(machine, run_id=decode_meta(records[0].meta, records[0].id).run_id)
        more = unannounced_events(list(zip(records, bodies, strict=True)), machine, last.seq, parent)
        sent = min(last.seq + last.tail, more[-1][0].seq) if more else last.seq
        events += more
    return StoredLog(events=events, epochs=epochs_of(bodies), sent=sent, pruned=pruned)


def place_before(chain: Chain, record: Record) -> tuple[int, int] | None:
    """(lineage, ordinal) of the record before this one on a branch; None when it is the first."""
    if record.ordinal > 1:
        return record.lineage, record.ordinal - 1
    index = next((i for i, (lineage, _) in enumerate(chain) if lineage == record.lineage), 0)
    return next((step for step in reversed(chain[:index]) if step[1]), None)


def without_gap(chain: Chain, records: Sequence[Record]) -> tuple[Sequence[Record], bool]:
    """The end of a run's records in which none is missing, and whether some before it were pruned."""
    for index in range(len(records) - 1, 0, -1):
        before = records[index - 1]
        if place_before(chain, records[index]) != (before.lineage, before.ordinal):
            return records[index:], True
    return records, False


def pruned_log(thread_id: str, run_id: str) -> CheckpointNotFound:
    return CheckpointNotFound(
        f"the log of run {run_id!r} is not available any more: the history of thread {thread_id!r} was pruned; its state is"
        " there, and checkpoints that were kept",
        threadId=thread_id,
        runId=run_id,
        pruned=True,
    )


async def records_of_run(store: Checkpointer, thread_id: str, chain: Chain, run_id: str) -> list[Record]:
    """The records of one run on a branch, oldest first."""
    found: list[Record] = []
    page = LEAST_PAGE
    for lineage, last in reversed(chain):
        upto = last
        while upto > 0:
            rows = await store.read_records(thread_id, lineage=lineage, after=max(0, upto - page), upto=upto)
            for record in reversed(rows):
                if decode_meta(record.meta, record.id).run_id == run_id:
                    found.append(record)
                # The records of one run lie side by side on a branch, so the first of another run ends the search.
                elif found:
                    return found[::-1]
            upto -= page
            page = min(2 * page, PAGE)
    return found[::-1]


async def _checkpoint_before(store: Checkpointer, thread_id: str, chain: Chain, record: Record) -> str | None:
    """The checkpoint before a record, on the branch that `chain` names."""
    reached = False
    for lineage, last in reversed(chain):
        reached = reached or lineage == record.lineage
        upto = record.ordinal - 1 if lineage == record.lineage else last
        while reached and upto > 0:
            rows = await store.read_records(thread_id, lineage=lineage, after=max(0, upto - PAGE), upto=upto)
            for row in reversed(rows):
                if was_checkpoint(row, decode_body(row.data, row.id)):
                    return row.id
            upto -= PAGE
    return None


async def branch_of_run(store: Checkpointer, thread_id: str, chain: Chain, run_id: str) -> Chain:
    """The branch that holds all of a run: the present one, unless a rewind or an edit cut the run off it."""
    records = await records_of_run(store, thread_id, chain, run_id)
    # If the newest record found lies exactly where a later lineage was cut, the run may go on beyond the cut.
    if records and (records[-1].lineage, records[-1].ordinal) not in set(chain[:-1]):
        return chain
    for row in await store.list_checkpoints(thread_id, all_lineages=True):
        if decode_meta(row.meta, row.id).run_id == run_id:
            stored = await store.load(thread_id, row.id)
            if stored is not None:
                # Records without a checkpoint may follow the newest checkpoint.
                *before, (lineage, ordinal) = stored.chain
                return (*before, (lineage, ordinal + PAGE))
    return chain


def settled(bodies: Iterable[RecordBody]) -> Machine:
    """The machine after these records, as far as the run's end follows from it: no frames, no state."""
    machine = Machine()
    for body in bodies:
        machine = apply_patch(machine, Patch(body.patch.machine, {}, body.patch.interrupts))
    return machine


def epochs_of(bodies: Sequence[RecordBody]) -> list[tuple[int, int]]:
    """The epochs that these records of one run begin."""
    out: list[tuple[int, int]] = []
    for body in bodies:
        for row in body.events[:1]:
            if row[0] == EPOCH:
                out.append((row[2], body.seq - row[1] if out else 0))
    return out
