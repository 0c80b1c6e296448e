"""Whose connection it is: the address of the peer, or the one that a trusted proxy names; and how many each may have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from graphflow.addresses import is_loopback
from graphflow.errors import DefinitionError, GraphflowError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.server.envelope import refused

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_MS = 1_000
_FOR = re.compile(r"""for=("[^"]*"|[^;,"\s]*)""", re.IGNORECASE)
_PORT = re.compile(r"\[([^\]]*)\](?::\d*)?|([0-9.]+)(?::\d*)?")


class TrustedProxies:
    """The proxies whose word about an address counts.

    Raises:
        DefinitionError: an entry is no address and no network.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            try:
                self._networks.append(ip_network(entry, strict=False))
            except ValueError:
                hint = "write 10.0.0.5, 10.0.0.0/8 or fd00::/8"
                raise DefinitionError(
                    [Issue(pointer="", message=f"server.trusted_proxies has {excerpt_of(entry, 200)}", hint=hint)]
                ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str) -> bool:
        address = _address(host)
        return address is not None and any(address in network for network in self._networks)

    def client_of(self, peer: str, headers: Headers) -> str:
        """The address behind the trusted proxies: the last one that is none of them; the peer where none is named."""
        if not self.trusts(peer):
            return peer
        for named in reversed(_named(headers)):
            address = _address(named)
            # Whatever stands further left may have been written by the client.
            if address is None:
                return peer
            if not self.trusts(str(address)):
                return str(address)
        return peer

    def is_counted(self, host: str) -> bool:
        """Whether the limit of connections holds for the address."""
        return not is_loopback(host) and not self.trusts(host)


def _named(headers: Headers) -> list[str]:
    """The addresses of `Forwarded` (RFC 7239), else of `X-Forwarded-For`: the client's first, the last proxy's last."""
    if forwarded := headers.getlist("forwarded"):
        return [match.strip('"') for match in _FOR.findall(",".join(forwarded))]
    return [part.strip() for part in ",".join(headers.getlist("x-forwarded-for")).split(",") if part.strip()]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    if match := _PORT.fullmatch(text):
        text = match[1] or match[2]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class ForwardedLimit:
    """Bounds the requests at once of each address that a trusted proxy names; the proxy's own connections are not bounded."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies, most: int) -> None:
        self._app, self._proxies, self._most = app, proxies, most
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = (scope.get("client") or ("", 0))[0]
        address = self._proxies.client_of(peer, Headers(scope=scope)) if scope["type"] == "http" else peer
        if address == peer or not self._proxies.is_counted(address):
            await self._app(scope, receive, send)
            return
        scope["client"] = (address, 0)
        if self._open[address] >= self._most:
            error = GraphflowError(
                f"an address may have {self._most} requests at once, and {address} has them; retry later",
                code="overloaded",
                setting="server.max_connections_per_address",
                retryAfterMs=RETRY_MS,
            )
            await refused(error)(scope, receive, send)
            return
        self._open[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
