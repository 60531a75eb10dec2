"""What single values may look like. No sentence repeats a value: what stands in the wrong place may be a secret."""

import re
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final, NamedTuple, Self

from bridge.callbacks.addresses import Addresses
from bridge.callbacks.signing import Signer
from bridge.callbacks.targets import Targets

PORT_MAX: Final = 65535

_BACKEND: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S*")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


class SettingsError(Exception):
    """The settings cannot be used; its text is one sentence that says what to change."""


class Address(NamedTuple):
    """Where to listen. Port 0: any free one. An IPv6 host stands here without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

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
    """Make a backend's URL fit to show: no password, no token, no value of a query, whatever they hold."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***"
    # The last @ and not the first /: a password that should have been escaped may hold a / or an @ itself.
    userinfo, at, place = rest.rpartition("@")
    user, colon, _password = userinfo.partition(":")
    shown = f"{user}:***@" if colon else "***@" if at else ""
    place, mark, query = place.partition("?")
    named = (item.partition("=") for item in query.split("&"))
    hidden = "&".join(f"{name}=***" if equals and name.isidentifier() else "***" for name, equals, _value in named)
    return f"{scheme}://{shown}{place}{mark}{hidden if mark else ''}"


def read_address(value: object) -> Address:
    """Accept an `Address` or its text. Raises `ValueError`."""
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("host:port is expected, in quotes, for example '127.0.0.1:8080'")  # noqa: TRY004 - pydantic
    return Address.parse(value)


def check_backend(url: str) -> str:
    """Return the URL of a backend. Raises `ValueError` where it is none; whether an adapter serves it is seen later."""
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
    return _checked(texts, Targets.parse)


def check_networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the networks that callbacks may enter. Raises `ValueError`."""
    return _checked(texts, Addresses.parse)


def check_secrets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the secrets that sign callbacks. Raises `ValueError`."""
    return _checked(texts, Signer.parse)


def _checked(texts: tuple[str, ...], parse: Callable[[tuple[str, ...]], object]) -> tuple[str, ...]:
    try:
        parse(texts)
    except ValueError as error:
        said = str(error)
        for text in texts:
            said = said.replace(repr(text), "one of them")
        raise ValueError(said) from None
    return texts


def check_readable(path: Path) -> Path:
    """Return the path of a file that can be opened now. Raises `ValueError`."""
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"the file cannot be read ({reason(error)})") from None


def read_secret(path: Path, name: str, what: str) -> str:
    """Read the one line that a mounted secret holds, `what` in words, for the setting `name`. Raises `ValueError`."""
    try:
        text = path.read_text("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: the file cannot be read ({reason(error)})") from None
    if not text or len(text.splitlines()) > 1:
        raise ValueError(f"{name}: the file holds one line of text, {what}")
    return text


def split_commas(value: object) -> object:
    """Let one string, as an environment variable is, stand for a list: `a, b`. Raises `ValueError`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)):
        raise ValueError("a list is expected")  # noqa: TRY004 - pydantic
    return value


def reason(error: Exception) -> str:
    """Why a file could not be read, in the system's own words."""
    return error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
