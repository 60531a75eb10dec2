"""The URL of the Kafka backend: `kafka://host:9092,host:9092?partitions=12&tls=true`.

No error text repeats a value or a name: either may be a piece of a password.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from adapters import url_options as parsers
from adapters.cloud_events import Format, parse_format
from adapters.property_names import PropertyNames, parse_property_names

Client = Literal["kafka-python", "confluent"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class Security(NamedTuple):
    """How the bridge authenticates itself and the brokers."""

    tls: bool = False
    ca: Path | None = None
    """PEM file of the authorities; None: those of this machine."""
    certificate: Path | None = None
    """PEM file of the bridge's own certificate, with `key`, if the brokers ask for one."""
    key: Path | None = None
    mechanism: Mechanism | None = None
    user: str | None = None
    password: str | None = None
    token_file: Path | None = None
    """OAUTHBEARER: a file with the token, read each time one is needed, as Kubernetes projects it."""
    token_url: str | None = None
    """OAUTHBEARER: an endpoint that gives tokens for `user` and `password` (client credentials)."""
    scope: str | None = None

    def __repr__(self) -> str:
        """Without the password, wherever options are printed."""
        return f"Security(tls={self.tls}, mechanism={self.mechanism}, user={self.user})"


class Options(NamedTuple):
    """Options of a Kafka backend. Times in milliseconds."""

    servers: tuple[str, ...]
    security: Security = Security()
    client: Client | None = None
    """For producing; None: kafka-python."""
    partitions: int = 8
    """Of a topic created from now on."""
    replication: int = -1
    """Of a topic created from now on; -1: as the brokers are configured."""
    create: bool = True
    """Whether topics are created on first use."""
    compression: Compression = "none"
    """Of whole batches, on the wire and on the brokers' disks."""
    properties: PropertyNames = "prefixed"
    """Whether the headers of properties have the prefix `oms_p_`."""
    lanes: bool = False
    """Whether priorities have topics of their own."""
    hold: int = 30_000
    """The longest delay that is waited out in the bridge; longer ones wait in delay topics."""
    strict_delay: bool = False
    """Whether a delayed message is hidden from its destination's topic until it is due."""
    instance: str | None = None
    """A name that stays the same over restarts of this bridge, and that no other bridge has."""
    session: int = 10_000
    """Without a heartbeat for so long, a member's partitions go to the others."""
    prefix: str = "oms."
    """Of the names of the bridge's own topics and groups: bridges that share it share the forwarding."""
    format: Format = "messages"
    """Whether messages are CloudEvents to native programs, too."""

    @property
    def forwarded_early(self) -> int:
        """How long before it is due a delayed message goes to its topic, ms; the bridge that fetches it holds it."""
        return 0 if self.strict_delay else self.hold


DELIVERY_TIMEOUT: Final = 60_000
"""Milliseconds for learning the outcome of a record that was sent once."""
UNSENT_TIMEOUT: Final = 20_000
"""Milliseconds that a record waits for a broker that accepts it; then it is reported as certainly not stored."""
REQUEST_TIMEOUT: Final = 10_000
METADATA_AGE: Final = 10_000

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


_READERS: Final[Mapping[str, parsers.OptionParser]] = {
    "tls": parsers.switch,
    "ca": parsers.readable,
    "certificate": parsers.readable,
    "key": parsers.readable,
    "mechanism": parsers.one_of(*get_args(Mechanism)),
    "user": parsers.printable,
    "password": parsers.printable,
    "password_file": parsers.password_in,
    "token_file": parsers.readable,
    "token_url": _endpoint,
    "scope": parsers.printable,
    "client": parsers.one_of(*get_args(Client)),
    "partitions": parsers.whole_number(1, 10_000),
    "replication": parsers.whole_number(1, 100),
    "create": parsers.switch,
    "compression": parsers.one_of(*get_args(Compression)),
    "properties": parse_property_names,
    "format": parse_format,
    "lanes": parsers.switch,
    "hold": parsers.whole_number(0, 3_600_000),
    "strict_delay": parsers.switch,
    "instance": parsers.short_name,
    "session": parsers.whole_number(1_000, 1_800_000),
    "prefix": parsers.short_name,
}
_GRAMMAR: Final = parsers.Grammar(_SCHEME, _READERS)
_EXAMPLE: Final = "kafka://host:9092,host:9092?name=value&…"


def parse(url: str) -> Options:
    """Read a `kafka://` URL and the files it names. Raises `ValueError` with one sentence that says what is allowed."""
    if not url.startswith(_SCHEME):
        raise ValueError(f"The Kafka backend is {_EXAMPLE}.")
    place, _, query = url.removeprefix(_SCHEME).partition("?")
    servers, read = _GRAMMAR.read(place, query)
    security = _security(Security(**{name: value for name, value in read.items() if name in Security._fields}))
    others = {name: value for name, value in read.items() if name in Options._fields}
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


def _security(security: Security) -> Security:
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
