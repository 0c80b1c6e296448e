"""Walking back in a thread's journal: its records from the newest on, and the machine before any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import CODES, unpack
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import LARGE, Folded, RecordBody, by_size, decode_body, fold_records
from graphflow.checkpoints.rows import Record
from graphflow.errors import CheckpointNotFound
from graphflow.events import NodeEnd
from graphflow.graph.core.machine import Machine

Chain = Sequence[tuple[int, int]]
LEAST_PAGE, PAGE = 16, 256
"""What is looked for is most often near: reading begins with little."""


async def walk_back(
    store: Checkpointer, thread_id: str, chain: Chain, *, whole: bool = True
) -> AsyncIterator[tuple[Record, RecordBody]]:
    """Records of a branch, newest first.

    Args:
        whole: a pruned record is an error once the walk comes to it; else it is left out.

    Raises:
        CheckpointNotFound: with `whole`, a record on the way was pruned.
    """
    page, size = LEAST_PAGE, 0
    for lineage, last in reversed(chain):
        upto = expected = last
        while upto > 0:
            after = max(0, upto - page)
            rows = await store.read_records(thread_id, lineage=lineage, after=after, upto=upto)
            for record in reversed(rows):
                # Ordinals have no gaps, so one that is out of step was pruned.
                if whole and record.ordinal != expected:
                    raise pruned(thread_id, lineage, expected)
                yield record, await by_size(len(record.data), decode_body, record.data, record.id)
                size += len(record.data)
                if size > LARGE:
                    await asyncio.sleep(0)
                    size = 0
                expected = record.ordinal - 1
            # Missing rows at the page's beginning leave no later record that would show the gap.
            if whole and expected != after:
                raise pruned(thread_id, lineage, expected)
            upto -= page
            page = min(2 * page, PAGE)


def pruned(thread_id: str, lineage: int, ordinal: int) -> CheckpointNotFound:
    return CheckpointNotFound(
        f"this is not available any more: the history of thread {thread_id!r} was pruned before it (up to record {ordinal}"
        f" of lineage {lineage})",
        threadId=thread_id,
        pruned=True,
    )


def node_ends(body: RecordBody) -> list[NodeEnd]:
    """The ends of the node runs in a record, in their order."""
    rows = [row for row in body.events if row[0] in (CODES["node.start"], CODES["node.end"])]
    # Only these rows are unpacked: neither of them refers to a text of the state, which would have to be read.
    events = unpack(rows, body.seq, body.at, "", lambda reference: "")
    return [event for event, _ in events if isinstance(event, NodeEnd)]


def chain_before(chain: Chain, record: Record) -> Chain:
    """The branch up to the record before this one."""
    older = [step for step in chain if step[0] != record.lineage]
    cut = next((index for index, step in enumerate(chain) if step[0] == record.lineage), len(older))
    return [*chain[:cut], (record.lineage, record.ordinal - 1)]


async def machine_before(store: Checkpointer, thread_id: str, chain: Chain, record: Record) -> Machine:
    """The machine that a record changed, without the lists of append channels; an empty one before the first."""
    return (await folded_before(store, thread_id, chain, record)).machine


async def folded_before(store: Checkpointer, thread_id: str, chain: Chain, record: Record) -> Folded:
    """The same, with how many entries its lists have."""
    later: list[RecordBody] = []
    async for older, body in walk_back(store, thread_id, chain_before(chain, record)):
        if older.checkpoint:
            loaded = await load_thread(store, thread_id, older.id, logs=False)
            start = Folded(Machine(), {}) if loaded is None else Folded(loaded.machine, loaded.counts)
            return fold_records(start, reversed(later))
        later.append(body)
    return fold_records(Folded(Machine(), {}), reversed(later))
