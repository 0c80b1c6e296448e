"""Addresses that this process may call for somebody else: public ones, unless a host is allowed by name.

Names are resolved here, every address is checked, and the connection goes to the address that was checked: a name that
resolves to something else a moment later reaches nothing.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from graphflow.addresses import special_range
from graphflow.excerpts import excerpt_of

if TYPE_CHECKING:
    import httpx

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""`(host, port) → addresses`."""


class RequestRefused(Exception):
    """A request that the policy forbids."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, as the system resolves them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def parsed_url(url: str) -> httpx.URL:
    """The URL of a server.

    Raises:
        RequestRefused: it is none.
    """
    import httpx

    try:
        target = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise RequestRefused(f"{excerpt_of(url, 200)} is not a URL: {error}") from None
    if target.scheme not in ("http", "https") or not target.host:
        raise RequestRefused(f"{excerpt_of(url, 200)} is not an http or https URL")
    if target.port is not None and not 0 < target.port < 65536:
        raise RequestRefused(f"{excerpt_of(url, 200)} has the port {target.port}; ports are 1 to 65535")
    return target


async def public_address(
    url: httpx.URL, private_hosts: Collection[str] = (), resolve: Resolve = resolve_by_system, *, came_from: str = ""
) -> str:
    """The address to connect to.

    Args:
        private_hosts: hosts that may have private addresses.
        came_from: what led there, for the error.

    Raises:
        RequestRefused: the host can't be resolved, or one of its addresses is not public.
    """
    # A trailing dot names the same host, and must not get around the list.
    host = url.host.rstrip(".").lower()
    try:
        addresses = await resolve(host, url.port or (443 if url.scheme == "https" else 80))
    except (OSError, UnicodeError) as error:
        raise RequestRefused(f"host {host!r} can't be resolved: {error}") from None
    if not addresses:
        raise RequestRefused(f"host {host!r} has no address")
    # One bad address refuses the host: which of several is connected to is not for the DNS server to choose.
    if host not in private_hosts:
        for address in addresses:
            if (name := special_range(address)) is not None:
                raise RequestRefused(
                    f"host {host!r} has the address {address}, which is not a public address ({name}){came_from}"
                )
    return addresses[0]


async def open_client(timeout_s: float) -> httpx.AsyncClient:
    """A client for requests to checked addresses.

    It takes no proxy from the environment, which would resolve the host itself and get around the check of its address.
    """
    import httpx

    # Not on the event loop, and not for each client: reading the certificates takes some 20 ms.
    certificates = await asyncio.to_thread(_certificates)
    return httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=certificates)


@functools.cache
def _certificates() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def pinned_request(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL,
    address: str,
    headers: Mapping[str, str],
    body: str | bytes | None,
) -> httpx.Request:
    """The request to the one address that was checked; name and certificate stay the host's.

    Connecting to that address leaves no second look-up that could answer differently (DNS rebinding).
    """
    return client.build_request(
        method,
        url.copy_with(host=address, userinfo=b""),
        headers={**headers, "Host": url.netloc.decode("ascii")},
        content=body,
        extensions={"sni_hostname": url.raw_host.decode("ascii")},
    )
