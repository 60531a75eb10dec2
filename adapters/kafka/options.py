"""The URL of the Kafka backend: `kafka://host:9092,host:9092?partitions=12&tls=true`."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from adapters.cloud_events import Format
from adapters.plain_properties import PropertyNames

Client = Literal["kafka-python", "confluent"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class Security(NamedTuple):
    """How the bridge shows who it is, and checks who the brokers are."""

    tls: bool = False
    ca: Path | None = None
    """PEM file of the authorities; None: those of this machine."""
    certificate: Path | None = None
    """PEM file of the bridge's own certificate, with `key`, where the brokers ask for one."""
    key: Path | None = None
    mechanism: Mechanism | None = None
    user: str | None = None
    password: str | None = None
    token_file: Path | None = None
    """OAUTHBEARER: a file with the token, read anew each time one is needed, as Kubernetes projects it."""
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
    """For producing; None: librdkafka if it is installed, else kafka-python."""
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
"""How long it is tried to learn what became of a record that was sent once."""
UNSENT_TIMEOUT: Final = 20_000
"""How long a record waits for a broker that takes it; then it is certain that it was not stored, and reported."""
REQUEST_TIMEOUT: Final = 10_000
METADATA_AGE: Final = 10_000
