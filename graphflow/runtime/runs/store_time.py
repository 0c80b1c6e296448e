"""The time by which leases are given, compared and taken over (E2).

Hosts that share a database may have clocks that differ by minutes, so leases use the database's: its time is asked for now and then
and told from this process's uptime in between. What is told is never ahead of the database, by which nobody takes a thread
too early. Stores of one host have no clock of their own; there it is the host's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from graphflow.checkpoints.checkpointer import Checkpointer, store_clock
from graphflow.graph.engine.ports import Clock
from graphflow.runtime.clock_and_ids import SystemClock

FRESH_S = 60.0
"""For so long the uptime of a host keeps step with the database, to some milliseconds."""
MOST_SLACK_S = 1.0
"""What took longer to be answered tells the time too badly, if there is another answer."""

_uptime: Callable[[], float] = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):  # goes on while the machine sleeps
    from functools import partial

    _uptime = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Moment(NamedTuple):
    """A moment of the store's time, by the clocks of this process."""

    wall: int
    """Epoch ms, for events and ticks."""
    uptime: float
    """Seconds; it does not jump."""


class StoreTime:
    """The time of one store.

    Args:
        clock: of this process. One that is not the system's is the store's too.
    """

    def __init__(self, store: Checkpointer, clock: Clock) -> None:
        self._clock = clock
        is_real = isinstance(clock, SystemClock)
        self.source = store_clock(store) if is_real else None
        """The store's own clock, if it has one."""
        self.uptime = _uptime if is_real else clock.monotonic
        self._anchor: tuple[float, int, float] | None = None
        """Uptime, the store's time at this moment at least, and how much later it may have been (seconds)."""
        self._told: tuple[float, int] | None = None
        """The same of the host's time, for a store without a clock."""

    async def measure(self) -> None:
        """Asks the store what time it is."""
        if self.source is None:
            return
        before = self.uptime()
        now = await self.source.clock_ms()
        if now is None:
            self.source = None
            return
        after = self.uptime()
        slack, known = after - before, self._anchor
        if known is None or slack <= MOST_SLACK_S or after - known[0] > FRESH_S:
            self._anchor = (after, now, slack)

    async def refresh(self) -> None:
        """Asks the store again if that was long ago."""
        if self.source is not None and (self._anchor is None or self.uptime() - self._anchor[0] > FRESH_S):
            await self.measure()

    def now_ms(self) -> int:
        """Epoch ms; any thread may ask."""
        anchor = self._anchor
        if anchor is None:
            uptime, now = self.uptime(), self._clock.now_ms()
            self._told = uptime, now
            return now
        return anchor[1] + int((self.uptime() - anchor[0]) * 1000)

    def here(self, at: int) -> Moment:
        """When it is surely not later than `at` of the store's time, by the clocks of this process."""
        anchor = self._anchor
        if anchor is None:
            uptime, now = self._told or (self.uptime(), self._clock.now_ms())
            return Moment(at, uptime + (at - now) / 1000)
        left = at - self.now_ms() - int(anchor[2] * 1000)
        return Moment(self._clock.now_ms() + left, self.uptime() + left / 1000)
