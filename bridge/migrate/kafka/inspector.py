"""Questions about a topic and its groups, asked over the bridge's own connection for such questions."""

from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka.drivers.kafka_python.admin import Admin
from adapters.kafka.options import REQUEST_TIMEOUT
from bridge.errors import DestinationUnknown, Refused
from bridge.migrate.kafka.facts import Group

Bounds = Mapping[int, tuple[int, int]]

_CLASSIC: Final = "classic"


class Inspector(Admin):
    """Asks, and orders nothing."""

    async def layout(self, topic: str) -> list[dict[str, Any]]:
        """Return the brokers' description of each partition. Raises `DestinationUnknown`, `Refused`."""

        def layout(client: KafkaAdminClient) -> list[dict[str, Any]]:
            [described] = client.describe_topics([topic])
            return list(described["partitions"])

        parts = await self._do(layout, topic)
        if not parts:
            raise DestinationUnknown(f"{topic}: there is no such topic.")
        return parts

    async def configs(self, topic: str) -> dict[str, str]:
        """Return the settings that count for the topic; none without the permission to describe them."""

        def configs(client: KafkaAdminClient) -> dict[str, str]:
            wanted = ConfigResource(ConfigResourceType.TOPIC, topic, None)
            found = client.describe_configs([wanted], config_filter="all")["topic"][topic]
            return {name: entry["value"] for name, entry in found.items() if entry["value"] is not None}

        try:
            return await self._do(configs, topic)
        except Refused:
            return {}

    async def bounds(self, topic: str, partitions: list[int]) -> Bounds:
        """Return the oldest offset, and the one after the newest visible record, of each partition."""
        parts = [TopicPartition(topic, partition) for partition in partitions]

        def ask(client: KafkaAdminClient) -> Bounds:
            told = {"isolation_level": IsolationLevel.READ_COMMITTED, "timeout_ms": REQUEST_TIMEOUT}
            first, last = (
                client.list_partition_offsets(dict.fromkeys(parts, spec), **told)
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
            return {part.partition: (first[part].offset, last[part].offset) for part in parts}

        return await self._do(ask, topic)

    async def groups(self, topic: str) -> list[Group] | None:
        """Return the groups that read the topic; None without the permission to list them."""
        try:
            listed = await self._do(lambda client: client.list_groups(), "groups")
            found = [await self._group(topic, each["group_id"], each.get("group_type") or "") for each in listed]
        except Refused:
            return None
        return [group for group in found if group is not None]

    async def _group(self, topic: str, name: str, kind: str) -> Group | None:
        """Return one group if it has to do with the topic. Only classic groups tell who their members are."""
        offsets = await self.group_offsets(name)
        committed = {part.partition: at.offset for part, at in offsets.items() if part.topic == topic}
        if kind.lower() not in {"", _CLASSIC}:
            return Group(name, kind.lower(), 0, "", committed) if committed else None
        described = (await self._do(lambda client: client.describe_groups([name]), name))[name]
        members = described["members"]
        if not committed and not any(topic in _topics(member) for member in members):
            return None
        return Group(name, _CLASSIC, len(members), described["protocol_data"] if members else "", committed)


def _topics(member: Mapping[str, Any]) -> list[str]:
    """Return what a member has subscribed to; nothing where its metadata is not the usual kind."""
    metadata = member["member_metadata"]
    return list(metadata.get("topics", ())) if isinstance(metadata, Mapping) else []
