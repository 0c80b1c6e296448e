"""A clock that only `advance` moves, ids that count, and a way to read a whole stream."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


class FakeClock:
    """A `Clock` whose time only `advance` moves; sleepers wake when their time has come.

    Args:
        now_ms: the first moment, epoch ms.
        step_ms: added at each reading, so that events have different times.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000, step_ms: int = 0) -> None:
        # A float: sleeps shorter than a millisecond must add up.
        self._now_ms = float(now_ms)
        self._step_ms = step_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self.sleeps: list[float] = []
        """Seconds that were asked for, in order."""

    def now_ms(self) -> int:
        self._now_ms += self._step_ms
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        # The count breaks ties, because futures can't be compared: equal times wake in the order of sleeping.
        heapq.heappush(self._sleepers, (self._now_ms + seconds * 1000, self._count, future))
        await future

    def advance(self, seconds: float) -> None:
        """Moves time on and wakes the sleepers whose time has come."""
        self._now_ms += seconds * 1000
        while self._sleepers and self._sleepers[0][0] <= self._now_ms:
            _, _, future = heapq.heappop(self._sleepers)
            # A sleeper that was cancelled stays in the heap until its time comes.
            if not future.done():
                future.set_result(None)


class FakeIds:
    """Ids in the form of UUIDv7 that count from 1, and random draws that are the same in every test run."""

    def __init__(self, draw: float = 0.5) -> None:
        self._count = 0
        self._draws = 0
        self._draw = draw

    def new_id(self) -> str:
        self._count += 1
        return f"018bcfe5-6800-7000-8000-{self._count:012x}"

    def random(self) -> float:
        # They differ, or a test could not tell one draw from the next.
        self._draws += 1
        return (self._draw + self._draws * 0.001) % 1


async def collect(stream: AsyncIterator[T]) -> list[T]:
    """Everything that a stream gives, in order."""
    return [item async for item in stream]
