"""Reads the URL of the Kafka backend. No sentence repeats a value, nor a name: either may be a piece of a password."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from adapters.cloud_events import parse_format
from adapters.kafka.options import Client, Compression, Mechanism, Options, Security
from adapters.plain_properties import parse_property_names
from adapters.url_options import (
    Grammar,
    OptionParser,
    one_of,
    password_in,
    printable,
    readable,
    short_name,
    switch,
    whole_number,
)

_log = logging.getLogger(__name__)

_SCHEME: Final = "kafka://"
_SERVER: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_PORT_MAX: Final = 65535
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        secure = parts.scheme == "https" and bool(parts.hostname)
        if (secure or (parts.scheme == "http" and parts.hostname in _LOCAL)) and parts.username is None:
            return text
    except ValueError:
        pass
    raise ValueError("the value must be an https:// URL without a user, or an http:// URL of this machine")


_SECURITY: Final[Mapping[str, OptionParser]] = {
    "tls": switch,
    "ca": readable,
    "certificate": readable,
    "key": readable,
    "mechanism": one_of(*get_args(Mechanism)),
    "user": printable,
    "password": printable,
    "password_file": password_in,
    "token_file": readable,
    "token_url": _endpoint,
    "scope": printable,
}
_OTHERS: Final[Mapping[str, OptionParser]] = {
    "client": one_of(*get_args(Client)),
    "partitions": whole_number(1, 10_000),
    "replication": whole_number(1, 100),
    "create": switch,
    "compression": one_of(*get_args(Compression)),
    "properties": parse_property_names,
    "format": parse_format,
    "lanes": switch,
    "hold": whole_number(0, 3_600_000),
    "strict_delay": switch,
    "instance": short_name,
    "session": whole_number(1_000, 1_800_000),
    "prefix": short_name,
}
_READERS: Final = {**_SECURITY, **_OTHERS}
_GRAMMAR: Final = Grammar(_SCHEME, _READERS)
_EXAMPLE: Final = "kafka://host:9092,host:9092?name=value&…"


def parse(url: str) -> Options:
    """Read a `kafka://` URL and the files it names. Raises `ValueError` with one sentence that says what is allowed."""
    if not url.startswith(_SCHEME):
        raise ValueError(f"The Kafka backend is {_EXAMPLE}.")
    place, _, query = url.removeprefix(_SCHEME).partition("?")
    userinfo, at, servers = place.rpartition("@")
    given = _GRAMMAR.split(query)
    read = _GRAMMAR.parse(_GRAMMAR.with_login(given, userinfo) if at else given)
    security = _security({name: value for name, value in read.items() if name in _SECURITY})
    others = {name: value for name, value in read.items() if name in _OTHERS}
    return Options(servers=_servers(servers), security=security, **others)


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(text.split(","))
    for number, server in enumerate(servers, 1):
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[2]) <= _PORT_MAX:
            raise ValueError(
                f"kafka://: server {number} is not host:port; {_EXAMPLE} is expected, without a path, and @ : / ? , & %"
                " in a user or password are written as %40 %3A %2F %3F %2C %26 %25."
            )
    return servers


def _security(given: dict[str, Any]) -> Security:
    if "password_file" in given:
        if "password" in given:
            raise ValueError("kafka://: password and password_file exclude each other.")
        given["password"] = given.pop("password_file")
    security = Security(**given)
    for wrong, said in _contradictions(security):
        if wrong:
            raise ValueError(f"kafka://: {said}.")
    if security.mechanism is not None and not security.tls:
        _log.warning("Kafka: the login is sent without TLS (mechanism= without tls=true).")
    return security


def _contradictions(given: Security) -> list[tuple[bool, str]]:
    bearer = given.mechanism == "OAUTHBEARER"
    named = given.user is not None and given.password is not None
    some = given.user is not None or given.password is not None
    token = given.token_file is not None or given.token_url is not None
    return [
        (not given.tls and bool(given.ca or given.certificate or given.key), "ca, certificate and key need tls=true"),
        ((given.certificate is None) != (given.key is None), "certificate and key must be given together"),
        (some and not given.mechanism, "a user or password needs mechanism=PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        (bool(given.mechanism) and not bearer and not named, "this mechanism needs a user and a password"),
        (token and not bearer, "token_file and token_url need mechanism=OAUTHBEARER"),
        (bearer and not token, "OAUTHBEARER needs token_file or token_url"),
        (bool(given.token_file and given.token_url), "token_file and token_url exclude each other"),
        (bool(given.token_url) and not named, "token_url needs a user and a password, the client's id and secret"),
        (bool(given.token_file) and some, "token_file replaces user and password"),
        (bool(given.scope) and not given.token_url, "scope needs token_url"),
    ]
