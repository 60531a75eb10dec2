"""Reads the URL of the RabbitMQ backend."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from adapters.amqp.settings import Security
from adapters.cloud_events import parse_format
from adapters.plain_properties import parse_property_names
from adapters.rabbitmq.options import Options, read_existing
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

_log = logging.getLogger(__name__)

_PORTS: Final = {"amqp://": 5672, "amqps://": 5671}
_SERVER: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65535
_VHOST_MAX: Final = 255
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EXAMPLE: Final = "amqp://user:password@host:5672,host:5672/vhost?name=value&…"

_SECURITY: Final[Mapping[str, OptionParser]] = {
    "ca": readable,
    "certificate": readable,
    "key": readable,
    "external": switch,
    "user": printable,
    "password": printable,
    "password_file": password_in,
}
_OTHERS: Final[Mapping[str, OptionParser]] = {
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
_READERS: Final = {**_SECURITY, **_OTHERS}


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
    userinfo, at, servers = authority.rpartition("@")
    given = grammar.split(query)
    read = grammar.parse(grammar.with_login(given, userinfo) if at else given)
    options = Options(
        servers=_servers(scheme, servers),
        vhost=_vhost(scheme, grammar.unescaped(vhost)),
        security=_security(scheme, {name: value for name, value in read.items() if name in _SECURITY}),
        **{name: value for name, value in read.items() if name in _OTHERS},
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
    if "password_file" in given:
        if "password" in given:
            raise ValueError(f"{scheme}: password and password_file exclude each other.")
        given["password"] = given.pop("password_file")
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
