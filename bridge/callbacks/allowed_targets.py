"""Which URLs a callback may use: the parser and the allow-list.

A URL is parsed once, here, by a grammar narrower than RFC 3986. The result is what the bridge matches, dials and sends,
so no second parser can see another host in the same text. (httpx.URL 0.28.1 accepts the hosts `2130706433`, `127.1` and
`a b`.)
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple, Self

from bridge.errors import CallbackRefused, HeaderInvalid

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
        host = f"[{self.host}]" if ":" in self.host else self.host
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
