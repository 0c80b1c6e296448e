"""Awaitables that cost next to nothing: those of a run, which every delta awaits, and the turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Literal
from weakref import WeakKeyDictionary


class LightEvent:
    """`asyncio.Event` without the queue that each of those carries, 0.8 KB a run; used from one event loop."""

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        self._set = False

    async def wait(self) -> Literal[True]:
        """Returns once it is set; at once if it is."""
        if self._set:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        try:
            await waiter
            return True
        finally:
            if not waiter.done() or waiter.cancelled():
                self._drop(waiter)

    def _drop(self, waiter: asyncio.Future[None]) -> None:
        if self._waiters is not None and waiter in self._waiters:
            self._waiters.remove(waiter)


_AT_ONCE = iter(())
"""An iterator that is at its end, for all who await what is done already."""


class MaybeReady:
    """The awaitable that streaming calls return: done already, unless the consumer is too far behind."""

    __slots__ = ("_room",)

    def __init__(self, room: Callable[[], Awaitable[None]] | None) -> None:
        self._room = room

    def __await__(self) -> Any:
        return _AT_ONCE if self._room is None else self._room().__await__()


DONE = MaybeReady(None)


SLICE_S = 0.005
"""Seconds for which runs may keep the loop."""


class Turns:
    """Turns of one event loop: all runs of it together keep it for a slice of time, then everybody else has a turn.

    A node that never awaits would otherwise keep the loop as long as its run goes on, and a wide fan as long as all of its
    branches take for one node each. Who comes too late for a slice waits in line, so that the order in which branches run
    is the same however long each of them takes.
    """

    __slots__ = ("_began", "_called", "_line", "_steps")

    def __init__(self) -> None:
        self._began = 0.0
        """When the slice began; 0.0 before the first step of a turn."""
        self._steps = 0
        """Steps of this slice."""
        self._line: deque[asyncio.Future[None]] = deque()
        """Who waits for a later slice, in order."""
        self._called = 0
        """Who has been called and has not come yet: nobody overtakes them."""

    def begin(self) -> bool:
        """Begins a step, if there is room for it in this slice; else the caller has to `take` its turn."""
        if not self._began:
            self._start()
        elif self._line or self._called or perf_counter() - self._began > SLICE_S:
            return False
        self._steps += 1
        return True

    def _start(self) -> None:
        self._began, self._steps = perf_counter(), 0
        asyncio.get_running_loop().call_soon(self._end)

    def cut(self) -> None:
        """Ends the slice: no further step begins before the loop's next turn."""
        if not self._began:
            self._start()
        self._began = float("-inf")

    def _end(self) -> None:
        """Runs in the loop's next turn: whoever waits is called, as many as the last slice had room for."""
        room = max(self._steps, 1)
        self._began = 0.0
        while self._line and room:
            if not (caller := self._line.popleft()).done():  # else its run has been cancelled meanwhile
                caller.set_result(None)
                self._called += 1
                room -= 1
        if self._called or self._line:
            self._start()

    async def take(self) -> None:
        """Begins a step, now or in a later slice."""
        if self.begin():
            return
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        finally:
            if place.done() and not place.cancelled():
                self._called -= 1
        self._steps += 1


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns() -> Turns:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _turns.get(loop)
    if found is None:
        found = _turns[loop] = Turns()
    return found
