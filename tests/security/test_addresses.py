"""Which addresses are of the public internet: our own table of special ranges, the same on every Python."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence

import pytest

from graphflow.addresses import is_loopback, special_range
from graphflow.tools.builtin.http import http_tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.campaign import size
from tests.tools.fakes import FakeContext, call

INSIDE_4 = (
    "0.0.0.0", "0.255.255.255", "10.0.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
)  # fmt: skip
INSIDE_6 = (
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808",
    "100::1", "100:0:0:1::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::4", "2001:2::1", "2001:10::1",
    "2001:db8::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
)  # fmt: skip
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
    "192.0.0.9", "192.0.0.10", "192.0.1.0", "192.31.196.1", "192.52.193.1", "192.175.48.1", "198.17.255.255", "223.255.255.255",
    "2001:1::1", "2001:1::3", "2001:3::1", "2001:4:112::1", "2001:20::1", "2001:30::1", "2001:4860:4860::8888",
    "2606:4700:4700::1111", "2620:4f:8000::1", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
)  # fmt: skip


def carriers(inner: str) -> list[str]:
    """Every form of IPv6 that carries an IPv4 address, alone and in one another."""
    v4 = int(ipaddress.IPv4Address(inner))
    numbers = [
        v4,
        0xFFFF << 32 | v4,
        0xFFFF_0000 << 32 | v4,
        0x64FF9B << 96 | v4,
        0x64FF9B_0001 << 80 | v4,
        0x2002 << 112 | v4 << 80,
        0x2002 << 112 | v4 << 80 | 1,
        0x2001_0000 << 96 | v4 << 64 | 0xFFFF_FFFF,
        0x2001_0000 << 96 | v4 ^ 0xFFFF_FFFF,
        0x2A00_1450 << 96 | 0x5EFE << 32 | v4,
        0x2A00_1450 << 96 | 0x0200_5EFE << 32 | v4,
        0x2002_0808_0808 << 80 | 0x5EFE << 32 | v4,
        0x2002 << 112 | v4 << 80 | 0x0200_5EFE << 32 | 0x0808_0808,
    ]
    return [str(ipaddress.IPv6Address(number)) for number in numbers]


@pytest.mark.parametrize(
    "address", [*INSIDE_4, *INSIDE_6, "", "localhost", "256.1.1.1", "127.1", "0x7f000001", "::1::"]
)
def test_what_is_not_of_the_public_internet_is_named(address: str):
    assert special_range(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_of_the_public_internet_may_be_reached(address: str):
    assert special_range(address) is None


@pytest.mark.parametrize("inner", INSIDE_4)
def test_an_address_inside_stays_inside_whatever_carries_it(inner: str):
    assert [carrier for carrier in carriers(inner) if special_range(carrier) is None] == []


@pytest.mark.campaign
def test_nothing_that_a_python_calls_private_is_public_here():
    """One way only: `ipaddress` of older versions knows fewer ranges, and unwraps fewer forms."""
    draw = random.Random(11)
    anycast = {"192.0.0.9", "192.0.0.10", "2001:1::1", "2001:1::2", "2001:1::3"}
    for _ in range(size(5_000, long=1_000_000)):
        wide = draw.choice((32, 128))
        number = draw.getrandbits(wide)
        address = ipaddress.IPv4Address(number) if wide == 32 else ipaddress.IPv6Address(number)
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_reserved:
            assert special_range(str(address)) is not None or str(address) in anycast


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("::127.0.0.1", False),
        ("localhost.example", False), ("127.0.0.1.example", False), ("", False), ("[::1]", False),
    ],
)  # fmt: skip
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool):
    assert is_loopback(host) is expected


@pytest.mark.parametrize("address", [*INSIDE_4[::4], *INSIDE_6[::4], *carriers("127.0.0.1"), "no address"])
async def test_a_name_that_resolves_inside_is_not_asked(address: str):
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["8.8.8.8", address]

    runner = ToolRunner(ToolRegistry([http_tool(resolve=resolve)], builtins=()))
    result = await runner.run(call("http_request", {"url": "http://name.test/"}), FakeContext())
    assert result.error is not None
    assert (result.error.code, "not a public address" in result.text) == ("ACCESS_DENIED", True)
