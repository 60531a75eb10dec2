"""Inspects a topic: asks the brokers for its settings and groups, and reads its newest records."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import errors
from adapters.kafka.admin import Admin
from adapters.kafka.connections import reading
from adapters.kafka.mapping import Record
from adapters.kafka.options import REQUEST_TIMEOUT, Options, parse
from bridge.errors import DestinationUnknown, Refused
from bridge.migrate.kafka_record_checks import check_records
from bridge.migrate.kafka_topic_and_group_checks import GroupFacts, TopicFacts, check_groups, check_topic
from bridge.migrate.report import Report
from bridge.settings import Settings

Bounds = Mapping[int, tuple[int, int]]
"""Partition to its oldest offset and the one after its newest visible record."""

_CLASSIC: Final = "classic"
_SAMPLE_SIZE: Final = 2_000
"""Records of all partitions together: enough to distinguish hashes."""
_PARTITION_SAMPLE_MIN: Final = 20
"""Records of each partition at least."""
_SILENCE_SECONDS: Final = 10.0
"""The sample ends after this time without a record: the remaining offsets may be markers of transactions."""
_POLL: Final = 200


async def examine_topic(settings: Settings, name: str) -> Report:
    """Inspect a topic. Raises `ValueError` if the backend's URL is wrong, `BridgeError` if the brokers refuse."""
    options = parse(settings.backend)
    inspector = TopicInspector(options)
    try:
        partitions = await inspector.describe_partitions(name)
        led = [each["partition_index"] for each in partitions if each["leader_id"] >= 0]
        bounds = await inspector.bounds(name, led)
        topic = TopicFacts(
            name=name,
            partitions=len(partitions),
            replicas=min(len(each["replica_nodes"]) for each in partitions),
            configs=await inspector.configs(name),
            bounds=bounds,
            groups=await inspector.groups(name),
            sample=await _read_sample(options, name, bounds),
        )
    finally:
        await inspector.close()
    findings = [
        *check_topic(topic, options, settings.limits.body),
        *check_groups(topic, settings.delivery.new_group),
        *check_records(topic, settings.limits.body, options.properties),
    ]
    return Report("topic", name, findings)


class TopicInspector(Admin):
    """Asks questions with the bridge's admin connection, and changes nothing."""

    async def describe_partitions(self, topic: str) -> list[dict[str, Any]]:
        """Return the brokers' description of each partition. Raises `DestinationUnknown`, `Refused`."""

        def describe(client: KafkaAdminClient) -> list[dict[str, Any]]:
            [described] = client.describe_topics([topic])
            return list(described["partitions"])

        partitions = await self._do(describe, topic)
        if not partitions:
            raise DestinationUnknown(f"{topic}: there is no such topic.")
        return partitions

    async def configs(self, topic: str) -> dict[str, str]:
        """Return the effective settings of the topic; an empty dict if the user lacks DescribeConfigs."""

        def describe(client: KafkaAdminClient) -> dict[str, str]:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, None)
            found = client.describe_configs([resource], config_filter="all")["topic"][topic]
            return {name: entry["value"] for name, entry in found.items() if entry["value"] is not None}

        try:
            return await self._do(describe, topic)
        except Refused:
            return {}

    async def bounds(self, topic: str, partitions: list[int]) -> Bounds:
        """Return the bounds of each partition."""
        topic_partitions = [TopicPartition(topic, partition) for partition in partitions]

        def list_offsets(client: KafkaAdminClient) -> Bounds:
            options = {"isolation_level": IsolationLevel.READ_COMMITTED, "timeout_ms": REQUEST_TIMEOUT}
            first, last = (
                client.list_partition_offsets(dict.fromkeys(topic_partitions, spec), **options)
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
            return {each.partition: (first[each].offset, last[each].offset) for each in topic_partitions}

        return await self._do(list_offsets, topic)

    async def groups(self, topic: str) -> list[GroupFacts] | None:
        """Return the groups that read the topic; None if the user may not list them."""
        try:
            listed = await self._do(lambda client: client.list_groups(), "groups")
            found = [await self._group(topic, each["group_id"], each.get("group_type") or "") for each in listed]
        except Refused:
            return None
        return [group for group in found if group is not None]

    async def _group(self, topic: str, name: str, kind: str) -> GroupFacts | None:
        """Return a group if it reads the topic. The brokers describe only the members of classic groups."""
        offsets = await self.group_offsets(name)
        committed = {part.partition: at.offset for part, at in offsets.items() if part.topic == topic}
        if kind.lower() not in {"", _CLASSIC}:
            return GroupFacts(name, kind.lower(), 0, "", committed) if committed else None
        described = (await self._do(lambda client: client.describe_groups([name]), name))[name]
        members = described["members"]
        if not committed and not any(topic in _subscribed_topics(member) for member in members):
            return None
        return GroupFacts(name, _CLASSIC, len(members), described["protocol_data"] if members else "", committed)


def _subscribed_topics(member: Mapping[str, Any]) -> list[str]:
    """Return the topics of a member; an empty list if its metadata is not that of a consumer."""
    metadata = member["member_metadata"]
    return list(metadata.get("topics", ())) if isinstance(metadata, Mapping) else []


async def _read_sample(options: Options, topic: str, bounds: Bounds) -> list[Record]:
    """Return up to `_SAMPLE_SIZE` of the newest committed records, without a group, so no offset is committed.

    Raises `BackendUnavailable` or `Refused`.
    """
    try:
        return await asyncio.to_thread(_read_in_thread, options, topic, bounds)
    except Exception as error:
        raise errors.of_exception(error, topic) from error


def _read_in_thread(options: Options, topic: str, bounds: Bounds) -> list[Record]:
    with reading(options, isolation_level="read_committed") as consumer:
        return _read_records(consumer, topic, bounds)


def _read_records(consumer: KafkaConsumer, topic: str, bounds: Bounds) -> list[Record]:
    ends = {TopicPartition(topic, partition): end for partition, (start, end) in bounds.items() if start < end}
    consumer.assign(list(ends))
    per_partition = max(_PARTITION_SAMPLE_MIN, _SAMPLE_SIZE // max(1, len(ends)))
    for part, end in ends.items():
        consumer.seek(part, max(bounds[part.partition][0], end - per_partition))
    records: list[Record] = []
    deadline = time.monotonic() + _SILENCE_SECONDS
    while time.monotonic() < deadline and _has_unread(consumer, ends):
        for polled in consumer.poll(timeout_ms=_POLL).values():
            deadline = time.monotonic() + _SILENCE_SECONDS
            for each in polled:
                headers = [(name, value or b"") for name, value in each.headers]
                records.append(
                    Record(topic, each.partition, each.offset, each.timestamp, each.key, each.value, headers)
                )
    return records


def _has_unread(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    return any((consumer.position(part, timeout_ms=_POLL) or 0) < end for part, end in ends.items())
