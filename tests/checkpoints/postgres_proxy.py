"""A stand-in for the network between a store and PostgreSQL, which loses connections at the worst moments."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Passes bytes on between the clients of its socket and the server.

    `lose` names what happens to the next request that contains certain bytes: `request` ends the connection before the
    server sees it, `answer` after the server has answered, so that nobody but the server knows.
    """

    def __init__(self, server: Path) -> None:
        self._server = server / SOCKET
        self._folder = tempfile.TemporaryDirectory(prefix="gfpx-")
        self.folder = Path(self._folder.name)
        self.losing: tuple[str, bytes] | None = None
        self.lost = 0
        self.away = False
        """It takes connections and drops them at once, as during a failover."""
        self.requests = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def lose(self, what: str, containing: bytes = b"") -> None:
        self.losing = (what, containing)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.away:
                return
            above, below = await asyncio.open_unix_connection(str(self._server))
            try:
                await self._pass(reader, writer, above, below)
            finally:
                below.close()
                await _gone(below)
        except (OSError, asyncio.CancelledError):  # the server is away, or `cut`
            pass
        finally:
            writer.close()
            await _gone(writer)
            self._tasks.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, above: asyncio.StreamReader,
        below: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        silent = asyncio.Event()

        async def answers() -> None:
            try:
                while (data := await above.read(1 << 16)) and not silent.is_set():
                    writer.write(data)
            except OSError:  # the server has crashed
                pass
            finally:
                writer.close()

        answering = asyncio.ensure_future(answers())  # noqa: TID251 – ended below
        try:
            while data := await reader.read(1 << 20):
                self.requests += 1
                if self.losing is not None and self.losing[1] in data:
                    what, self.losing = self.losing[0], None
                    self.lost += 1
                    if what == "answer":
                        silent.set()
                        below.write(data)
                        await answering
                    return
                below.write(data)
        finally:
            answering.cancel()
            await asyncio.wait([answering])

    async def cut(self) -> None:
        """Ends every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)


async def _gone(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


@asynccontextmanager
async def proxy_to(server: Path) -> AsyncIterator[Proxy]:
    proxy = Proxy(server)
    listening = await asyncio.start_unix_server(proxy._serve, str(proxy.folder / SOCKET))
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.cut()
        while proxy._tasks:
            await asyncio.sleep(0)
        proxy._folder.cleanup()
