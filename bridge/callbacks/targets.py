"""Which URLs a callback may name.

A URL is read once, here, by a grammar narrower than RFC 3986, and what comes out is what is matched, dialled and sent:
there is no second parser that could see another host in the same text. (httpx.URL 0.28.1 takes the hosts `2130706433`,
`127.1` and `a b`.)
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple, Self

from bridge.errors import CallbackRefused, HeaderInvalid

URL_MAX: Final = 2048
"""Characters of a URL."""

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>\[[^\[\]/?]*\]|[^\[\]:/?]*)(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[^?]*)?(?:\?.*)?)"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_MAX: Final = 253
_PORT_MAX: Final = 65535
_OUTSIDE: Final = re.compile(r"[^!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]")
"""What RFC 3986 wants percent-encoded in a path or query."""


class Target(NamedTuple):
    """A URL as it is dialled and sent; `str()` gives it back in its one spelling."""

    scheme: str
    host: str
    """Lower case; an address in its one spelling, without brackets."""
    port: int
    path: str
    """With its query; begins with `/`."""

    @property
    def authority(self) -> str:
        """What the Host header says: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


class Targets:
    """The allow-list of the settings."""

    def __init__(self, patterns: Sequence[Target]) -> None:
        self._exact = frozenset(pattern for pattern in patterns if not pattern.host.startswith("*."))
        self._below = tuple(pattern for pattern in patterns if pattern.host.startswith("*."))

    @classmethod
    def parse(cls, patterns: Iterable[str]) -> Self:
        """Read `callbacks.targets`: `scheme://host[:port]`; `*.` before a name stands for one or more labels.

        Raises `ValueError` in words. Without a pattern nothing is allowed.
        """
        return cls([_pattern(text) for text in patterns])

    def check(self, url: str) -> Target:
        """Read the URL of a callback.

        Raises `HeaderInvalid` for a text that is no such URL and `CallbackRefused` for one that no pattern allows. What
        its name resolves to is judged when it is dialled, not here.
        """
        try:
            target = _read(url)
        except ValueError as error:
            raise HeaderInvalid(f"x-oms-callbackurl: {error}.") from None
        origin = target._replace(path="/")
        if origin not in self._exact and not any(_is_below(origin, pattern) for pattern in self._below):
            raise CallbackRefused(
                f"x-oms-callbackurl: the settings do not allow callbacks to {target.scheme}://{target.authority}."
            )
        return target


def _pattern(text: str) -> Target:
    wild = "://*." in text
    try:
        target = _read(text.replace("://*.", "://", 1))
    except ValueError as error:
        raise ValueError(f"{text!r} is no target: {error}") from None
    if target.path != "/" or text.endswith("/"):
        raise ValueError(f"{text!r} is no target: it ends after the host or port, as https://hooks.example.com does")
    if wild and (":" in target.host or _NUMBER.fullmatch(target.host.rpartition(".")[2])):
        raise ValueError(f"{text!r} is no target: `*.` stands before a name, not before an address")
    return target._replace(host="*." + target.host) if wild else target


def _is_below(origin: Target, pattern: Target) -> bool:
    return origin._replace(host=pattern.host) == pattern and origin.host.endswith(pattern.host[1:])


def _read(url: str) -> Target:
    if len(url) > URL_MAX:
        raise ValueError(f"the URL has {len(url)} characters, the limit is {URL_MAX}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(
            "the URL holds a space, a backslash, a control or a non-ASCII character;"
            " write a name as xn--… and anything else percent-encoded"
        )
    if "#" in url:
        raise ValueError("the URL has a fragment")
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _PORTS:
        raise ValueError("the URL begins with https:// or http://")
    if "@" in re.split("[/?]", rest, maxsplit=1)[0]:
        raise ValueError("no credentials in the URL")
    if (parts := _URL.fullmatch(url)) is None:
        raise ValueError("the URL is not scheme://host:port/path")
    scheme = scheme.lower()
    return Target(scheme, _host(parts["host"]), _port(parts["port"], scheme), _path(parts["path"]))


def _host(text: str) -> str:
    if text.startswith("["):
        if "%" in text:
            raise ValueError("no zone in an address")
        try:
            return IPv6Address(text[1:-1]).compressed
        except AddressValueError:
            raise ValueError(f"{text} is no IPv6 address") from None
    host = text.lower()
    if host.endswith("."):
        raise ValueError("the host ends in a dot")
    labels = host.split(".")
    if len(host) > _NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host is no name of a host")
    if _NUMBER.fullmatch(labels[-1]):  # resolvers take 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 for 127.0.0.1
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise ValueError("an IPv4 address is four decimal numbers without leading zeros") from None
    return host


def _port(text: str | None, scheme: str) -> int:
    port = _PORTS[scheme] if text is None else int(text)
    if not 0 < port <= _PORT_MAX:
        raise ValueError(f"a port is 1 to {_PORT_MAX}")
    return port


def _path(text: str) -> str:
    if _OUTSIDE.search(text):
        raise ValueError('percent-encode what a path or query does not hold, as " < > [ ] ^ ` { | }')
    return text if text.startswith("/") else "/" + text
