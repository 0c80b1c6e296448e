"""Pages of other origins: accepted where they are listed, else refused (spec 3.5)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware

from graphflow.addresses import is_loopback
from graphflow.errors import DefinitionError, GraphflowError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.server.access_log import REQUEST_ID
from graphflow.server.envelope import refused
from graphflow.server.hosts import host_name
from graphflow.server.routes._parts import RUN_ID
from graphflow.server.routes._queued import PLACE

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.datastructures import Headers
    from starlette.responses import Response

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE = ("GET", "HEAD", "OPTIONS")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[^\s/@:\[\]?#]+)(?::\d{1,5})?|null", re.IGNORECASE)


class Preflights(CORSMiddleware):
    """Refuses the preflights of other pages in the envelope, as everything is refused."""

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        origin = request_headers.get("origin", "")
        why = bytes(answer.body).decode()
        error = GraphflowError(
            f"a page of {excerpt_of(origin, 200)} may not call so: {why}; server.cors_origins lists origins",
            code="invalid_input",
        )
        kept = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
        return refused(error, kept)


def allow(app: FastAPI, origins: Collection[str]) -> None:
    """Lets pages of these origins call and read; without any, CORS stays off.

    Raises:
        DefinitionError: one is no origin, so that no page could ever be of it.
    """
    for origin in origins:
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            hint = "write https://app.example.com or *, with the scheme, without a path"
            raise DefinitionError(
                [Issue(pointer="", message=f"server.cors_origins has {excerpt_of(origin, 200)}", hint=hint)]
            )
    if origins:
        app.add_middleware(
            Preflights,
            allow_origins=list(origins),
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=[RUN_ID, PLACE, REQUEST_ID, "Retry-After"],
        )


def check(request: Request, listed: Collection[str]) -> None:
    """Refuses requests by web pages that would change something on a server without tokens.

    A browser sends such a request, whatever CORS says; it only does not show the answer. Pages of this machine are
    accepted.

    Raises:
        GraphflowError: `forbidden`.
    """
    origin = request.headers.get("origin")
    if origin is None or request.method in SAFE or origin in listed or "*" in listed:
        return
    # Read whole: `urlsplit` takes `[::1].evil.example` for `::1`.
    host = host_name(origin.partition("://")[2])
    # DNS may point any name at this machine, so only loopback names and addresses pass.
    if host is None or not is_loopback(host):
        raise GraphflowError(
            f"pages of {excerpt_of(origin, 200)} may not call; list the origin in server.cors_origins, or set a token",
            code="forbidden",
        )
