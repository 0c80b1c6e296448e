"""Host names that the server answers to (spec 3.5).

A page can point its own name at this machine (DNS rebinding); its requests are then of the same origin for the browser, which
sends no `Origin` with a GET and lets the page read the answer. Only the `Host` header still shows the page's name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Collection, Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from graphflow.errors import DefinitionError, GraphflowError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.server.envelope import refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PROBES = frozenset({"/api/health", "/api/ready"})
"""Answered under every name: orchestrators ask by names of their own, and the answers hold no data."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s/@:\[\]]+))(?::\d{0,5})?")


def host_names(entries: Iterable[str]) -> frozenset[str]:
    """The names of the setting, in lower case and without ports; `*.example.com` is each name below it, `*` every name.

    Raises:
        DefinitionError: an entry is no host name.
    """
    names = set()
    for entry in entries:
        if (name := host_name(entry)) is None:
            hint = "write app.example.com, *.example.com or *, without scheme and path"
            raise DefinitionError(
                [Issue(pointer="", message=f"server.allowed_hosts has {excerpt_of(entry, 200)}", hint=hint)]
            )
        names.add(name)
    return frozenset(names)


class HostCheck:
    """Answers 421 to requests under a name that is not served, whatever their method and path.

    Loopback names and IP addresses always pass: no page can point them elsewhere.

    Args:
        allowed: names besides, as `host_names` gives them.
    """

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app, self._allowed = app, frozenset(allowed)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope["path"] in PROBES:
            return self._app(scope, receive, send)
        given = Headers(scope=scope).getlist("host")
        # Readers of two headers differ in which of them they take.
        if len(given) == 1 and self._serves(host_name(given[0])):
            return self._app(scope, receive, send)
        error = GraphflowError(
            f"this server does not answer to the host {excerpt_of(', '.join(given), 200)}; if it is its name, add it to the setting"
            " `server.allowed_hosts`",
            code="host_not_allowed",
            setting="server.allowed_hosts",
        )
        return refused(error)(scope, receive, send)

    def _serves(self, name: str | None) -> bool:
        if name is None:
            return False
        if name == "localhost" or name.endswith(".localhost") or not self._allowed.isdisjoint({"*", name}):
            return True
        if any(f"*.{name[at + 1 :]}" in self._allowed for at, sign in enumerate(name) if sign == "."):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def host_name(host: str) -> str | None:
    """The name or address without its port; None for anything else."""
    match = _HOST.fullmatch(host.strip())
    return None if match is None else (match[1] or match[2]).lower().removesuffix(".")
