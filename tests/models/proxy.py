"""A small HTTP proxy on loopback: it tunnels `CONNECT` and forwards plain requests, perhaps for a password only."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    credentials: str | None = None
    """`user:password` that it asks for."""
    asked: list[str] = field(default_factory=list)
    """The first line of each request."""
    url: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()
        self.tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.asked.append(first)
        given = next((line for line in lines if line.lower().startswith("proxy-authorization: basic ")), "")
        if self.credentials is not None and given[27:] != base64.b64encode(self.credentials.encode()).decode():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        method, target, version = first.split(" ")
        parts = urlsplit(target if method != "CONNECT" else f"//{target}")
        upstream, sink = await asyncio.open_connection(parts.hostname, parts.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            kept = [line for line in lines if not line.lower().startswith("proxy-")]
            sink.write("\r\n".join([f"{method} {parts.path} {version}", *kept]).encode())
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, sink))
            group.create_task(_copy(upstream, writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await source.read(65_536):
            sink.write(block)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def http_proxy(credentials: str | None = None) -> AsyncIterator[Proxy]:
    proxy = Proxy(credentials)
    listener = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        for task in list(proxy.tasks):
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
