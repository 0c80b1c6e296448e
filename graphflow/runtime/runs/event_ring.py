"""A run's log as clients see it: numbered events, a bounded ring of the live ones, and the blocks that are open (E1, E18)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from graphflow.events import (
    ActionArgs,
    ActionEnd,
    ActionStart,
    ContentDelta,
    ContentEnd,
    ContentStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    RequestSubmit,
    ToolArgs,
    ToolEnd,
    ToolStart,
)
from graphflow.runtime.runs.lease import NEVER

RING = 8192
"""Live events kept for clients that rejoin; a client that is further behind gets snapshots."""

_STARTS = (ReasoningStart, ContentStart, ToolStart, ActionStart)
_DELTAS = (ReasoningDelta, ContentDelta, ToolArgs, ActionArgs)
_ENDS = (ReasoningEnd, ContentEnd, ToolEnd, ActionEnd)


class Behind(Exception):
    """A subscriber fell behind the ring; it is disconnected and rejoins by id (E18)."""


class RunLog:
    """The events of one epoch of a run, while this process drives it.

    Args:
        epoch: the thread's fence; the first part of every SSE id.
        mark: number of the last event of earlier epochs; what this one sends has higher numbers.
    """

    def __init__(self, epoch: int, mark: int = 0, ring: int = RING) -> None:
        self.epoch: Final = epoch
        self.mark: Final = mark
        self.ring: deque[Event] = deque(maxlen=ring)
        self.open: dict[str, tuple[Event, list[Event]]] = {}
        """Open blocks: id → its start and its deltas so far."""
        self.ended = False
        self.good_until = NEVER
        self.withhold: Callable[[Event], None] | None = None
        """See `lease.Gate`."""
        self._wakers: set[asyncio.Future[None]] = set()

    def send(self, event: Event) -> None:
        """The executor's sink: keeps the event and wakes the subscribers; waits for nobody."""
        # After the lease another process may drive the thread: such an event waits until the store has confirmed the
        # lease.
        if event.timestamp > self.good_until and self.withhold is not None:
            self.withhold(event)
        else:
            self.pass_on(event)

    def pass_on(self, event: Event) -> None:
        self.ring.append(event)
        self._track(event)
        self._wake()

    def end(self) -> None:
        """No more events come in this epoch."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._wakers:
            for waker in self._wakers:
                if not waker.done():
                    waker.set_result(None)
            self._wakers.clear()

    def _track(self, event: Event) -> None:
        kind = type(event)
        if kind in _DELTAS:
            self.open[block_id(event)][1].append(event)
        elif kind in _STARTS:
            self.open[block_id(event)] = (event, [])
        elif kind in _ENDS:
            del self.open[block_id(event)]

    @property
    def last_seq(self) -> int:
        return self.ring[-1].seq if self.ring else self.mark

    async def follow(self, after: int) -> AsyncIterator[Event]:
        """Events with numbers above `after`, then live ones as they come, until the epoch ends.

        Raises:
            Behind: the ring has moved on past what this subscriber has read.
        """
        async for batch in self.batches(after):
            for event in batch:
                yield event

    async def batches(self, after: int) -> AsyncIterator[list[Event]]:
        """The same, with all that is ready at one moment together, so that they may share one write.

        Raises:
            Behind: see `follow`.
        """
        seen = after
        while True:
            ring = self.ring
            if ring and ring[-1].seq > seen:
                # Numbers up to `mark` were never in this ring: a gap counts only if the ring itself has dropped events.
                if ring[0].seq > seen + 1 and ring[0].seq > self.mark + 1:
                    raise Behind
                # Within an epoch numbers have no gaps, so the distance is the count.
                ready = min(ring[-1].seq - seen, len(ring))
                batch = [ring[i] for i in range(len(ring) - ready, len(ring))]
                seen = batch[-1].seq
                yield batch
                continue
            if self.ended:
                return
            # Nothing awaits between the check above and the registration, so no event is missed in between.
            waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wakers.add(waker)
            try:
                await waker
            finally:
                self._wakers.discard(waker)

    def has(self, after: int) -> bool:
        """Whether every event above `after` is in the ring."""
        first = self.ring[0].seq if self.ring else self.mark + 1
        return after + 1 >= first

    def so_far(self) -> list[Event]:
        """The open blocks: each as its start and one delta with its text so far, numbered as its last delta."""
        out: list[Event] = []
        for start, deltas in self.open.values():
            out.append(start)
            if deltas:
                text = "".join(d.delta for d in deltas)  # type: ignore[attr-defined]
                out.append(msgspec.structs.replace(deltas[-1], delta=text))
        return sorted(out, key=lambda event: event.seq)


def block_id(event: Event) -> str:
    """The id of the block that the event is a part of; "" for one that is part of none."""
    for field in ("content_id", "reasoning_id", "tool_id", "action_id"):
        value = getattr(event, field, None)
        # `request.submit` names the call that it answers and is no part of it.
        if value is not None and not isinstance(event, RequestSubmit):
            return str(value)
    return ""
