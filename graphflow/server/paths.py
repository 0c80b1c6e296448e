"""Ids in paths that hold a `/`: `/api/threads/a%2Fb`.

Servers decode a path before it is routed, which makes two segments of such an id; new ids have none (`id_rule`), but
threads that were stored under one can be read and deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_SLASH = "\ufdd0"
"""Stands for an encoded `/` until the path is routed; Unicode keeps it for such uses and gives it to no text."""


class EncodedSlashes:
    """Routes paths by the slashes that the client wrote as such."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] != "http" or b"%2f" not in raw.lower():
            await self._app(scope, receive, send)
            return
        path, encoded = scope["path"], raw.decode("ascii", "replace").replace("%2f", "%2F")
        # In place, and put back: who is outside of here reads of the same scope what was found inside.
        scope["path"] = unquote(encoded.replace("%2F", _SLASH))
        try:
            await self._app(scope, receive, send)
        finally:
            scope["path"] = path


def put_slashes_back(parameters: dict[str, Any]) -> None:
    """Gives the parameters of a routed path their `/`."""
    for name, value in parameters.items():
        parameters[name] = value.replace(_SLASH, "/")
