"""Where callbacks may go: which URLs, by a parser and an allow-list, and which addresses, by tables.

A URL is parsed once, here, by a grammar narrower than RFC 3986. The result is what the bridge matches, dials and sends,
so no second parser can see another host in the same text. (httpx.URL 0.28.1 accepts the hosts `2130706433`, `127.1` and
`a b`.)

The tables of addresses replace `ipaddress.is_global`, which calls NAT64, 6to4, `::127.0.0.1`, site-local and multicast
addresses global, and differs between Python 3.11.7 and 3.13.0. They follow IANA's registries of special-purpose
addresses. For IPv6, everything outside 2000::/3 is refused, so that future IANA registrations are refused as well.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple, Self

from bridge.errors import CallbackRefused, HeaderInvalid
from bridge.url_host import url_host

Origin = tuple[str, str, int]
"""Scheme, host and port."""

URL_MAX: Final = 2048
"""Longest URL, characters."""

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>\[[^\[\]/?]*\]|[^\[\]:/?]*)(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[^?]*)?(?:\?.*)?)"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_MAX: Final = 253
_PORT_MAX: Final = 65535
_UNENCODED: Final = re.compile(r"[^!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]")
"""A character that RFC 3986 requires to be percent-encoded in a path or query."""


class Target(NamedTuple):
    """A parsed URL, as it is dialled and sent. `str()` returns its normalized text."""

    scheme: str
    host: str
    """Lower case; an address is normalized and has no brackets."""
    port: int
    path: str
    """Path and query; begins with `/`."""

    @property
    def origin(self) -> Origin:
        """What a connection is opened to."""
        return self[:3]

    @property
    def authority(self) -> str:
        """Value of the Host header; the scheme's default port is omitted."""
        host = url_host(self.host)
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


class AllowedTargets:
    """The allow-list `callbacks.targets`."""

    def __init__(self, patterns: Sequence[Target]) -> None:
        self._exact = frozenset(pattern for pattern in patterns if not pattern.host.startswith("*."))
        self._wildcards = tuple(pattern for pattern in patterns if pattern.host.startswith("*."))

    @classmethod
    def parse(cls, patterns: Iterable[str]) -> Self:
        """Parse `callbacks.targets`: `scheme://host[:port]`; `*.` before a name stands for one or more labels.

        Without a pattern no URL is allowed. Raises `ValueError` with a sentence for the user.
        """
        return cls([_parse_pattern(text) for text in patterns])

    def check(self, url: str) -> Target:
        """Parse the URL of a callback and match it with the patterns. Addresses are checked later, by `Dialer`.

        Raises `HeaderInvalid` if the text is not a valid URL, `CallbackRefused` if no pattern allows it.
        """
        try:
            target = _parse_url(url)
        except ValueError as error:
            raise HeaderInvalid(f"x-oms-callbackurl: {error}.") from None
        origin = target._replace(path="/")
        if origin not in self._exact and not any(_matches(origin, wildcard) for wildcard in self._wildcards):
            raise CallbackRefused(
                f"x-oms-callbackurl: callbacks.targets does not allow {target.scheme}://{target.authority}."
            )
        return target


def _parse_pattern(text: str) -> Target:
    is_wildcard = "://*." in text
    try:
        target = _parse_url(text.replace("://*.", "://", 1))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a target: {error}") from None
    if target.path != "/" or text.endswith("/"):
        raise ValueError(f"{text!r} is not a target: end it after the host or port, such as https://hooks.example.com")
    if is_wildcard and (":" in target.host or _NUMBER.fullmatch(target.host.rpartition(".")[2])):
        raise ValueError(f"{text!r} is not a target: `*.` goes before a name, not before an address")
    return target._replace(host="*." + target.host) if is_wildcard else target


def _matches(origin: Target, wildcard: Target) -> bool:
    return origin._replace(host=wildcard.host) == wildcard and origin.host.endswith(wildcard.host[1:])


def _parse_url(url: str) -> Target:
    if len(url) > URL_MAX:
        raise ValueError(f"the URL has {len(url)} characters, the limit is {URL_MAX}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(
            "the URL contains a space, a backslash, a control character or a non-ASCII character;"
            " write a name as xn--… and percent-encode anything else"
        )
    if "#" in url:
        raise ValueError("the URL has a fragment")
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _PORTS:
        raise ValueError("the URL must begin with https:// or http://")
    if "@" in re.split("[/?]", rest, maxsplit=1)[0]:
        raise ValueError("the URL must not contain credentials")
    if (parts := _URL.fullmatch(url)) is None:
        raise ValueError("the URL is not scheme://host:port/path")
    scheme = scheme.lower()
    return Target(scheme, _parse_host(parts["host"]), _parse_port(parts["port"], scheme), _parse_path(parts["path"]))


def _parse_host(text: str) -> str:
    if text.startswith("["):
        if "%" in text:
            raise ValueError("an address must not have a zone")
        try:
            return IPv6Address(text[1:-1]).compressed
        except AddressValueError:
            raise ValueError(f"{text} is not an IPv6 address") from None
    host = text.lower()
    if host.endswith("."):
        raise ValueError("the host ends in a dot")
    labels = host.split(".")
    if len(host) > _NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host is not a valid host name")
    if _NUMBER.fullmatch(labels[-1]):  # resolvers read 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 as 127.0.0.1
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise ValueError("an IPv4 address is four decimal numbers without leading zeros") from None
    return host


def _parse_port(text: str | None, scheme: str) -> int:
    port = _PORTS[scheme] if text is None else int(text)
    if not 0 < port <= _PORT_MAX:
        raise ValueError(f"the port must be 1 to {_PORT_MAX}")
    return port


def _parse_path(text: str) -> str:
    if _UNENCODED.search(text):
        raise ValueError('percent-encode what a path or query cannot contain, such as " < > [ ] ^ ` { | }')
    return text if text.startswith("/") else "/" + text


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
