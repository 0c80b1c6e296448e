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
    steps back, and random bits of this process.
    """

    def __init__(self) -> None:
        self._last = 0
        self._counter = 0
        self._random = random.Random(int.from_bytes(os.urandom(16), "big"))  # noqa: S311 - unique, not secret

    def new_id(self) -> str:
        now = time.time_ns() // 1_000_000
        if now <= self._last:
            self._counter += 1
            if self._counter > 0xFFF:
                self._last += 1
                self._counter = 0
        else:
            self._last, self._counter = now, 0
        low = self._random.getrandbits(62)
        text = f"{self._last:012x}7{self._counter:03x}{0x8000000000000000 | low:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def random(self) -> float:
        return self._random.random()
