"""The real clock and the real source of ids; tests inject their own (`graphflow.testing`)."""

from __future__ import annotations

import asyncio
import os
import random
import time


class SystemClock:
    """Wall time in ms, monotonic seconds, and real sleeping."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Uuid7Ids:
    """UUIDv7 ids (RFC 9562): the time in ms, a counter that keeps the order within one ms and under a clock that
    steps back, and random bits of this process, drawn anew for each ms.
    """

    def __init__(self) -> None:
        self._random = random.Random(int.from_bytes(os.urandom(16), "big"))  # noqa: S311 - unique, not secret
        self._last = 0
        self._counter = 0
        self._head = self._tail = ""

    def new_id(self) -> str:
        now = time.time_ns() // 1_000_000
        if now <= self._last and self._counter < 0xFFF:
            self._counter += 1
        else:
            self._begin_ms(max(now, self._last + 1))
        return f"{self._head}{self._counter:03x}{self._tail}"

    def _begin_ms(self, ms: int) -> None:
        self._last, self._counter = ms, 0
        time_text = f"{ms:012x}"
        low = f"{0x8000000000000000 | self._random.getrandbits(62):016x}"
        self._head = f"{time_text[:8]}-{time_text[8:]}-7"
        self._tail = f"-{low[:4]}-{low[4:]}"

    def random(self) -> float:
        return self._random.random()
