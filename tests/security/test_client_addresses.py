"""One address has so many connections and no more; only a trusted proxy may say whose a request is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.datastructures import Headers

from graphflow.errors import DefinitionError
from graphflow.server.client_addresses import ForwardedLimit, TrustedProxies
from graphflow.settings.table import ServerSettings
from tests.security.test_half_requests import Here, Wire

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("203.0.113.5", {"x-forwarded-for": "198.51.100.1"}, "203.0.113.5"),
        ("203.0.113.5", {"forwarded": "for=198.51.100.1"}, "203.0.113.5"),
        ("10.1.1.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1"),
        ("127.0.0.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1"),
        ("10.1.1.1", {"x-forwarded-for": "6.6.6.6, 198.51.100.1, 10.2.2.2"}, "198.51.100.1"),
        ("10.1.1.1", {"x-forwarded-for": "198.51.100.1, junk"}, "10.1.1.1"),
        ("10.1.1.1", {"x-forwarded-for": "junk"}, "10.1.1.1"),
        ("10.1.1.1", {"x-forwarded-for": "10.3.3.3"}, "10.1.1.1"),
        ("10.1.1.1", {"x-forwarded-for": "198.51.100.1:4711"}, "198.51.100.1"),
        ("10.1.1.1", {"forwarded": "for=192.0.2.43, for=198.51.100.17;proto=https"}, "198.51.100.17"),
        ("10.1.1.1", {"forwarded": 'For="[2001:db8:cafe::17]:4711"'}, "2001:db8:cafe::17"),
        ("10.1.1.1", {"forwarded": "for=_hidden"}, "10.1.1.1"),
        ("10.1.1.1", {"forwarded": "for=198.51.100.17", "x-forwarded-for": "6.6.6.6"}, "198.51.100.17"),
        ("::ffff:10.1.1.1", {"x-forwarded-for": "::ffff:198.51.100.1"}, "198.51.100.1"),
        ("fd00::1", {"x-forwarded-for": "2001:db8::1"}, "2001:db8::1"),
        ("10.1.1.1", {}, "10.1.1.1"),
        ("", {"x-forwarded-for": "198.51.100.1"}, ""),
    ],
)
def test_a_header_is_believed_from_a_trusted_proxy_alone(peer, headers, client):
    assert PROXIES.client_of(peer, Headers(headers)) == client


@pytest.mark.parametrize("entry", ["proxy.example", "10.0.0.0/99", "", "*"])
def test_an_entry_that_is_no_address_is_refused(entry):
    with pytest.raises(DefinitionError, match="server.trusted_proxies has"):
        TrustedProxies([entry])


class From(Wire):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 4711) if name == "peername" else super().get_extra_info(name, default)


@pytest.mark.parametrize(
    ("address", "refused"),
    [("203.0.113.5", True), ("2001:db8::1", True), ("127.0.0.1", False), ("::1", False), ("10.1.1.1", False)],
)
async def test_a_further_connection_of_one_address_is_turned_away(address, refused):
    here = Here()
    bounds = ServerSettings(max_connections=100, max_connections_per_address=3)
    wires = [here.connect_from(From(address), bounds, PROXIES) for _ in range(4)]
    assert [b"503" in bytes(wire.sent) for _, wire in wires] == [False, False, False, refused]
    assert (b"server.max_connections_per_address" in bytes(wires[3][1].sent)) is refused
    # Another address is not affected, and a connection that ends makes room.
    assert not here.connect_from(From("198.51.100.9"), bounds, PROXIES)[1].sent
    for protocol, _ in wires[2:]:
        protocol.connection_lost(None)
    assert not here.connect_from(From(address), bounds, PROXIES)[1].sent
    for protocol, _ in wires[:2]:
        protocol.connection_lost(None)


async def test_behind_a_trusted_proxy_each_named_address_has_its_own_limit():
    release = asyncio.Event()
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"])
        await release.wait()

    limit = ForwardedLimit(app, PROXIES, 2)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def ask(address: str, peer: str = "10.1.1.1") -> int | None:
        status: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        headers = [(b"x-forwarded-for", address.encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": (peer, 1)}
        await limit(scope, receive, send)
        return status[0] if status else None

    async with asyncio.TaskGroup() as group:
        open_ = [group.create_task(ask("198.51.100.1")) for _ in range(2)]
        open_ += [group.create_task(ask("198.51.100.2", peer="203.0.113.5")) for _ in range(3)]
        await asyncio.sleep(0)
        assert await ask("198.51.100.1") == 503
        open_.append(group.create_task(ask("198.51.100.7")))
        await asyncio.sleep(0)
        release.set()
    assert [task.result() for task in open_] == [None] * 6
    assert await ask("198.51.100.1") is None
    assert seen[0] == ("198.51.100.1", 0)
    assert seen[2] == ("203.0.113.5", 1)
