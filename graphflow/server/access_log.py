"""One log line for each request, and its id: an ASGI layer around everything (spec 3.5)."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from starlette.datastructures import Headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from graphflow.telemetry.run_metrics import ServerMetrics

REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_PRIVATE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""What a response says that does not say otherwise: it holds what people said, so no cache keeps it, and no browser guesses."""

log = logging.getLogger("graphflow.access")


class AccessLog:
    """Counts and logs every request once it is over; a stream's line comes at its end.

    The line has the path without the query, and the token's name, never the token. The request's id is the client's
    `X-Request-Id` where that is a plain word, else a new one; the answer repeats it.
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = scope["request_id"] = _request_id(Headers(scope=scope).get(REQUEST_ID))
        headers = (*_PRIVATE, (REQUEST_ID.lower().encode(), request_id.encode()))
        status, size = 500, 0  # an exception that nobody handled becomes a 500 outside of here

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.body":
                # Counted as they pass: a streamed response has no length header.
                size += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                status = message["status"]
                given = message.get("headers", ())
                names = {name for name, _ in given}
                message["headers"] = [*given, *(each for each in headers if each[0] not in names)]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            self._over(scope, status, size, time.perf_counter() - began)

    def _over(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")  # of the table of routes, so that ids make no new series
        self._metrics.requests.add(1, scope["method"], route, str(status))
        if log.isEnabledFor(logging.INFO):
            caller = scope.get("caller")
            facts: dict[str, Any] = {
                "method": scope["method"],
                # A line break in a path would forge log lines.
                "path": scope["path"] if scope["path"].isprintable() else quote(scope["path"]),
                "status": status,
                "ms": round(seconds * 1000, 1),
                "bytes": size,
                "by": None if caller is None else caller.name,
                "request_id": scope["request_id"],
            }
            log.info("request", extra={"facts": facts})


def _request_id(given: str | None) -> str:
    return given if given is not None and _ID.fullmatch(given) else uuid4().hex
