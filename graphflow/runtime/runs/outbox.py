"""The way of events from an attached run to its one consumer (E18)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from graphflow.events import Event
from graphflow.graph.engine.light_event import DONE, MaybeReady
from graphflow.runtime.runs.lease import NEVER

STREAM_ROOM = 256
"""Events that a run may be ahead of its consumer before it waits."""


class Outbox:
    """Events on their way from an attached run to its one consumer: a deque, and one future when somebody waits."""

    __slots__ = ("_closed", "_events", "_room", "_waiter", "good_until", "withhold")

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False
        self.good_until = NEVER
        self.withhold: Callable[[Event], None] | None = None
        """See `lease.Gate`."""

    def put(self, event: Event) -> None:
        # After the lease another process may drive the thread: see `lease`.
        if event.timestamp > self.good_until and self.withhold is not None:
            self.withhold(event)
        else:
            self.pass_on(event)

    def pass_on(self, event: Event) -> None:
        self._events.append(event)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def room(self) -> MaybeReady:
        """Done at once while the consumer keeps up; else waits until it has (bounded back-pressure)."""
        return DONE if len(self._events) < STREAM_ROOM or self._closed else MaybeReady(self._wait_for_room)

    async def _wait_for_room(self) -> None:
        while len(self._events) >= STREAM_ROOM and not self._closed:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            # Shielded: several waiters share the future, and a cancelled one must not cancel it for the others.
            await asyncio.shield(self._room)

    def close(self) -> None:
        self._closed = True
        for future in (self._waiter, self._room):
            if future is not None and not future.done():
                future.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        events = self._events
        while True:
            while events:
                yield events.popleft()
                # Wakes the run at half, not at one free place: it then sends a batch instead of one event per switch.
                if self._room is not None and not self._room.done() and len(events) < STREAM_ROOM // 2:
                    self._room.set_result(None)
            if self._closed:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
