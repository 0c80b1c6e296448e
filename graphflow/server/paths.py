"""Paths and queries that are no plain text, and ids in paths that hold a `/`: `/api/threads/a%2Fb`.

Servers decode a path before it is routed, which makes two segments of such an id; new ids have none (`id_rule`), but
threads that were stored under one can be read and deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.convertors import PathConvertor, register_url_convertor

from graphflow.server.envelope import refused
from graphflow.service.requests import bad_argument

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Receive, Scope, Send

_SLASH = "\ufdd0"
"""Stands for an encoded `/` until the path is routed; Unicode keeps it for such uses and gives it to no text."""


class EncodedSlashes:
    """Routes paths by the slashes that the client wrote as such; refuses those that are not UTF-8.

    A server decodes with `�` for what is none, so that two keys would become one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        raw: bytes = scope.get("raw_path") or b""
        for name, part in (("path", raw), ("query", scope.get("query_string") or b"")):
            if b"%" in part and not _is_text(part):
                return refused(bad_argument(name, "is not UTF-8 once it is decoded"))(scope, receive, send)
        if scope["type"] == "http" and b"%2f" in raw.lower():
            return self._with_encoded(raw, scope, receive, send)
        return self._app(scope, receive, send)

    async def _with_encoded(self, raw: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        path, encoded = scope["path"], raw.decode("ascii", "replace").replace("%2f", "%2F")
        # In place, and put back: who is outside of here reads of the same scope what was found inside.
        scope["path"] = unquote(encoded.replace("%2F", _SLASH))
        try:
            await self._app(scope, receive, send)
        finally:
            scope["path"] = path


def _is_text(part: bytes) -> bool:
    try:
        unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return False
    return True


class RestOfPath(PathConvertor):
    """The rest of a path, whatever its characters; `path` stops at a line break."""

    regex = "(?s:.*)"


register_url_convertor("text", RestOfPath())


def put_slashes_back(parameters: dict[str, Any]) -> None:
    """Gives the parameters of a routed path their `/`."""
    for name, value in parameters.items():
        parameters[name] = value.replace(_SLASH, "/")
