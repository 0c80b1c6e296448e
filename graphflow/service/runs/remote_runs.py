"""A run that another process drives, as far as its records show: for clients here that follow it or wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from graphflow.checkpoints.event_log import read_events
from graphflow.checkpoints.record_decoder import beside_loop, decode_meta
from graphflow.checkpoints.rows import ThreadRow
from graphflow.events import STREAM_ENDS, Event, NodeEnd, NodeError, NodeStart, StreamReset
from graphflow.runtime.history.stored_events import Chain
from graphflow.runtime.result import RunResult
from graphflow.runtime.runs.remote_answer import stored_result
from graphflow.service.context import ServiceContext
from graphflow.service.run_log import StoredRun, StreamFrame, is_at_rest, read_run

LOOK_S = 0.25
"""How often the store is asked for what is new."""
TAKE_OVER_S = 5.0
"""How long after a lease a server takes over a run that lost its process, at the latest."""


async def follow_stored(
    context: ServiceContext, thread_id: str, run_id: str, known: StoredRun | None = None, after: int = 0
) -> AsyncIterator[list[StreamFrame]]:
    """The run's events as they become durable, blocks as snapshots, until the run ends or waits, or nobody drives it.

    Args:
        known: the log as it was read just now.
        after: only events with higher numbers.
    """
    told = _Told(after)
    run = known or await read_run(context, thread_id, run_id)
    frames = await beside_loop(run.log.events, told.take_all, run)
    while True:
        if frames:
            yield frames
        if not run.goes_on or context.stopping or (frames and isinstance(frames[-1][1], STREAM_ENDS)):
            return
        await asyncio.sleep(LOOK_S)
        row = await context.store.thread(thread_id)
        if row is None:
            return
        if _is_simply_further(context, run, row, run_id):
            events = await _events_since(context, run, row, run_id)
            frames = await beside_loop(events, told.take, events)
            run = msgspec.structs.replace(run, row=row, chain=_cut(run.chain, row))
        else:
            run = await read_run(context, thread_id, run_id)
            frames = await beside_loop(run.log.events, told.take_all, run)


def _is_simply_further(context: ServiceContext, run: StoredRun, row: ThreadRow, run_id: str) -> bool:
    """Whether the same epoch goes on, so that its new records contain all that is new."""
    is_same = (row.fence, row.lineage) == (run.row.fence, run.row.lineage)
    # A run that starts to wait has events that no record keeps yet, so the log is read in full.
    asks = row.facts.status == "waiting" and row.head != run.row.head
    return is_same and not asks and not is_at_rest(context, row, run_id)


async def _events_since(context: ServiceContext, run: StoredRun, row: ThreadRow, run_id: str) -> list[Event]:
    """The events of the records that came after those of `run`."""
    if row.lineage is None or row.head == run.row.head:
        return []
    since = await context.store.read_records(
        row.thread_id, lineage=row.lineage, after=run.row.ordinal, upto=row.ordinal
    )
    records = [record for record in since if decode_meta(record.meta).run_id == run_id]
    return [event for event, _ in await read_events(context.store, _cut(run.chain, row), records)]


def _cut(chain: Chain, row: ThreadRow) -> Chain:
    """The chain up to the row's newest record."""
    return chain if row.lineage is None else (*chain[:-1], (row.lineage, row.ordinal))


class _Told:
    """What a client has received of a run that another process drives.

    The client may take its last id to that process, which then sends it the parts of blocks that are open. A client that
    read from the store has no beginning of them. So an event carries the epoch's own id only where no node was at work
    and no block can have been open; else that of the epoch before, of which every process knows that it may differ (E1).
    """

    def __init__(self, after: int) -> None:
        self._after = after
        """Number of the last event that was sent from a record."""
        self._foretold: set[tuple[int, type[Event]]] = set()
        """Questions that are in no record yet, with the numbers that they should have."""
        self._epoch = 0
        self._begin = 0
        """Number after which the epoch's own events come: what older epochs left at work is void."""
        self._goes_on = True
        self._at_work: set[str] = set()
        """Node runs that have begun and not ended."""

    def take_all(self, run: StoredRun) -> list[StreamFrame]:
        """What is new in the whole log."""
        self._epoch, self._goes_on = run.row.fence, run.goes_on
        self._begin = max((mark for _, mark in run.log.epochs), default=0)
        events = [event for event, _ in run.log.events]
        self._at_work.clear()
        # From what the client has, it follows which nodes were at work at its position.
        for event in events:
            if event.seq <= self._after:
                self._note(event)
        if not run.goes_on:
            return self.take(events)
        sent = run.log.sent
        return [*self.take(e for e in events if e.seq <= sent), *self._foretell(e for e in events if e.seq > sent)]

    def take(self, events: Iterable[Event]) -> list[StreamFrame]:
        """What is new in these events, which records tell."""
        fresh = [event for event in events if event.seq > self._after]
        if not fresh:
            return []
        out: list[StreamFrame] = []
        known, self._foretold = self._foretold, set()
        # What was foretold came otherwise: the client drops it and gets what the records say.
        if not known <= {(event.seq, type(event)) for event in fresh}:
            out.append((None, StreamReset(keep_seq=self._after)))
            known = set()
        for event in fresh:
            self._note(event)
            is_whole = not (self._goes_on and self._at_work) or isinstance(event, STREAM_ENDS)
            if (event.seq, type(event)) not in known:
                out.append((f"{self._epoch if is_whole else self._epoch - 1}-{event.seq}", event))
        self._after = fresh[-1].seq
        return out

    def _foretell(self, events: Iterable[Event]) -> list[StreamFrame]:
        fresh = [event for event in events if (event.seq, type(event)) not in self._foretold]
        self._foretold |= {(event.seq, type(event)) for event in fresh}
        return [(f"{self._epoch - 1}-{event.seq}", event) for event in fresh]

    def _note(self, event: Event) -> None:
        if isinstance(event, NodeStart) and event.seq > self._begin:
            self._at_work.add(event.node_run_id)
        elif isinstance(event, NodeEnd | NodeError):
            self._at_work.discard(event.node_run_id)


def _is_cut_off(context: ServiceContext, row: ThreadRow, run_id: str) -> bool:
    """Whether the run has lost its process, and a server is going to take it over."""
    return context.settings.server.take_over and (row.facts.run_id, row.facts.status) == (run_id, "running")


async def result_elsewhere(context: ServiceContext, thread_id: str, run_id: str) -> RunResult:
    """The outcome of the run, once no process drives it any more; of one whose process died, once another has taken it over.

    Raises:
        ThreadNotFound: the run has left no record.
        GraphflowError: `shutting_down`.
    """
    # A lease, and a sweep that is late: after that nobody takes the run over.
    looks = int((2 * context.runs.registry.lease_ms / 1000 + TAKE_OVER_S) / LOOK_S)
    while row := await context.store.thread(thread_id):
        if is_at_rest(context, row, run_id):
            if not (_is_cut_off(context, row, run_id) and looks):
                break
            looks -= 1
        context.refuse_when_stopping()
        await asyncio.sleep(LOOK_S)
    graph = await context.graph_of_thread(thread_id)
    return await stored_result(graph.host, thread_id, run_id)
