"""Which addresses a callback may reach.

The table is our own: `ipaddress.is_global` calls NAT64, 6to4, `::127.0.0.1`, site-local and multicast addresses global,
and differs between Python 3.11.7 and 3.13.0. It follows IANA's registries of special-purpose addresses; for IPv6
everything outside 2000::/3 is refused, so that a new registration is refused before we hear of it.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, Self

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(rows: dict[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(network), reason) for network, reason in rows.items())


_NEVER: Final = _table(
    {
        "0.0.0.0/8": "unspecified, 'this network'",  # Linux dials 127.0.0.1 for 0.0.0.0
        "169.254.0.0/16": "link-local, where clouds keep their metadata",
        "168.63.129.16/32": "Azure's host agent",
        "100.100.100.200/32": "Alibaba Cloud's metadata",
        "192.0.0.192/32": "Oracle Cloud's metadata",
        "224.0.0.0/4": "multicast",
        "255.255.255.255/32": "broadcast",
        "::/128": "unspecified",
        "64:ff9b:1::/48": "local NAT64, which hides an IPv4 address at a place we cannot know",
        "fe80::/10": "link-local",
        "fd00:ec2::254/128": "AWS's metadata",
        "fd00:ec2::23/128": "AWS's pod credentials",
        "fd20:ce::254/128": "Google Cloud's metadata",
        "fd00:c1::a9fe:a9fe/128": "Oracle Cloud's metadata",
        "fd00:100::100:200/128": "Alibaba Cloud's metadata",
        "fd00:a9fe:a9fe::1/128": "Akamai's metadata",
        "fd00:42::42/128": "Scaleway's metadata",
        "ff00::/8": "multicast",
    }
)
"""What no setting opens."""

_UNLESS_NAMED: Final = _table(
    {
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared by carriers (CGNAT)",
        "127.0.0.0/8": "loopback",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved for protocols",
        "192.0.2.0/24": "for documentation",
        "192.88.99.0/24": "6to4 relays",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "for benchmarks",
        "198.51.100.0/24": "for documentation",
        "203.0.113.0/24": "for documentation",
        "240.0.0.0/4": "reserved (class E)",
        "::1/128": "loopback",
        "::ffff:0:0/96": "IPv4-mapped",
        "::ffff:0:0:0/96": "IPv4-translated",
        "::/96": "IPv4-compatible",
        "64:ff9b::/96": "NAT64",
        "100::/64": "discarded",
        "2001::/32": "Teredo",
        "2001:2::/48": "for benchmarks",
        "2001:10::/28": "ORCHID",
        "2001:20::/28": "ORCHID",
        "2001::/23": "reserved for protocols",
        "2001:db8::/32": "for documentation",
        "2002::/16": "6to4",
        "3fff::/20": "for documentation",
        "5f00::/16": "segment routing (SRv6)",
        "fc00::/7": "private (ULA)",
        "fec0::/10": "site-local",
    }
)
"""What `callbacks.networks` may open. The first row that matches gives the reason."""

_UNICAST: Final = IPv6Network("2000::/3")
_ENDS_IN_IPV4: Final = tuple(map(IPv6Network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")))
_LOOPBACK: Final = IPv6Address("::1")


class Addresses:
    """The verdict on an address: pure, no name is resolved here."""

    def __init__(self, opened: Iterable[Network] = ()) -> None:
        self._opened = tuple(opened)

    @classmethod
    def parse(cls, networks: Iterable[str]) -> Self:
        """Read `callbacks.networks`: CIDRs, or single addresses, that may be reached although they are private.

        Raises `ValueError` in words for what is no network and for one that touches what is never reached. A network
        around one forbidden host, as 100.64.0.0/10 is around 100.100.100.200, is good; the host stays forbidden.
        """
        return cls([_network(text) for text in networks])

    def verdict(self, address: Address) -> str | None:
        """Why the address is not to be dialled, as in "10.0.0.1 is private"; None when it may be.

        An IPv4 address inside an IPv6 address is judged too, even where the outer one is opened.
        """
        for network, reason in _NEVER:
            if address in network:
                return f"{address} is {reason}"
        if isinstance(address, IPv6Address):
            for inner in _embedded(address):
                if reason_inside := self.verdict(inner):
                    return f"{address} leads to IPv4, where {reason_inside}"
        if any(address in network for network in self._opened):
            return None
        for network, reason in _UNLESS_NAMED:
            if address in network:
                return f"{address} is {reason}"
        if isinstance(address, IPv6Address) and address not in _UNICAST:
            return f"{address} is not global unicast (2000::/3)"
        return None


def _network(text: str) -> Network:
    try:
        network = ip_network("" if "%" in text else text)  # it would take an address with a zone
    except ValueError:
        raise ValueError(f"{text!r} is no network; write it as 10.1.0.0/16, fd12::/32 or 127.0.0.1/32") from None
    for never, reason in _NEVER:
        inside = network.version == never.version and _covers(never, network)
        around = never.prefixlen < never.max_prefixlen and network.overlaps(never)
        if inside or around:
            raise ValueError(f"{network} cannot be opened: {never} ({reason}) is never reached")
    return network


def _covers(outer: Network, inner: Network) -> bool:
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that a tunnel or translator would take out of this one."""
    if any(address in network for network in _ENDS_IN_IPV4) and address != _LOOPBACK:
        yield IPv4Address(address.packed[12:])
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
