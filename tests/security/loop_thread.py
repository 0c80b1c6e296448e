"""A server whose event loop says how long it was kept from turning, by the CPU time of its thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from graphflow.runtime.collector import LEAST
from graphflow.server.run import make_server
from graphflow.service.application import Application
from tests.patience import PATIENCE_S


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

    async def longest_turn_of(self, doing: Any) -> float:
        """Seconds of the loop thread's CPU time in its longest turn while this is done."""
        self.loop.longest = 0.0
        await doing
        return self.loop.longest


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
