"""Which addresses a callback may reach.

The tables below replace `ipaddress.is_global`, which calls NAT64, 6to4, `::127.0.0.1`, site-local and multicast
addresses global, and differs between Python 3.11.7 and 3.13.0. They follow IANA's registries of special-purpose
addresses. For IPv6, everything outside 2000::/3 is refused, so that future IANA registrations are refused as well.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, Self

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


def _table(rows: dict[str, str]) -> tuple[tuple[IPNetwork, str], ...]:
    return tuple((ip_network(network), reason) for network, reason in rows.items())


_FORBIDDEN: Final = _table(
    {
        "0.0.0.0/8": "unspecified, 'this network'",  # Linux dials 127.0.0.1 for 0.0.0.0
        "169.254.0.0/16": "link-local, where clouds keep their metadata",
        "168.63.129.16/32": "Azure's host agent",
        "100.100.100.200/32": "Alibaba Cloud's metadata",
        "192.0.0.192/32": "Oracle Cloud's metadata",
        "224.0.0.0/4": "multicast",
        "255.255.255.255/32": "broadcast",
        "::/128": "unspecified",
        "64:ff9b:1::/48": "local NAT64, which embeds an IPv4 address at an unknown position",
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
"""Networks that no setting allows."""

_PRIVATE: Final = _table(
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
"""Networks that `callbacks.networks` may allow. The first row that matches gives the reason."""

_UNICAST: Final = IPv6Network("2000::/3")
_ENDS_IN_IPV4: Final = tuple(map(IPv6Network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")))
_LOOPBACK: Final = IPv6Address("::1")


class AddressPolicy:
    """Decides which addresses may be dialled. Pure: it resolves no names."""

    def __init__(self, allowed: Iterable[IPNetwork] = ()) -> None:
        self._allowed = tuple(allowed)

    @classmethod
    def parse(cls, networks: Iterable[str]) -> Self:
        """Parse `callbacks.networks`: private networks, as CIDRs or single addresses, that callbacks may reach.

        Raises `ValueError`, with a sentence for the user, if a text is not a network or if the network overlaps a
        forbidden one. A network around a single forbidden host is accepted, and the host stays forbidden: 100.64.0.0/10
        contains 100.100.100.200.
        """
        return cls([_parse_network(text) for text in networks])

    def refusal(self, address: IPAddress) -> str | None:
        """Return why the address must not be dialled, such as "10.0.0.1 is private"; None if it may be.

        An IPv4 address embedded in an IPv6 address is checked as well, even if the IPv6 address is allowed.
        """
        for network, reason in _FORBIDDEN:
            if address in network:
                return f"{address} is {reason}"
        if isinstance(address, IPv6Address):
            for inner in _embedded(address):
                if refusal := self.refusal(inner):
                    return f"{address} embeds {refusal.replace(' is ', ', which is ', 1)}"
        if any(address in network for network in self._allowed):
            return None
        for network, reason in _PRIVATE:
            if address in network:
                return f"{address} is {reason}"
        if isinstance(address, IPv6Address) and address not in _UNICAST:
            return f"{address} is not global unicast (2000::/3)"
        return None


def _parse_network(text: str) -> IPNetwork:
    try:
        network = ip_network("" if "%" in text else text)  # ip_network would accept an address with a zone
    except ValueError:
        raise ValueError(f"{text!r} is not a network; write it as 10.1.0.0/16, fd12::/32 or 127.0.0.1/32") from None
    for forbidden, reason in _FORBIDDEN:
        inside = network.version == forbidden.version and _contains(forbidden, network)
        around = forbidden.prefixlen < forbidden.max_prefixlen and network.overlaps(forbidden)
        if inside or around:
            raise ValueError(f"{network} cannot be allowed: callbacks never reach {forbidden} ({reason})")
    return network


def _contains(outer: IPNetwork, inner: IPNetwork) -> bool:
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that a tunnel or translator would extract from this one."""
    if any(address in network for network in _ENDS_IN_IPV4) and address != _LOOPBACK:
        yield IPv4Address(address.packed[12:])
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
