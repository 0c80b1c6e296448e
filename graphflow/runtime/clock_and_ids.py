"""The real clock and the real source of ids; tests inject their own (`graphflow.testing`)."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable


class SystemClock:
    """Wall time in ms, monotonic seconds, and real sleeping."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_LOW = (1 << 48) - 1
_STRIDE = 0x9E3779B97F4B
"""Odd, so that the ids of one millisecond differ in their last digits too: people name ids by their ends."""


class Uuid7Ids:
    """UUIDv7 ids (RFC 9562): the time in ms, a counter that keeps the order within one ms and under a clock that
    steps back, and bits of this process, drawn anew for each ms.
    """

    def __init__(self) -> None:
        self._random = random.Random(int.from_bytes(os.urandom(16), "big"))  # noqa: S311 - unique, not secret
        self.random: Callable[[], float] = self._random.random
        self._last = 0
        self._counter = 0
        self._low = 0
        self._head = self._middle = ""

    def new_id(self) -> str:
        now = time.time_ns() // 1_000_000
        # The counter fills the 12 bits of RFC 9562's `rand_a`. When it is full, the next ms is borrowed: ids never step
        # back.
        if now <= self._last and self._counter < 0xFFF:
            self._counter += 1
            self._low = (self._low + _STRIDE) & _LOW
        else:
            self._begin_ms(max(now, self._last + 1))
        return f"{self._head}{self._counter:03x}{self._middle}{self._low:012x}"

    def _begin_ms(self, ms: int) -> None:
        self._last, self._counter = ms, 0
        drawn = self._random.getrandbits(62)
        self._low = drawn & _LOW
        text = f"{ms:012x}"
        self._head = f"{text[:8]}-{text[8:]}-7"
        self._middle = f"-{0x8000 | drawn >> 48:04x}-"
