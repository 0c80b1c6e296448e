"""The log of a run at one moment: as the store has it, or with what a live run of this process adds to that."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec

from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.rows import ThreadRow
from graphflow.events import Event, RunWaiting
from graphflow.graph.engine.ports import Logged
from graphflow.runtime.history.stored_events import Chain, StoredLog, branch_of_run, pruned_log, stored_log
from graphflow.runtime.runs.event_ring import RunLog
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.runtime.runs.preconditions import UNFINISHED
from graphflow.service.context import ServiceContext

StreamFrame = tuple[str | None, Event]
"""An event and its SSE id; `stream.reset` has none."""
UNSAFE: WeakKeyDictionary[RunLog, dict[int, int]] = WeakKeyDictionary()
"""Numbers inside blocks that a rebuilt log was sent up to, and the last number before those blocks.

A client that lost its connection there may have one of two overlapping blocks whole and of the other nothing; the
ring alone can't repair that.
"""


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run's log at one moment, read from the store."""

    log: StoredLog
    """With what followed the last record where nobody drives the run, and the questions where its driver waits for answers."""
    chain: Chain
    row: ThreadRow
    goes_on: bool
    """Somebody drives it, so that more may come."""


async def read_run(context: ServiceContext, thread_id: str, run_id: str) -> StoredRun:
    """The log of a run as the store has it.

    Raises:
        ThreadNotFound: no such thread.
    """
    before = await context.store.thread(thread_id)  # looked at first: whoever is gone by now has recorded nothing since
    goes_on = before is not None and not is_at_rest(context, before, run_id)
    stored = await context.store.load(thread_id)
    if before is None or stored is None:
        raise unknown_thread(thread_id)
    row = stored.thread
    # Another epoch may have begun between the two reads.
    goes_on = goes_on or (row.fence != before.fence and not is_at_rest(context, row, run_id))
    chain = await branch_of_run(context.store, thread_id, stored.chain, run_id)
    asks = goes_on and row.facts.status == "waiting"
    log = await stored_log(context.store, thread_id, chain, run_id, over=asks or not goes_on)
    if asks and log.events and log.events[-1][1] > log.sent and isinstance(log.events[-1][0], RunWaiting):
        log.events.pop()  # not said yet: its driver holds on for the answers
    return StoredRun(log=log, chain=chain, row=row, goes_on=goes_on)


def is_at_rest(context: ServiceContext, row: ThreadRow, run_id: str) -> bool:
    return row.facts.run_id != run_id or row.facts.status not in UNFINISHED or not context.runs.is_driven(row)


async def log_of_run(context: ServiceContext, thread_id: str, run_id: str) -> list[Logged]:
    """The log of a run so far; blocks that are still open are not in it.

    Raises:
        CheckpointNotFound: it was pruned.
    """
    live = context.runs.by_thread.get(thread_id)
    if live is not None and live.run_id == run_id and live.log is not None:
        return (await RingView(live).read(context, run_id)).events
    run = await read_run(context, thread_id, run_id)
    if run.log.pruned:
        raise pruned_log(thread_id, run_id)
    return run.log.events


class RingView:
    """A live log at one moment: all of it is taken in one step of the event loop, so nothing is lost or doubled.

    What the records hold is named by the journal's last ordinal, what they do not hold yet is copied, and what
    comes later is in the ring.
    """

    def __init__(self, live: LiveRun) -> None:
        log, journal = live.log, live.journal
        assert log is not None and journal is not None
        self.thread_id = live.thread_id
        self.journal, self.chain = journal, journal.chain
        self.sent = list(live.executor.sent)
        self.epoch, self.mark, self.last_seq = log.epoch, log.mark, log.last_seq
        self.open_blocks = log.so_far()
        self.opened = [start.seq for start, _ in log.open.values()]
        self.unsafe = UNSAFE.get(log, {})

    async def read(self, context: ServiceContext, run_id: str) -> StoredLog:
        # All records of the copied chain have to be durable before they are read.
        await self.journal.flush()
        log = await stored_log(context.store, self.thread_id, self.chain, run_id, over=False)
        log.events += self.sent
        return log
