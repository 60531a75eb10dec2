"""What the mirror asks the brokers beside Spark: which topics there are, and what of them is kept."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import connections, errors
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Part
from adapters.kafka.security import connection_settings
from bridge.mirror.sources.kafka.offsets import Offsets

T = TypeVar("T")

_WHAT: Final = "topics of the mirror"


class Topic(NamedTuple):
    """One topic that is mirrored."""

    name: str
    life: str
    """Its id: another one when it is deleted and made again."""
    partitions: int

    def parts(self) -> Iterator[Part]:
        """Its partitions."""
        return (Part(self.name, number) for number in range(self.partitions))


class Asking:
    """Each method connects, asks and closes: it is called once a batch. All raise `BackendUnavailable`, `Refused`."""

    def __init__(self, options: Options, pattern: str) -> None:
        """`pattern` is that of the names of topics that are mirrored. Raises `CannotStart` for bad files."""
        self._options = options
        connection_settings(options)  # a bad file ends the start, and not a batch
        self._mirrored = re.compile(pattern).fullmatch

    def topics(self) -> list[Topic]:
        """Every topic that is mirrored."""
        return self._ask(self._topics)

    def firsts(self, parts: Collection[Part]) -> tuple[list[Topic], Offsets]:
        """Every topic, and the first offset of those of the partitions that there are."""

        def firsts(client: KafkaAdminClient) -> tuple[list[Topic], Offsets]:
            topics = self._topics(client)
            there = {part for topic in topics for part in topic.parts()}
            return topics, _offsets(client, there.intersection(parts), OffsetSpec.EARLIEST)

        return self._ask(firsts)

    def bounds(self) -> tuple[Offsets, Offsets]:
        """Of each partition the first offset, and the next one: the last stable offset."""

        def bounds(client: KafkaAdminClient) -> tuple[Offsets, Offsets]:
            parts = [part for topic in self._topics(client) for part in topic.parts()]
            return _offsets(client, parts, OffsetSpec.EARLIEST), _offsets(client, parts, OffsetSpec.LATEST)

        return self._ask(bounds)

    def _topics(self, client: KafkaAdminClient) -> list[Topic]:
        return [
            Topic(topic["name"], str(topic["topic_id"]), len(topic["partitions"]))
            for topic in client.describe_topics()
            if self._mirrored(topic["name"])
        ]

    def _ask(self, question: Callable[[KafkaAdminClient], T]) -> T:
        try:
            with closing(connections.admin(self._options)) as client:
                return question(client)
        except (kafka.KafkaError, OSError) as error:
            raise errors.of_exception(error, _WHAT) from error


def _offsets(client: KafkaAdminClient, parts: Iterable[Part], spec: OffsetSpec) -> Offsets:
    specs = {TopicPartition(*part): spec for part in parts}
    found = client.list_partition_offsets(
        specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
    )
    return {Part(*part): at.offset for part, at in found.items()}
