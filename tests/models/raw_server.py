"""A raw TCP server that answers HTTP requests with exactly the bytes a test gives it.

It speaks only as much HTTP as a test needs, so that every oddity of a provider, the broken ones included,
can cross a real socket.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """The server's side of one connection, handed to the test's answer."""

    writer: asyncio.StreamWriter
    released: asyncio.Event
    request: Request
    """What is answered."""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, content_type: str = "text/event-stream", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", "transfer-encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        if data:
            await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def cut(self) -> None:
        """Drops the connection in the middle of the body."""
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Says nothing more until the test is over."""
        await self.released.wait()


Answer = Callable[[Connection], Awaitable[None]]


@dataclass
class RawServer:
    """`answers` are used up in order, one per request; the last one is used again and again."""

    answers: list[Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
                await answer(Connection(writer, self.released, request))
                if writer.transport.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()


@asynccontextmanager
async def raw_server(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    server = RawServer(list(answers))
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        server.released.set()
        listener.close()
        for task in list(server.tasks):
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


def stream(*blocks: bytes, **headers: str) -> Answer:
    """A stream that sends `blocks`, each as one HTTP chunk, and ends cleanly."""

    async def answer(connection: Connection) -> None:
        await connection.head(200, "text/event-stream", **headers)
        for block in blocks:
            await connection.chunk(block)
        await connection.end()

    return answer


def body(status: int, content: bytes, content_type: str = "application/json", **headers: str) -> Answer:
    """An answer that is no stream."""

    async def answer(connection: Connection) -> None:
        await connection.head(status, content_type, **headers)
        await connection.chunk(content)
        await connection.end()

    return answer


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, content)


# --- chunks --------------------------------------------------------------------------------------


def event(payload: Any) -> bytes:
    """One SSE event with this JSON."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """One chunk with one choice whose delta has these fields."""
    return event({"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def call(index: Any = 0, id: Any = None, name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """One entry of `tool_calls`; what is `...` is left out."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not ...}
    entry = {"index": index, "id": id, "function": function, **more}
    return {k: v for k, v in entry.items() if v is not ...}


DONE = b"data: [DONE]\n\n"
STOP = delta("stop")
