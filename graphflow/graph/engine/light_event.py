"""Awaitables that cost next to nothing: a run has one of each, and every delta awaits one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal


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
