"""Connections that never say what they want: closed in time, refused beyond a number, and never a trace in the log."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from graphflow.server.client_addresses import TrustedProxies
from graphflow.server.connections import BoundedProtocol, OneLine, survive_exhaustion
from graphflow.settings.table import ServerSettings

BOUNDS = ServerSettings(max_connections=2, request_head_s=15, request_body_s=60)


def body_of(wire: Wire) -> Any:
    """The JSON of the answer, as long as its head says."""
    head, _, body = wire.sent.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower() and f"content-length: {len(body)}".encode() in head.lower()
    return json.loads(body)


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Time that stands until a test moves it; the tasks of requests run on the real loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def create_task(self, work: Any, **options: Any) -> Any:
        return asyncio.get_running_loop().create_task(work, **options)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.at <= self.now]
        self.timers = [timer for timer in self.timers if timer.at > self.now]
        for timer in due:
            if not timer.cancelled:
                timer.call()


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = b"", False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 5), "sockname": ("10.0.0.2", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def echo(scope: Any, receive: Any, send: Any) -> None:
    while (message := await receive())["type"] == "http.request" and message.get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class Here:
    """Connections to one server, and its time."""

    def __init__(self) -> None:
        self.loop, self.state = Loop(), ServerState()
        self.config = Config(echo, log_config=None, lifespan="off")
        self.addresses: Counter[str] = Counter()

    def connect(self, bounds: ServerSettings = BOUNDS) -> tuple[BoundedProtocol, Wire]:
        protocol = BoundedProtocol(self.config, self.state, {}, self.loop, bounds=bounds)
        protocol.connection_made(wire := Wire())
        return protocol, wire

    def connect_from(self, wire: Wire, bounds: ServerSettings, proxies: TrustedProxies) -> tuple[BoundedProtocol, Wire]:
        given: Any = {"bounds": bounds, "proxies": proxies, "addresses": self.addresses}
        protocol = BoundedProtocol(self.config, self.state, {}, self.loop, **given)
        protocol.connection_made(wire)
        return protocol, wire


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def here() -> Here:
    return Here()


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_end_closes_the_connection(here: Here, begun: bytes):
    protocol, wire = here.connect()
    if begun:
        protocol.data_received(begun)
    here.loop.advance(14.9)
    assert not wire.closed
    here.loop.advance(0.1)
    assert wire.closed


async def test_a_byte_now_and_then_does_not_keep_a_head_open(here: Here):
    protocol, wire = here.connect()
    for byte in b"GET / HTTP/1.1\r\n":
        here.loop.advance(1)
        if not wire.closed:
            protocol.data_received(bytes([byte]))
    assert wire.closed


async def test_a_body_is_closed_when_it_stops_and_not_while_it_goes_on(here: Here):
    protocol, wire = here.connect()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    for _ in range(20):
        here.loop.advance(59)
        assert not wire.closed
        protocol.data_received(b"x")
        await settle()
    here.loop.advance(60)
    assert wire.closed
    protocol.connection_lost(None)
    await settle()
    assert not here.state.tasks, "the request that waited for the rest has ended"


async def test_a_client_is_not_blamed_for_a_server_that_does_not_read(here: Here):
    protocol, wire = here.connect()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n" + b"x" * 100_000)
    assert protocol.flow.read_paused
    here.loop.advance(600)
    assert not wire.closed
    protocol.connection_lost(None)
    await settle()


async def test_the_next_request_of_a_connection_has_a_limit_of_its_own(here: Here):
    protocol, wire = here.connect()
    for _ in range(3):
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await settle()
        here.loop.advance(4)  # within the time for which an idle connection is kept
        assert not wire.closed
        assert b"200" in wire.sent
    protocol.data_received(b"GET / HT")
    here.loop.advance(15)
    assert wire.closed


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"nothing\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
)  # fmt: skip
async def test_what_is_not_http_is_refused_in_the_envelope(here: Here, head: bytes):
    protocol, wire = here.connect()
    protocol.data_received(head)
    assert wire.sent.startswith(b"HTTP/1.1 400 Bad Request") and wire.closed
    assert body_of(wire)["data"]["error"]["code"] == "invalid_input" and body_of(wire)["code"] == 400


async def test_a_connection_too_many_is_told_the_setting_and_the_others_stay(here: Here):
    first, second, third = (here.connect() for _ in range(3))
    assert b"503" in third[1].sent and b"server.max_connections" in third[1].sent and third[1].closed
    assert body_of(third[1])["data"]["error"]["code"] == "overloaded"
    assert not first[1].closed and not second[1].closed
    third[0].connection_lost(None)
    first[0].connection_lost(None)
    assert not here.connect()[1].closed


@pytest.mark.parametrize(
    "sent",
    [b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n"],
)  # fmt: skip
async def test_what_is_no_http_leaves_no_trace(here: Here, sent: bytes, caplog: pytest.LogCaptureFixture):
    logging.getLogger("uvicorn.error").addFilter(one_line := OneLine())
    try:
        protocol, wire = here.connect()
        protocol.data_received(sent)
        await settle()
        protocol.connection_lost(None)
        await settle()
    finally:
        logging.getLogger("uvicorn.error").removeFilter(one_line)
    assert wire.closed
    assert not [record for record in caplog.records if record.exc_info]
    assert len(caplog.records) <= 2


def test_a_trace_of_the_protocol_becomes_a_line_and_one_of_ours_stays():
    kept = []
    for error in (h11.LocalProtocolError("odd"), ValueError("ours")):
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "failed", (), (type(error), error, None))
        assert OneLine().filter(record)
        kept.append((record.getMessage(), record.exc_info is not None))
    assert kept == [("a client broke the protocol: odd", False), ("failed", True)]


async def test_no_file_descriptor_left_is_one_line(caplog: pytest.LogCaptureFixture):
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    others: list[str] = []
    loop.set_exception_handler(lambda _, context: others.append(context["message"]))
    survive_exhaustion(loop)
    for _ in range(2_000):
        loop.call_exception_handler({"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
    loop.call_exception_handler({"message": "another"})
    loop.set_exception_handler(before)
    (line,) = caplog.records
    assert "Too many open files" in line.getMessage() and not line.exc_info
    assert others == ["another"]
