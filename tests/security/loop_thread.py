"""A server whose event loop says how long it was kept from turning, by the CPU time of its thread."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx

from graphflow.runtime.collector import LEAST
from graphflow.server.run import make_server
from graphflow.service.application import Application
from tests.patience import PATIENCE_S

PACE_S = 0.0075
"""CPU time of `_work` on the machine for which the bounds are written, with nothing beside it."""
TRIES = 3
"""What is kept from turning by the machine is not kept a second and a third time; what our code does is."""


def _work() -> None:
    """What the server's own work is made of: objects, texts and their encoding, little of it in the processor's caches."""
    rows = [{"n": number, "text": f"text {number}", "list": [number, number + 1]} for number in range(4_500)]
    json.loads(json.dumps(rows))


def slowness() -> float:
    """How many times slower this machine is now than that for which the bounds are written; 1.0 for a faster one."""

    def taken() -> float:
        before = time.thread_time()
        _work()
        return time.thread_time() - before

    return max(1.0, min(taken() for _ in range(3)) / PACE_S)


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Notes its longest turn. CPU time and not time that passes: other processes of the machine do not count."""

    longest = 0.0

    def _run_once(self) -> None:
        before = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest = max(self.longest, time.thread_time() - before)


class MeasuredServer:
    """The server in a thread of its own, so that the clients' work is not counted."""

    def __init__(self, application: Application) -> None:
        self._server = make_server(application, port=0)
        self._thread = threading.Thread(target=self._run)
        self.loop = MeasuredLoop()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._server.serve())

    async def start(self) -> str:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            await asyncio.sleep(0.01)
        return self._server.url

    async def stop(self) -> None:
        self._server.should_exit = True
        await asyncio.to_thread(self._thread.join)

    async def longest_turn_of(self, doing: Callable[[], Awaitable[object]], within: float) -> float:
        """Seconds of the loop thread's CPU time in its longest turn while this is done.

        What is longer than `within` is told in the time of the machine for which the bounds are written, and done again,
        `TRIES` times in all; the least counts.
        """
        least = float("inf")
        for _ in range(TRIES):
            self.loop.longest = 0.0
            await doing()
            longest = self.loop.longest
            if longest >= within:
                longest /= await self._slowness()
            least = min(least, longest)
            if least < within:
                break
        return least

    async def _slowness(self) -> float:
        async def taken() -> float:
            return slowness()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(taken(), self.loop))


@contextmanager
def heap_set_aside() -> Iterator[None]:
    """The collector as `graphflow serve` sets it (`relax_collector`): it passes over what the process holds by now."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEAST, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def measured(application: Application) -> AsyncIterator[tuple[MeasuredServer, httpx.AsyncClient]]:
    server = MeasuredServer(application)
    url = await server.start()
    try:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S * 10) as client:
            for path in ("/api/health", "/api/ready", "/api/agents"):  # what is loaded once is loaded
                await client.get(path)
            with heap_set_aside():
                yield server, client
    finally:
        await server.stop()
