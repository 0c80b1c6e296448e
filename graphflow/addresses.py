"""Where an IP address leads: to the public internet, to this machine, or to somewhere inside.

`ipaddress` answers differently from one Python to the next (`is_global` calls `fec0::1` public on 3.11), so the ranges stand
here: the IANA registries of special-purpose addresses (RFC 6890; state of 2025-10),
https://www.iana.org/assignments/iana-ipv4-special-registry and https://www.iana.org/assignments/iana-ipv6-special-registry.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_LOOPBACK = "loopback"
# The most specific range decides; `None` marks one that is public within one that is not.
_IPV4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers",
    "127.0.0.0/8": _LOOPBACK,
    # No range of the registry: the host agent of Azure, which hands out a machine's secrets.
    "168.63.129.16/32": "cloud metadata",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments",
    "192.0.0.9/32": None,
    "192.0.0.10/32": None,
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "255.255.255.255/32": "broadcast",
}
_IPV6 = {
    "::/0": "not allocated to the public internet",
    "::/96": "IPv4-compatible",
    "::/128": "unspecified",
    "::1/128": _LOOPBACK,
    "::ffff:0:0/96": None,  # IPv4-mapped: what it carries decides
    "::ffff:0:0:0/96": "IPv4-translated",
    "64:ff9b::/96": None,  # NAT64: what it carries decides
    "64:ff9b:1::/48": "local NAT64",
    "100::/64": "discard-only",
    "100:0:0:1::/64": "dummy prefix",
    "2000::/3": None,
    "2001::/23": "protocol assignments",
    "2001::/32": "Teredo",
    "2001:1::1/128": None,
    "2001:1::2/128": None,
    "2001:1::3/128": None,
    "2001:2::/48": "benchmarking",
    "2001:3::/32": None,
    "2001:4:112::/48": None,
    "2001:10::/28": "ORCHID",
    "2001:20::/28": None,
    "2001:30::/28": None,
    "2001:db8::/32": "documentation",
    "3fff::/20": "documentation",
    "5f00::/16": "segment routing",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}


def _by_length(table: dict[str, str | None]) -> list[tuple[int, int, str | None]]:
    """`(bits to the right, prefix, name)`, the most specific range first."""
    networks = sorted(((ip_network(text), name) for text, name in table.items()), key=lambda pair: -pair[0].prefixlen)
    return [
        (shift := network.max_prefixlen - network.prefixlen, int(network.network_address) >> shift, name)
        for network, name in networks
    ]


_RANGES = {4: _by_length(_IPV4), 6: _by_length(_IPV6)}


def special_range(text: str) -> str | None:
    """The special range that an address belongs to, or None if it is one of the public internet.

    An IPv4 address that an IPv6 address carries counts too, in each form that it has: IPv4-mapped, NAT64, 6to4 and ISATAP may
    be public, the others never are. What is no address is reported as such.
    """
    try:
        # The part after `%` names an interface and says nothing about the address itself.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return "not an IP address"
    name = _range(address)
    if name is None and isinstance(address, IPv6Address):
        carried = (_range(inner) for inner in _carried(int(address)))
        name = next((f"{inner} within IPv6" for inner in carried if inner is not None), None)
    return name


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a name or an address."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(_range(found) == _LOOPBACK for found in (address, getattr(address, "ipv4_mapped", None)) if found)


def _range(address: IPv4Address | IPv6Address) -> str | None:
    number = int(address)
    return next((name for shift, prefix, name in _RANGES[address.version] if number >> shift == prefix), None)


def _carried(number: int) -> list[IPv4Address]:
    """The IPv4 addresses that a gateway would forward to; a 6to4 address may carry one more, by ISATAP (RFC 5214, 6.1)."""
    found = []
    if number >> 32 in (0xFFFF, 0x64FF9B << 64):
        found.append(number & 0xFFFF_FFFF)
    if number >> 112 == 0x2002:
        found.append(number >> 80 & 0xFFFF_FFFF)
    # The `u` bit of the interface id says whether the carried address is unique in the world.
    if (number >> 32 & 0xFFFF_FFFF) & ~0x0200_0000 == 0x0000_5EFE:
        found.append(number & 0xFFFF_FFFF)
    return [IPv4Address(address) for address in found]
