"""Validators of single values. No sentence quotes a value: a secret may have been set in the wrong place."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from bridge.allowed_targets import AddressPolicy, AllowedTargets
from bridge.signatures import Signer
from bridge.url_host import url_host

PORT_MAX: Final = 65535
PROPERTY_NAME_MAX: Final = 249

_DEAD_LETTER_PROPERTIES: Final = "oms-dead-letter-"
_BACKEND: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S*")
_HEADER_NAME: Final = re.compile(r"[a-z0-9._-]{1,249}")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


_SIZE: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+) ?([A-Za-z]*)")
_SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{letter + suffix: 1000**power for power, letter in enumerate("kmgtp", 1) for suffix in ("", "b")},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}


class SettingsError(Exception):
    """The settings cannot be used. The text is one sentence that says what to change."""


class Address(NamedTuple):
    """Where to listen. Port 0: any free one. An IPv6 host is without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{url_host(self.host)}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host:port` or `[::1]:port`. Raises `ValueError`."""
        host, _colon, port = text.rpartition(":")
        if not _HOST.fullmatch(host):
            raise ValueError("host:port is expected, for example 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for all")
        if not (port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX):
            raise ValueError(f"the port after the last colon is a number from 0 (any free port) to {PORT_MAX}")
        if host.startswith("["):
            host = str(IPv6Address(host[1:-1]))
        return cls(host, int(port))


def redact(url: str) -> str:
    """Return a backend's URL without its secrets: no password, no token, no value of the query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***"
    # The last @, not the first /: an unescaped password may contain a / or an @.
    userinfo, at, place = rest.rpartition("@")
    user, colon, _password = userinfo.partition(":")
    shown = f"{user}:***@" if colon else "***@" if at else ""
    place, mark, query = place.partition("?")
    named = (item.partition("=") for item in query.split("&"))
    hidden = "&".join(f"{name}=***" if equals and name.isidentifier() else "***" for name, equals, _value in named)
    return f"{scheme}://{shown}{place}{mark}{hidden if mark else ''}"


def read_bytes(value: object) -> int:
    """Return a number of bytes from a number, or from a text such as `65536`, `64KiB`, `1.5 MiB` or `4MB`.

    Raises `ValueError`, also if it is no whole number of bytes: `1.5` is most likely a size without its unit.
    """
    found = _SIZE.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    factor = _SIZE_UNITS.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError("a number of bytes is expected, such as 65536 or 64KiB")
    size = Fraction(found[1]) * factor
    if size.denominator != 1:
        raise ValueError("a whole number of bytes is expected, such as 65536 or 64KiB")
    return size.numerator


def refuse_switch(value: object, kind: object) -> object:
    """Return a value. Raises `ValueError` for true and false, which Python reads as 1 and 0, unless `kind` is bool."""
    if isinstance(value, bool) and kind is not bool:
        raise ValueError("true and false are not allowed")
    return value


def read_address(value: object) -> Address:
    """Accept an `Address` or its text. Raises `ValueError`."""
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("host:port is expected, in quotes, for example '127.0.0.1:8080'")  # noqa: TRY004 - pydantic
    return Address.parse(value)


def check_backend(url: str) -> str:
    """Return the URL of a backend. Raises `ValueError` if it is not a URL; `create_adapter` checks the scheme."""
    if not _BACKEND.fullmatch(url):
        raise ValueError("a URL is expected, for example memory://, kafka://host:9092 or amqp://user:pass@host/vhost")
    return url


def check_host(name: str) -> str:
    """Return a host name in lower case, as Host headers are compared. Raises `ValueError`."""
    if name != "*" and not _HOST.fullmatch(name):
        raise ValueError("each is a host name without scheme and port, for example bridge.shop.svc, or * for any")
    return name.lower()


def check_origin(origin: str) -> str:
    """Return an origin in the form a browser sends it. Raises `ValueError`."""
    origin = origin.lower()
    if not _ORIGIN.fullmatch(origin):
        raise ValueError("each is scheme://host[:port] as a browser sends it, for example https://shop.example")
    return origin


def check_targets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the endpoints of callbacks. Raises `ValueError`."""
    return _checked(texts, AllowedTargets.parse)


def check_networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the private networks that endpoints may be in. Raises `ValueError`."""
    return _checked(texts, AddressPolicy.parse)


def check_secrets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the secrets that sign callbacks. Raises `ValueError`."""
    return _checked(texts, Signer.parse)


def _checked(texts: tuple[str, ...], parse: Callable[[tuple[str, ...]], object]) -> tuple[str, ...]:
    try:
        parse(texts)
    except ValueError as error:
        sentence = str(error)
        for text in texts:
            sentence = sentence.replace(repr(text), "one of them")
        raise ValueError(sentence) from None
    return texts


def check_endpoint(url: str) -> str:
    """Return the URL of a receiver of spans. Raises `ValueError`, which does not show it."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must be a URL such as http://collector:4318, without a user, a query and a fragment")
    return url


def check_keys(place: str) -> str:
    """Return the URL or the file of a JWK set. Raises `ValueError`."""
    if "://" not in place:
        check_readable(Path(place))
        return place
    try:
        parts = urlsplit(place)
        is_local = parts.hostname is not None and is_loopback(parts.hostname)
        good = parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and is_local))
    except ValueError:
        good = False
    if not good or parts.username is not None or parts.fragment:
        raise ValueError("must be a file or a URL with https, without a user and a fragment; http only on loopback")
    return place


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_property_name(name: str) -> str:
    """Return the name of a property. Raises `ValueError`."""
    if not 0 < len(name.encode()) <= PROPERTY_NAME_MAX or not name.isprintable():
        raise ValueError(f"the name of a property has 1 to {PROPERTY_NAME_MAX} bytes and no control characters")
    if name.startswith(_DEAD_LETTER_PROPERTIES):
        raise ValueError("the name is one of those of dead letters")
    return name


def check_readable(path: Path) -> Path:
    """Return the path of a file that can be opened now. Raises `ValueError`."""
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"the file cannot be read ({reason(error)})") from None


def read_secret(path: Path, name: str, content: str) -> str:
    """Return the single line of a secret's file. `name` is the setting, `content` what the line is.

    Raises `ValueError`.
    """
    try:
        text = path.read_text("utf-8-sig").strip()
    except UnicodeDecodeError:
        text = ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: the file cannot be read ({reason(error)})") from None
    if not text or len(text.splitlines()) > 1:
        raise ValueError(f"{name}: the file must hold one line of text, {content}")
    return text


TOKEN_FILE: Final = "OMS_TOKEN_FILE"  # noqa: S105 - a name
"""The variable that names the file with a client's token."""


def authorization(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the token of a client whose variables these are; empty if it has none.

    Raises `ValueError`.
    """
    if (path := environ.get(TOKEN_FILE)) is None:
        return {}
    return {"authorization": f"Bearer {read_secret(Path(path), TOKEN_FILE, 'the token')}"}


def read_secrets(path: Path) -> list[str]:
    """Return the lines of a file of secrets, without empty ones. Raises `ValueError`."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError("the file is not text in UTF-8") from None
    except OSError as error:
        raise ValueError(f"the file cannot be read ({reason(error)})") from None
    return [line.strip() for line in lines if line.strip()]


def check_header_name(name: str) -> str:
    """Return the name of an HTTP header in lower case. Raises `ValueError`."""
    name = name.lower()
    if not _HEADER_NAME.fullmatch(name) or name.startswith("x-oms-"):
        raise ValueError("each is the name of an HTTP header, such as x-github-event, and not an x-oms- header")
    return name


def split_commas(value: object) -> object:
    """Split the text of a variable, such as `a, b`; a list stays as it is. Raises `ValueError`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)):
        raise ValueError("a list is expected")  # noqa: TRY004 - pydantic
    return value


def reason(error: Exception) -> str:
    """Return why a file could not be read, as the operating system says it."""
    return error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
