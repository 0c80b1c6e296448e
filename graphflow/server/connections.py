"""Connections that are bounded: so many, a head within seconds, a body that goes on; a malformed request is one line of the log."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphflow.errors import GraphflowError
from graphflow.server.client_addresses import TrustedProxies
from graphflow.server.envelope import refused
from graphflow.settings.table import ServerSettings

if TYPE_CHECKING:
    from starlette.responses import Response

log = logging.getLogger("graphflow.server")
QUIET_S = 10.0
"""Between two lines about a process that has no file descriptors left."""
_FULL = "{} has as many connections as the setting server.{} allows; retry later"


class StrictConnection(h11.Connection):
    """Refuses heads that another HTTP implementation may read otherwise, which h11 settles silently.

    A proxy that takes the other reading sees another end of the request, and what follows it as a request of its own
    (request smuggling; RFC 9112, sections 2.2, 5.2, 6.1 and 6.3).
    """

    def next_event(self) -> Any:
        waiting = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            # What h11 has read, as it was sent: its headers no longer show lines that were joined or dropped.
            head = waiting[: len(waiting) - len(self.trailing_data[0])]
            if (why := _ambiguity(head, event.http_version)) is not None:
                self.send_failed()
                raise h11.RemoteProtocolError(why)
        return event


def _ambiguity(head: bytes, version: bytes) -> str | None:
    """Why it is not clear where the request ends; None if it is."""
    if version not in (b"1.0", b"1.1"):
        return "an HTTP version that is not 1.0 or 1.1"
    head = head.lower()
    if head.count(b"\n") != head.count(b"\r\n"):
        return "a line that ends without a carriage return"
    if b"\n " in head or b"\n\t" in head:
        return "a folded header line"
    # A blank before the colon is refused by h11.
    _, *lengths = head.split(b"\ncontent-length:")
    if len(lengths) > 1 or any(b"," in length.partition(b"\r")[0] for length in lengths):
        return "several Content-Length values"
    if b"\ntransfer-encoding:" in head:
        if lengths:
            return "Content-Length and Transfer-Encoding together"
        if version == b"1.0":
            return "Transfer-Encoding in a request of HTTP/1.0"
    return None


class BoundedProtocol(H11Protocol):
    """One connection; see `ServerSettings` for its bounds."""

    def __init__(
        self,
        *args: Any,
        bounds: ServerSettings,
        proxies: TrustedProxies | None = None,
        addresses: Counter[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        limit = self.config.h11_max_incomplete_event_size
        self.conn = StrictConnection(h11.SERVER, *(() if limit is None else (limit,)))
        self._bounds = bounds
        self._proxies = proxies or TrustedProxies(())
        self._addresses: Counter[str] = Counter() if addresses is None else addresses
        """Open connections by address, of all connections of the server."""
        self._address: str | None = None
        """The address that this connection counts for."""
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base
        super().connection_made(transport)
        if len(self.connections) > self._bounds.max_connections:
            self._turn_away(transport, _FULL.format("the server", "max_connections"))
            return
        host = self.client[0] if self.client else ""
        if host and self._proxies.is_counted(host):
            self._addresses[host] += 1
            self._address = host
            if self._addresses[host] > self._bounds.max_connections_per_address:
                self._turn_away(transport, _FULL.format("the address", "max_connections_per_address"))
                return
        self._bound_head()

    def _turn_away(self, transport: asyncio.Transport, why: str) -> None:
        full = GraphflowError(why, code="overloaded", retryAfterMs=1000)
        self._write_whole(b"503 Service Unavailable", refused(full))
        transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._bound()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn's own limit holds until the next request begins.
        if self.timeout_keep_alive_task is not None:
            self._unbound()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unbound()
        if self._address is not None:
            self._addresses[self._address] -= 1
            if not self._addresses[self._address]:
                del self._addresses[self._address]
            self._address = None
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        answer = refused(GraphflowError("the request is not valid HTTP/1.1", code="invalid_input"))
        if self.conn.our_state is not h11.SEND_BODY:  # else a part of another answer has been sent already
            self._write_whole(b"400 Bad Request", answer)
        self.transport.close()

    def _write_whole(self, status: bytes, answer: Response) -> None:
        """Writes an answer past h11, which sends none to what it could not read."""
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 %b\r\nconnection: close\r\n%b\r\n%b" % (status, head, bytes(answer.body)))

    # --- time limits

    def _bound(self) -> None:
        """Sets the time limit of what the client sends now."""
        state = self.conn.their_state
        if state is h11.IDLE:
            self._bound_head()
        elif state is h11.SEND_BODY:
            # Anew with each piece: a large body may take long, as long as it goes on.
            self._arm(self._bounds.request_body_s, in_head=False)
        else:
            self._unbound()

    def _bound_head(self) -> None:
        # Once for the whole head: a byte now and then must not keep it open.
        if not self._in_head:
            self._arm(self._bounds.request_head_s, in_head=True)

    def _arm(self, seconds: float, *, in_head: bool) -> None:
        self._unbound()
        self._in_head = in_head
        self._deadline = self.loop.call_later(seconds, self._expired)

    def _unbound(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expired(self) -> None:
        # The client can't go on while nobody reads what it has sent.
        if not self._in_head and self.flow.read_paused:
            self._arm(self._bounds.request_body_s, in_head=False)
            return
        self._deadline = None
        self.transport.close()


class OneLine(logging.Filter):
    """Takes the trace off what uvicorn reports about requests that are no HTTP: it shows h11's code and nothing of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, h11.ProtocolError):
            record.msg, record.args = "a client broke the protocol: %s", (error,)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


def survive_exhaustion(loop: asyncio.AbstractEventLoop) -> None:
    """Reports a process without file descriptors in one line now and then; asyncio goes on accepting a second later.

    Without this it prints a trace for each connection that waits.
    """
    before = loop.get_exception_handler()
    last = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            if loop.time() - last >= QUIET_S:
                last = loop.time()
                log.error("new connections wait: %s; raise the limit of open files (ulimit -n)", error.strerror)
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
