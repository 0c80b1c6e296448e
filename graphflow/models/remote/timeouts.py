"""The time limits of one model call, kept with one timer instead of one per read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from graphflow.models.remote.retry import Limits

T = TypeVar("T")


class LimitReached(Exception):
    """A time limit: `limit` is `first_data`, `idle`, `after_finish` or `total`."""

    def __init__(self, limit: str, seconds: float) -> None:
        super().__init__(f"{limit} limit of {seconds:g} s reached")
        self.limit = limit
        self.seconds = seconds


class TurnTimeouts:
    """Limits every read of a call.

    Time runs only while the call waits for the provider; a consumer that takes its time between deltas
    uses up `total_s` only. The timer looks at the deadlines when it fires and goes on if they have
    moved, so that a read costs no timer of its own.
    """

    def __init__(self, limits: Limits, total_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._total_s = total_s
        self._end = self._loop.time() + total_s
        self._limit = ("first_data", limits.first_data_s)
        self._since: float | None = None  # when the present silence began
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reached: LimitReached | None = None

    def remaining_s(self) -> float:
        """Seconds left of the whole call."""
        return self._end - self._loop.time()

    def restart(self) -> None:
        """A new try begins: the first-data limit counts anew, the total goes on."""
        self._since = None
        self._set("first_data", self._limits.first_data_s)

    def data(self) -> None:
        """An event with data came."""
        self._since = None
        if self._limit[0] == "first_data":
            self._set("idle", self._limits.idle_s)

    def finished(self) -> None:
        """A finish reason came: only a last word is waited for."""
        if self._limit[0] != "after_finish":
            self._set("after_finish", min(self._limits.after_finish_s, self._limits.idle_s))

    async def guard(self, wait: Awaitable[T]) -> T:
        """Awaits `wait`, for as long as the limits allow.

        Raises:
            LimitReached: after `wait` was cancelled.
        """
        if self._since is None:
            self._since = self._loop.time()
        task = self._task = asyncio.current_task()
        assert task is not None
        # A cancel that was already under way must not be taken for the timer's.
        cancelling = task.cancelling()
        if self._timer is None:
            self._arm()
        try:
            return await wait
        except asyncio.CancelledError:
            reached, self._reached = self._reached, None
            # The timer's own cancel is taken back; a cancel from outside that came at the same time still wins.
            if reached is not None and task.uncancel() <= cancelling:
                raise reached from None
            raise
        finally:
            self._task = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, name: str, seconds: float) -> None:
        self._limit = (name, seconds)
        self.close()  # the next wait arms the timer for the new limit

    def _arm(self) -> None:
        silent_until = (self._loop.time() if self._since is None else self._since) + self._limit[1]
        self._timer = self._loop.call_at(min(silent_until, self._end), self._look)

    def _look(self) -> None:
        self._timer = None
        # The consumer holds the last delta: its time is not the provider's silence.
        if self._task is None:
            return  # nobody waits; the next wait arms again
        now = self._loop.time()
        assert self._since is not None
        if now >= self._end:
            self._reached = LimitReached("total", self._total_s)
        elif now >= self._since + self._limit[1]:
            self._reached = LimitReached(*self._limit)
        # Data came since the timer was set: only then is the deadline computed anew.
        else:
            self._arm()
            return
        self._task.cancel()
