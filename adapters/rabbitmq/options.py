"""Options of the RabbitMQ backend: its URL, and the file of `destinations=`.

The URL: `amqp://user:password@host:5672/vhost?partitions=8`, `amqps://` with TLS.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from adapters.amqp.settings import Security
from adapters.base import DEAD_LETTER_SUFFIX
from adapters.cloud_events import Format, parse_format
from adapters.property_names import PropertyNames, parse_property_names
from adapters.url_options import (
    Grammar,
    OptionParser,
    password_in,
    printable,
    readable,
    short_name,
    switch,
    whole_number,
)


class Existing(NamedTuple):
    """The settings of one destination: existing exchanges and queues, which the bridge never changes."""

    exchange: str | None = None
    """Published to instead of an exchange with the destination's name; groups are bound to it."""
    routing_key: str | None = None
    """To publish with, and to bind groups with."""
    queue: str | None = None
    """Consumed as it is: all groups of the destination share its messages."""
    log: bool | None = None
    """Whether the destination has a log for later groups; None: as `Options.log`."""


class Options(NamedTuple):
    """Options of a RabbitMQ backend. Times in milliseconds, sizes in bytes."""

    servers: tuple[tuple[str, int], ...]
    """Host and port of the nodes of one cluster: the first that answers is used."""
    vhost: str = "/"
    security: Security = Security()
    partitions: int = 8
    """Of destinations that the bridge creates."""
    create: bool = True
    """Whether destinations are created on first use."""
    log: bool = True
    """Whether a new destination has a log, a stream, for groups that are created later."""
    log_bytes: int = 1 << 30
    """Size at which that log drops its oldest messages."""
    prefetch: int = 256
    """Messages of one partition of a group that are delivered to this bridge and not acknowledged."""
    properties: PropertyNames = "prefixed"
    """Whether the headers of properties have the prefix `oms_p_`."""
    instance: str | None = None
    """A name that stays the same over restarts of this bridge, and that no other bridge has."""
    prefix: str = "oms."
    """Of the names of the bridge's own exchanges, queues and streams: those that share it share those."""
    heartbeat: int = 10_000
    """A connection on which nothing is received for this and 5 s, at most twice this, is closed."""
    destinations: Mapping[str, Existing] = {}
    """The file of `destinations=`, by destination."""
    format: Format = "messages"
    """Whether messages are CloudEvents to native programs, too."""


UNSENT_TIMEOUT: Final = 30_000
"""How long a message waits during an outage, unless the engine sets another time; then it is not stored."""

_NAME_MAX: Final = 255
_ENTRY: Final = "orders: {queue: legacy.orders}"


def read_existing(text: str) -> dict[str, Existing]:
    """Read the YAML file of that path, by destination. Raises `ValueError` with what is allowed."""
    try:
        held = yaml.safe_load(Path(text).read_text("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"the file cannot be read ({error.strerror})") from None
    except (ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the file is not YAML{'' if mark is None else f' (line {mark.line + 1})'}") from None
    if not isinstance(held, dict) or not all(isinstance(name, str) and name for name in held):
        raise ValueError(f"the file must map names of destinations, as in {_ENTRY}")
    return {name: _existing(name, said) for name, said in held.items()}


def _existing(destination: str, said: Any) -> Existing:  # noqa: ANN401 - whatever the YAML holds
    if not isinstance(said, dict) or not said or not set(said) <= set(Existing._fields):
        raise ValueError(f"{destination} must have one or more of {', '.join(Existing._fields)}, as in {_ENTRY}")
    for field, value in said.items():
        if field == "log":
            if not isinstance(value, bool):
                raise ValueError(f"{destination}: log must be true or false")
        elif not isinstance(value, str) or not _fits(value, empty=field == "routing_key"):
            raise ValueError(f"{destination}: {field} must have 1 to {_NAME_MAX} bytes of text, in quotes if needed")
    existing = Existing(**said)
    if existing.routing_key is not None and existing.exchange is None:
        raise ValueError(f"{destination}: routing_key needs exchange")
    if destination.endswith(DEAD_LETTER_SUFFIX) and existing.log is False and existing.exchange is None:
        raise ValueError(f"{destination}: dead letters need the log, or an exchange with a queue of yours")
    if existing.queue is not None and existing.log:
        raise ValueError(f"{destination}: an existing queue has no log")
    return existing


def _fits(text: str, *, empty: bool) -> bool:
    return (empty or bool(text)) and len(text.encode()) <= _NAME_MAX and (not text or text.isprintable())


_log = logging.getLogger(__name__)

_PORTS: Final = {"amqp://": 5672, "amqps://": 5671}
_SERVER: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65535
_VHOST_MAX: Final = 255
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EXAMPLE: Final = "amqp://user:password@host:5672,host:5672/vhost?name=value&…"

_READERS: Final[Mapping[str, OptionParser]] = {
    "ca": readable,
    "certificate": readable,
    "key": readable,
    "external": switch,
    "user": printable,
    "password": printable,
    "password_file": password_in,
    "partitions": whole_number(1, 1_000),
    "create": switch,
    "log": switch,
    "log_bytes": whole_number(1_000_000, 1 << 50),
    "prefetch": whole_number(1, 65_535),
    "properties": parse_property_names,
    "format": parse_format,
    "instance": short_name,
    "prefix": short_name,
    "heartbeat": whole_number(1_000, 3_600_000),
    "destinations": read_existing,
}


def parse(url: str) -> Options:
    """Read an `amqp://` or `amqps://` URL and the files it names. Raises `ValueError` with what is allowed.

    RabbitMQ's own URIs separate `amqp://host` (the virtual host `/`) from `amqp://host/` (the one whose name is empty).
    Here both are `/`.
    """
    scheme = next((scheme for scheme in _PORTS if url.startswith(scheme)), None)
    if scheme is None:
        raise ValueError(f"The RabbitMQ backend is {_EXAMPLE}, or amqps:// with TLS.")
    grammar = Grammar(scheme, _READERS)
    place, _, query = url.removeprefix(scheme).partition("?")
    authority, _, vhost = place.partition("/")
    servers, read = grammar.read(authority, query)
    options = Options(
        servers=_servers(scheme, servers),
        vhost=_vhost(scheme, grammar.unescaped(vhost)),
        security=_security(scheme, {name: value for name, value in read.items() if name in Security._fields}),
        **{name: value for name, value in read.items() if name in Options._fields},
    )
    _warn(options)
    return options


def _servers(scheme: str, text: str) -> tuple[tuple[str, int], ...]:
    servers = []
    for number, server in enumerate(text.split(","), 1):
        match = _SERVER.fullmatch(server)
        port = int(match[2] or _PORTS[scheme]) if match else 0
        if match is None or not 0 < port <= _PORT_MAX:
            raise ValueError(
                f"{scheme}: server {number} is not host or host:port; {_EXAMPLE} is expected, and @ : / ? , & % in a"
                " user, a password or a virtual host are written as %40 %3A %2F %3F %2C %26 %25."
            )
        servers.append((match[1].strip("[]"), port))
    return tuple(servers)


def _vhost(scheme: str, text: str) -> str:
    if len(text.encode()) > _VHOST_MAX or (text and not text.isprintable()):
        raise ValueError(f"{scheme}: a virtual host is up to {_VHOST_MAX} bytes of text.")
    return text or "/"


def _security(scheme: str, given: dict[str, Any]) -> Security:
    tls = scheme == "amqps://"
    files = {"ca", "certificate", "key"} & given.keys()
    external = given.get("external", False)
    login = {"user", "password"} & given.keys()
    for wrong, said in (
        (not tls and bool(files), "ca, certificate and key need amqps://"),
        (("certificate" in given) != ("key" in given), "certificate and key must be given together"),
        (external and "certificate" not in given, "external=true needs amqps:// with certificate and key"),
        (external and bool(login), "external=true replaces user and password"),
        (len(login) == 1, "a user and a password must be given together"),
    ):
        if wrong:
            raise ValueError(f"{scheme}: {said}.")
    return Security(tls=tls, **given)


def _warn(options: Options) -> None:
    if not options.security.tls and not _LOCAL.issuperset(host for host, _ in options.servers):
        _log.warning("RabbitMQ: user and password are sent without TLS (amqp:// instead of amqps://).")
