"""The brokers beside Spark: topics and their offsets, and the login and TLS of a `kafka://` URL for Java's client."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import connections, errors
from adapters.kafka.options import REQUEST_TIMEOUT, Options, Security
from adapters.kafka.record import Part
from adapters.kafka.security import connection_settings, tls_context
from bridge.errors import CannotStart

T = TypeVar("T")

Offsets = Mapping[Part, int]

_SUBJECT: Final = "topics of the mirror"


class Topic(NamedTuple):
    """One topic that is mirrored."""

    name: str
    id: str
    """Its id: another one when it is deleted and made again."""
    partitions: int

    def parts(self) -> Iterator[Part]:
        """Its partitions."""
        return (Part(self.name, number) for number in range(self.partitions))


class TopicAdmin:
    """Each method connects, asks and closes: it is called once a batch. All raise `BackendUnavailable`, `Refused`."""

    def __init__(self, options: Options, pattern: str) -> None:
        """`pattern` is that of the names of topics that are mirrored. Raises `CannotStart` for bad files."""
        self._options = options
        connection_settings(options)  # a bad file ends the start, and not a batch
        self._is_mirrored = re.compile(pattern).fullmatch

    def topics(self) -> list[Topic]:
        """Every topic that is mirrored."""
        return self._request(self._topics)

    def firsts(self, parts: Collection[Part]) -> tuple[list[Topic], Offsets]:
        """Every topic, and the first offset of those of the partitions that there are."""

        def firsts(client: KafkaAdminClient) -> tuple[list[Topic], Offsets]:
            topics = self._topics(client)
            there = {part for topic in topics for part in topic.parts()}
            return topics, _offsets(client, there.intersection(parts), OffsetSpec.EARLIEST)

        return self._request(firsts)

    def bounds(self) -> tuple[Offsets, Offsets]:
        """Of each partition the first offset, and the next one: the last stable offset."""

        def bounds(client: KafkaAdminClient) -> tuple[Offsets, Offsets]:
            parts = [part for topic in self._topics(client) for part in topic.parts()]
            return _offsets(client, parts, OffsetSpec.EARLIEST), _offsets(client, parts, OffsetSpec.LATEST)

        return self._request(bounds)

    def _topics(self, client: KafkaAdminClient) -> list[Topic]:
        return [
            Topic(topic["name"], str(topic["topic_id"]), len(topic["partitions"]))
            for topic in client.describe_topics()
            if self._is_mirrored(topic["name"])
        ]

    def _request(self, request: Callable[[KafkaAdminClient], T]) -> T:
        try:
            with closing(connections.admin(self._options)) as client:
                return request(client)
        except (kafka.KafkaError, OSError) as error:
            raise errors.of_exception(error, _SUBJECT) from error


def _offsets(client: KafkaAdminClient, parts: Iterable[Part], spec: OffsetSpec) -> Offsets:
    specs = {TopicPartition(*part): spec for part in parts}
    found = client.list_partition_offsets(
        specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
    )
    return {Part(*part): at.offset for part, at in found.items()}


_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"


def java_settings(security: Security) -> dict[str, str]:
    """Return settings of Java's client. Raises `CannotStart` for what it cannot do, and for bad files."""
    protocol = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    return {"security.protocol": protocol, **_tls(security), **_login(security)}


def _tls(security: Security) -> Mapping[str, str]:
    if not security.tls:
        return {}
    tls_context(security)  # an invalid file fails as in `serve`
    settings: dict[str, str] = {}
    if security.ca is not None:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _blocks(security.ca, _CERTIFICATE),
        }
    if security.certificate is not None and security.key is not None:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _blocks(security.certificate, _CERTIFICATE),
            "ssl.keystore.key": _key(security.key),
        }
    return settings


def _login(security: Security) -> Mapping[str, str]:
    if security.mechanism is None:
        return {}
    if security.mechanism == "OAUTHBEARER":
        raise CannotStart(
            "mechanism=OAUTHBEARER: the mirror reads Kafka with Spark's connector, which cannot use the "
            "bridge's tokens; use a user with SCRAM or PLAIN, or a certificate."
        )
    module = f"org.apache.kafka.common.security.{_MODULES[security.mechanism]}"
    user, password = _quoted(security.user or ""), _quoted(security.password or "")
    return {
        "sasl.mechanism": security.mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _blocks(file: Path, kind: str) -> str:
    text = file.read_text("utf-8", "replace")
    return "\n".join(block[0] for block in _BLOCK.finditer(text) if block[1] == kind)


def _key(file: Path) -> str:
    key = _blocks(file, _KEY)
    if not key:
        raise CannotStart(
            f"key: {file} is not in PKCS #8, the only form that Java's client reads "
            f"(openssl pkcs8 -topk8 -nocrypt -in {file} writes it)."
        )
    return key
