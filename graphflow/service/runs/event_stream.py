"""Joining a run's log, from the beginning or where a client has left it (spec 3.4, E1).

What a client has is a number and the epoch that sent it. As long as the ring of the process that runs has all that
follows, it is sent as it was. Else the client drops what may differ from the log (`stream.reset`), gets finished
blocks as snapshots and an open one as its start and its text so far, and goes on live. What another process drives is
followed by its records (`remote_runs.py`).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from graphflow.checkpoints.record_decoder import beside_loop
from graphflow.events import STREAM_ENDS, TERMINAL, Event, NodeEnd, NodeError, NodeStart, StreamReset, in_families
from graphflow.excerpts import excerpt_of
from graphflow.graph.engine.ports import Logged
from graphflow.runtime.history.stored_events import StoredLog, pruned_log
from graphflow.runtime.runs.event_ring import RunLog, block_id
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.context import ServiceContext
from graphflow.service.queued_inputs import find_run
from graphflow.service.requests import bad_argument, unknown_run
from graphflow.service.run_log import UNSAFE, RingView, StoredRun, StreamFrame, read_run
from graphflow.service.runs.remote_runs import follow_stored

SeqSpan = tuple[int, int]
"""Numbers of a block's start and end."""
_POSITION = re.compile(r"(\d{1,18})-(\d{1,18})")


class Position(msgspec.Struct, frozen=True):
    """Where a client is: the id of the last event that it has."""

    epoch: int
    seq: int


def parse_position(text: str | None) -> Position | None:
    """A `Last-Event-ID`.

    Raises:
        GraphflowError: `invalid_input` when it is not `<epoch>-<seq>`.
    """
    if text is None or not text.strip():
        return None
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise bad_argument("lastEventId", f"{excerpt_of(text)} is not an event id: <epoch>-<seq>")
    return Position(int(match[1]), int(match[2])) if int(match[2]) else None


async def run_events(
    context: ServiceContext, run_id: str, last_event_id: str | None = None
) -> AsyncIterator[StreamFrame]:
    """The run's events after the one that the client has, new ones as they come, until the epoch ends."""
    async for batch in await join(context, run_id, last_event_id) or _nothing():
        for frame in batch:
            yield frame


async def _nothing() -> AsyncIterator[list[StreamFrame]]:
    return
    yield


async def join(
    context: ServiceContext, run_id: str, last_event_id: str | None = None, families: Collection[str] | None = None
) -> AsyncIterator[list[StreamFrame]] | None:
    """The same in batches: what is ready together comes together. None when the run has ended or waits, and the client has
    all that it wants of it.

    Args:
        families: that the client wants; the batches hold the others too.

    Raises:
        ThreadNotFound: no such run.
        CheckpointNotFound: the run's log was pruned; `detail.pruned` is true.
        GraphflowError: `invalid_input` for an invalid id.
    """
    position = parse_position(last_event_id)
    await context.runs.ready()
    live = next((live for live in context.runs.by_thread.values() if live.run_id == run_id), None)
    thread_id = live.thread_id if live is not None else await find_run(context, run_id)
    if thread_id is None:
        raise unknown_run(run_id)
    if live is not None and live.log is not None:
        return None if _has_ring(live.log, position, families) else _joined_live(context, live, live.log, position)
    run = await read_run(context, thread_id, run_id)
    if run.log.pruned:
        raise pruned_log(thread_id, run_id)
    keep, is_done = await beside_loop(run.log.events, _standing, run, position, families)
    if is_done:
        return None
    return _joined_stored(context, thread_id, run_id, run, position, keep)


def _standing(run: StoredRun, position: Position | None, families: Collection[str] | None) -> tuple[int, bool]:
    """How much of the client's log stands, and whether that is all there will be."""
    keep = _keep(position, run.log, run.row.fence, None)
    if position is None or keep != position.seq or run.goes_on:
        return keep, False
    return keep, _has_all([event for event, _ in run.log.events], position, families)


async def follow(log: RunLog, after: int) -> AsyncIterator[list[StreamFrame]]:
    """What an epoch sends, for a client that has everything up to `after`.

    Raises:
        Behind: the client has fallen behind the ring; it rejoins by id.
    """
    epoch = log.epoch
    async for batch in log.batches(after):
        yield [(f"{epoch}-{event.seq}", event) for event in batch]


async def _joined_stored(
    context: ServiceContext, thread_id: str, run_id: str, run: StoredRun, position: Position | None, keep: int
) -> AsyncIterator[list[StreamFrame]]:
    if not run.goes_on:
        events = run.log.events
        if frames := await beside_loop(events, _frames, events, (), keep, position, run.row.fence, None):
            yield frames
        return
    # The reset comes with what takes the place of what is dropped: who is cut off in between may go to the process that
    # drives the run, which knows nothing of a reset.
    reset: list[StreamFrame] = []
    if position is not None and keep < position.seq:
        reset.append((None, StreamReset(keep_seq=keep)))
    async for batch in follow_stored(context, thread_id, run_id, run, keep):
        yield reset + batch
        reset = []


async def _joined_live(
    context: ServiceContext, live: LiveRun, ring: RunLog, position: Position | None
) -> AsyncIterator[list[StreamFrame]]:
    if _is_raw(position, ring):
        async for batch in follow(ring, position.seq if position is not None else 0):
            yield batch
        return
    view = RingView(live)
    log = await view.read(context, live.run_id)
    keep = await beside_loop(log.events, _keep, position, log, ring.epoch, view)
    # The client's log stands as it is, so nothing is rebuilt; the ring goes on from its position.
    if position is not None and keep == position.seq and ring.has(keep):
        after = keep
    else:
        after = view.last_seq
        frames = await beside_loop(log.events, _frames, log.events, view.open_blocks, keep, position, ring.epoch, ring)
        if frames:
            yield frames
    async for batch in follow(ring, after):
        yield batch


def _has_all(events: Sequence[Event], position: Position, families: Collection[str] | None) -> bool:
    """Whether the events end a stream and none after the position is wanted."""
    if not events or not isinstance(events[-1], STREAM_ENDS):
        return False
    return not any(event.seq > position.seq and in_families(event, families) for event in events)


def _has_ring(ring: RunLog, position: Position | None, families: Collection[str] | None) -> bool:
    """The same for an epoch whose last event was sent and that is still being closed."""
    if position is None or not _is_raw(position, ring):
        return False
    return _has_all(ring.ring, position, families)


def _is_raw(position: Position | None, ring: RunLog) -> bool:
    """Whether the ring alone has everything that the client misses, so that the store need not be read."""
    if position is None:
        return ring.mark == 0 and ring.has(0)
    if position.epoch != ring.epoch or position.seq > ring.last_seq:
        return False
    return ring.has(position.seq) and position.seq not in UNSAFE.get(ring, {})


# --- how much of the client's log stands ---------------------------------------------------------


def _keep(position: Position | None, log: StoredLog, epoch: int, view: RingView | None) -> int:
    """The last number, at most the client's and its epoch's mark, at which no block was open (E1)."""
    if position is None:
        return 0
    # Beyond what the log has of that epoch, the number may belong to another event now (E1).
    limit = min(position.seq, _known(position, log, epoch, view))
    # A rebuilt log may have ended inside overlapping blocks: step back to before them (see `UNSAFE`).
    if view is not None and position.epoch == view.epoch:
        limit = view.unsafe.get(limit, limit)
    spans = [(first, event.seq) for event, first in log.events if first < event.seq]
    # An open block is sent again as its start and its text so far, so no part of it may be kept.
    if view is not None:
        spans += [(first, limit + 1) for first in view.opened]
    spans += dead_spans(log, view)
    return keep_before(limit, spans)


def _known(position: Position, log: StoredLog, epoch: int, view: RingView | None) -> int:
    """The last number up to which clients of the position's epoch agree with the log."""
    for fence, mark in log.epochs:
        if fence > position.epoch:
            return mark
    if position.epoch > epoch:
        return 0  # of an epoch that never was: perhaps of another store
    if view is None:
        return log.sent
    return view.last_seq if position.epoch == view.epoch else view.mark


def keep_before(limit: int, spans: Sequence[SeqSpan]) -> int:
    """The last number up to `limit` that lies inside no span (a span's last number is outside)."""
    keep = limit
    # By where they begin, the last first: what a step down leads into begins before the span that was left.
    for first, last in sorted(spans, reverse=True):
        if first <= keep < last:
            keep = first - 1
    return max(keep, 0)


def dead_spans(log: StoredLog, view: RingView | None) -> list[SeqSpan]:
    """Where an epoch that ended by a crash may have left a block open: from the first number that the log does not
    know to the epoch's end. Such a block is void and comes again under another id.
    """
    begins = [mark for _, mark in log.epochs[1:]]
    alive = view is not None and bool(log.epochs) and log.epochs[-1][0] == view.epoch
    ends = begins if alive else [*begins, log.sent if view is None else view.mark]
    covered = sorted({(first, event.seq) for event, first in log.events})
    at = {event.seq: event for event, _ in log.events}
    out: list[SeqSpan] = []
    for start, end in zip([0, *begins], ends, strict=False):
        if isinstance(at.get(end), TERMINAL):
            continue  # a run's end closes every block; a crash while it waits for people need not have
        holes = (_first_hole(covered, start + 1, end), _first_hidden(log.events, start, end))
        if known := [hole for hole in holes if hole is not None]:
            out.append((min(known), end + 1))
    return out


def _first_hole(covered: Sequence[SeqSpan], start: int, end: int) -> int | None:
    """The first number from `start` to `end` that no span covers."""
    number = start
    for first, last in covered:
        if last < number:
            continue
        if first > number:
            break
        number = last + 1
    return number if number <= end else None


def _first_hidden(events: Sequence[Logged], start: int, end: int) -> int | None:
    """The first number from `start` to `end` that another branch's finished block covers, but that may be of a block which a
    node run in a branch has left open.
    """
    at_work: OrderedDict[str, int] = OrderedDict()  # the earliest is first, and found at once where many were removed
    for event, _ in events:
        if isinstance(event, NodeStart) and event.path and start < event.seq <= end:
            at_work[event.node_run_id] = event.seq
        elif isinstance(event, NodeEnd | NodeError) and event.seq <= end:
            at_work.pop(event.node_run_id, None)
    after: dict[int, int] = {}
    """Number that is known → the next one that is not."""
    for number in sorted({event.seq for event, _ in events} | {first for _, first in events}, reverse=True):
        after[number] = after.get(number + 1, number + 1)
    found: list[int] = []
    for event, first in events:
        since = next((begun for run, begun in at_work.items() if run != getattr(event, "node_run_id", None)), None)
        if first < event.seq and since is not None:
            number = max(first + 2, since + 1)  # a block's first piece follows its start
            number = after.get(number, number)
            if number < event.seq:
                found.append(number)
    return min(found, default=None)


# --- what the client is sent ---------------------------------------------------------------------


def _frames(
    events: Sequence[Logged],
    open_blocks: Sequence[Event],
    keep: int,
    position: Position | None,
    epoch: int,
    ring: RunLog | None,
) -> list[StreamFrame]:
    """The log after `keep`, rebuilt: finished blocks as snapshots, open ones as start and text so far."""
    first_of = _firsts(open_blocks)
    rebuilt = [(event, first) for event, first in events if event.seq > keep]
    rebuilt += [(event, first) for event, first in zip(open_blocks, first_of, strict=True)]
    rebuilt.sort(key=lambda entry: entry[0].seq)
    out: list[StreamFrame] = []
    if position is not None and (keep < position.seq or rebuilt):
        out.append((None, StreamReset(keep_seq=keep)))
    if ring is not None:
        _remember_unsafe(ring, rebuilt, keep)
    out += [(f"{epoch}-{event.seq}", event) for event, _ in rebuilt]
    return out


def _firsts(open_blocks: Sequence[Event]) -> list[int]:
    """The number of its block's start for each event of open blocks."""
    starts: dict[str, int] = {}
    out = []
    for event in open_blocks:
        block = block_id(event)
        out.append(starts.setdefault(block, event.seq))
    return out


def _remember_unsafe(ring: RunLog, rebuilt: Sequence[Logged], keep: int) -> None:
    least = [0] * len(rebuilt)
    first_later = 1 << 62
    # From the end: the smallest block start among the later events tells whether a block is open at each of them.
    for index in range(len(rebuilt) - 1, -1, -1):
        least[index] = first_later
        first_later = min(first_later, rebuilt[index][1])
    safe, unsafe = keep, UNSAFE.setdefault(ring, {})
    for (event, _), later in zip(rebuilt, least, strict=True):
        if later > event.seq:
            safe = event.seq
        else:
            unsafe[event.seq] = safe
