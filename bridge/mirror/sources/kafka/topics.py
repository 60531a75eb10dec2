"""The topics that are mirrored: all of a cluster but for Kafka's own and the bridge's own, and what they keep.

A log is a partition of a topic with one id, so a topic that was deleted and created again has other logs.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple
from uuid import UUID

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import connections, errors
from adapters.kafka.mapping import Part
from adapters.kafka.names import HIGH, LOW, Own
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused


class Topic(NamedTuple):
    """One topic that is mirrored."""

    name: str
    id: str
    """As Kafka's tools show it. A topic that is deleted and created again has another one."""
    partitions: int

    def logs(self) -> Iterator[str]:
        """Yield the names of its partitions."""
        return (f"{self.id}/{self.name}/{number}" for number in range(self.partitions))


def read_bounds(options: Options, known: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return the first offset and the last stable one of every log that is mirrored.

    `known` are topics that were there before, and may be gone. Raises `BackendUnavailable`; `CannotStart` if Kafka
    refuses.
    """
    is_mirrored = re.compile(pattern(Own(options.prefix))).fullmatch
    try:
        with closing(connections.connect(KafkaAdminClient, options)) as client:
            topics = [topic_of(topic) for topic in client.describe_topics() if is_mirrored(topic["name"])]
            if missing := sorted({*known} - {topic.name for topic in topics}):
                check_deleted(client.describe_topics(missing))
            logs = {part_of(log): log for topic in topics for log in topic.logs()}
            firsts, nexts = (offsets_of(client, logs, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    except (BridgeError, kafka.KafkaError, OSError) as error:
        raise described(error) from error
    return {log: (firsts[part], nexts[part]) for part, log in logs.items()}


def topic_of(described: Mapping[str, Any]) -> Topic:
    """Return a topic as Kafka describes it. Raises `CannotStart` if it has no id."""
    key = UUID(str(described.get("topic_id") or UUID(int=0)))
    if not key.int:
        raise CannotStart("Kafka: topics have no ids. The mirror needs brokers of version 2.8 or newer.")
    shown = urlsafe_b64encode(key.bytes).decode().rstrip("=")
    return Topic(described["name"], shown, len(described["partitions"]))


def check_deleted(topics: Sequence[Mapping[str, Any]]) -> None:
    """Raise `CannotStart` or `BackendUnavailable` if one of these topics was not deleted.

    Among all topics Kafka lists none that the login may not describe: it would be taken for deleted, and be mirrored
    again from its beginning once the permission is back.
    """
    for topic in topics:
        if topic["error_code"] == kafka.TopicAuthorizationFailedError.errno:
            raise CannotStart(
                f"Kafka: this login may no longer describe the topic {topic['name']}, which is mirrored. Permit it, "
                "also if the topic was deleted."
            )
        if topic["error_code"] != kafka.UnknownTopicOrPartitionError.errno:
            raise BackendUnavailable(f"Kafka does not list the topic {topic['name']} now.")


def described(error: BaseException) -> BackendUnavailable | CannotStart:
    """Return the job's error for one of Kafka's: an outage, or something that an operator must change."""
    found = errors.of_exception(error, "topics of the mirror")
    if isinstance(found, Refused | errors.LoginRefused):
        return CannotStart(found.detail)
    return found if isinstance(found, BackendUnavailable) else BackendUnavailable(found.detail)


def pattern(own: Own) -> str:
    """Return which topics are mirrored: all but Kafka's own and the bridge's own."""
    ours = "|".join((re.escape(own.notes), f"{re.escape(own.delay(''))}.*"))
    return rf"(?!__|oms\.|(?:{ours})$).+"


def offsets_of(client: KafkaAdminClient, parts: Collection[Part], spec: OffsetSpec) -> dict[Part, int]:
    """Return an offset of each partition; `LATEST` is the last stable one."""
    if not parts:
        return {}
    specs = {TopicPartition(*part): spec for part in parts}
    found = client.list_partition_offsets(
        specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
    )
    return {Part(*part): at.offset for part, at in found.items()}


def destination_of(topic: str) -> str:
    """Return the destination of a topic: its own name, but for a lane."""
    for suffix in (HIGH, LOW):
        if topic.endswith(suffix) and topic != suffix:
            return topic.removesuffix(suffix)
    return topic


def part_of(log: str) -> Part:
    """Return the partition that is a log, `<id>/<topic>/<partition>`."""
    _, topic, partition = log.split("/")
    return Part(topic, int(partition))
