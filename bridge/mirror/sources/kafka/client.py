"""The brokers as the planner asks them: which topics are mirrored, and the offsets of their partitions."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import connections, errors
from adapters.kafka.mapping import Part
from adapters.kafka.names import Own
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused

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


class Bounds(NamedTuple):
    """What the brokers keep now."""

    topics: tuple[Topic, ...]
    firsts: Offsets
    """Of each partition the first offset."""
    nexts: Offsets
    """And the next one: the last stable offset."""


def read_bounds(options: Options) -> Bounds:
    """Ask for everything that is mirrored. Raises `BackendUnavailable`; `CannotStart` if Kafka refuses."""
    is_mirrored = re.compile(pattern(Own(options.prefix))).fullmatch
    try:
        with closing(connections.connect(KafkaAdminClient, options)) as client:
            topics = tuple(
                Topic(topic["name"], str(topic["topic_id"]), len(topic["partitions"]))
                for topic in client.describe_topics()
                if is_mirrored(topic["name"])
            )
            parts = [part for topic in topics for part in topic.parts()]
            firsts, nexts = (_offsets(client, parts, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    except (BridgeError, kafka.KafkaError, OSError) as error:
        raise described(error) from error
    return Bounds(topics, firsts, nexts)


def described(error: BaseException) -> BackendUnavailable | CannotStart:
    """Return the job's error for one of Kafka's: an outage, or something that an operator must change."""
    found = errors.of_exception(error, _SUBJECT)
    if isinstance(found, Refused | errors.LoginRefused):
        return CannotStart(found.detail)
    return found if isinstance(found, BackendUnavailable) else BackendUnavailable(found.detail)


def pattern(own: Own) -> str:
    """Return which topics are mirrored: all but Kafka's own and the bridge's own."""
    ours = "|".join((re.escape(own.notes), f"{re.escape(own.delay(''))}.*"))
    return rf"(?!__|oms\.|(?:{ours})$).+"


def _offsets(client: KafkaAdminClient, parts: Collection[Part], spec: OffsetSpec) -> Offsets:
    if not parts:
        return {}
    specs = {TopicPartition(*part): spec for part in parts}
    found = client.list_partition_offsets(
        specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
    )
    return {Part(*part): at.offset for part, at in found.items()}
