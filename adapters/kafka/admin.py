"""Requests about topics and groups, which are rare; kafka-python sends them also if librdkafka produces."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka import connections, errors
from adapters.kafka.mapping import Commit, Commits, Part
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.own_topics import CHECKED, Described
from bridge.errors import BackendUnavailable, OutcomeUnknown

T = TypeVar("T")

_TRIES: Final = 25
_PAUSE: Final = 0.2
"""Seconds between two tries while a coordinator, a controller or a connection is found again: 5 s in all."""
_AGAIN: Final = (
    *(kafka.KafkaConnectionError, kafka.NodeNotReadyError, kafka.Cancelled, kafka.NotControllerError),
    *(kafka.CoordinatorNotAvailableError, kafka.CoordinatorLoadInProgressError, kafka.NotCoordinatorError),
    *(kafka.LeaderNotAvailableError, kafka.NotLeaderForPartitionError, kafka.RequestTimedOutError),
)
_IN_USE: Final = (kafka.UnknownMemberIdError, kafka.NonEmptyGroupError, kafka.GroupSubscribedToTopicError)
"""The broker changes the offsets of a group without members only; it has changed none."""
_REPLICAS: Final = "default.replication.factor"
_HIGH_WATERMARK: Final = -1
"""In a request to delete records: all that are stored."""


class Admin:
    """A thread and, while it is used, separate connections. All requests can be repeated."""

    def __init__(self, options: Options) -> None:
        """Nothing is connected before the first question."""
        self._options = options
        # One at a time: kafka-python does not queue, a sixth request on a connection fails with NodeNotReadyError.
        self._thread = ThreadPoolExecutor(1, "kafka-admin")
        self._client: KafkaAdminClient | None = None
        self._closed = False

    async def create(self, topic: str, partitions: int, replication: int, configs: Mapping[str, str]) -> None:
        """Create a topic, or find it there. Raises `DestinationInvalid`, `Refused`, `BackendUnavailable`."""
        wanted = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(configs)}

        def create(client: KafkaAdminClient) -> None:
            try:
                client.create_topics({topic: wanted}, timeout_ms=REQUEST_TIMEOUT)
            except kafka.TopicAlreadyExistsError:
                return

        await self._do(create, topic)

    async def leaders(self, topic: str) -> int:
        """Return how many partitions of a topic have a leader now; 0: there is no such topic."""
        [described] = await self._do(lambda client: client.describe_topics([topic]), topic)
        return sum(part["leader_id"] >= 0 for part in described["partitions"])

    async def describe(self, topics: Collection[str]) -> dict[str, Described]:
        """Return what the bridge's own topics are like, those that exist. Raises `Refused`, `BackendUnavailable`."""

        def describe(client: KafkaAdminClient) -> dict[str, Described]:
            replicas = {
                topic["name"]: min(len(part["replica_nodes"]) for part in topic["partitions"])
                for topic in client.describe_topics(list(topics))
                if topic["partitions"]
            }
            if not replicas:
                return {}
            wanted = [ConfigResource(ConfigResourceType.TOPIC, topic, list(CHECKED)) for topic in replicas]
            configs = client.describe_configs(wanted, config_filter="all")["topic"]
            return {topic: Described(_values(configs[topic]), number) for topic, number in replicas.items()}

        return await self._do(describe, ", ".join(topics))

    async def default_replicas(self) -> int | None:
        """Return how many replicas a new topic gets; None: the bridge's user may not know. Raises as `describe`."""

        def ask(client: KafkaAdminClient) -> int | None:
            broker = str(client.describe_cluster()["brokers"][0]["broker_id"])
            wanted = [ConfigResource(ConfigResourceType.BROKER, broker, [_REPLICAS])]
            found = client.describe_configs(wanted, config_filter="all")["broker"][broker]
            return int(_values(found)[_REPLICAS]) if found else None

        return await self._do(ask, "the cluster")

    async def delete_records(self, before: Mapping[Part, int]) -> None:
        """Delete every record below these offsets. Raises `Refused` without the permission to delete."""
        wanted = {TopicPartition(*part): offset for part, offset in before.items()}
        await self._do(lambda client: client.delete_records(wanted, timeout_ms=REQUEST_TIMEOUT), "delete records")

    async def purge(self, topics: Collection[str]) -> None:
        """Delete every record that is stored now. Raises `OutcomeUnknown` without an answer, `Refused`."""

        def purge(client: KafkaAdminClient) -> None:
            parts = _parts_of(topics, client)
            # One alone: a refusal is of all alike, and kafka-python does not say which it is if there are several.
            for some in (parts[:1], parts[1:]):
                client.delete_records(dict.fromkeys(some, _HIGH_WATERMARK), timeout_ms=REQUEST_TIMEOUT)

        await self._change(purge, ", ".join(topics))

    async def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics; brokers may report them for a moment longer. Raises as `purge`."""

        def delete(client: KafkaAdminClient) -> None:
            answer = client.delete_topics(list(topics), timeout_ms=REQUEST_TIMEOUT, raise_errors=False)
            for topic in answer["topics"]:
                error = kafka.for_code(topic["error_code"])
                if error not in {kafka.NoError, kafka.UnknownTopicOrPartitionError}:  # unknown: deleted meanwhile
                    raise error(topic["name"])

        await self._change(delete, ", ".join(topics))

    async def delete_group_offsets(self, group: str, parts: Collection[Part]) -> None:
        """Delete offsets that a group has committed. Raises `BackendUnavailable` if it has members, or as `purge`."""

        def delete(client: KafkaAdminClient) -> None:
            _raise_first(client.delete_group_offsets(group, [TopicPartition(*part) for part in parts]))

        await self._change(delete, group)

    async def settle_all(self, group: str, topics: Collection[str]) -> None:
        """Commit the ends of the topics for a group without members. Raises as `delete_group_offsets`."""
        await self._change(partial(_commit, group, await self._at_end(topics)), group)

    async def end_offsets(self, topics: Collection[str], *, committed: bool = True) -> dict[Part, int]:
        """The offset after the newest record of each partition; with `committed`, after the newest visible one."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def end_offsets(client: KafkaAdminClient) -> dict[Part, int]:
            specs = dict.fromkeys(_parts_of(topics, client), OffsetSpec.LATEST)
            found = client.list_partition_offsets(specs, isolation_level=isolation, timeout_ms=REQUEST_TIMEOUT)
            return {Part(*part): at.offset for part, at in found.items()}

        return await self._do(end_offsets, ", ".join(topics))

    async def group_offsets(self, group: str) -> dict[Part, Commit]:
        """Return the offsets that a group has committed; empty for a group that is not known."""
        found = await self._do(lambda client: client.list_group_offsets(group)[group], group)
        return {Part(*part): Commit(at.offset, at.metadata) for part, at in found.items() if at.offset >= 0}

    async def instances(self, group: str) -> set[str]:
        """The instances of the static members that a group has now."""
        described = await self._do(lambda client: client.describe_groups([group])[group], group)
        return {each["group_instance_id"] for each in described["members"]}

    async def set_group_offsets(self, group: str, commits: Commits) -> None:
        """Commit for a group that has no members. Raises `BackendUnavailable` if it has some."""
        await self._do(partial(_commit, group, commits), group)

    async def start_at_end(self, group: str, topics: Sequence[str]) -> None:
        """Have a group begin after the newest record of those topics for which it has no offsets yet."""
        known = {part.topic for part in await self.group_offsets(group)}
        if new := [topic for topic in topics if topic not in known]:
            await self.set_group_offsets(group, await self._at_end(new))

    async def _at_end(self, topics: Collection[str]) -> Commits:
        return {part: Commit(end, "") for part, end in (await self.end_offsets(topics)).items()}

    async def close(self) -> None:
        """End the thread and close the connections, after the current request. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    async def _change(self, ask: Callable[[KafkaAdminClient], None], what: str) -> None:
        """Make a change that can be repeated, and that may have been made although no answer comes."""
        try:
            await self._do(ask, what)
        except BackendUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, _IN_USE):
                raise BackendUnavailable(
                    f"{what}: the group has members, here for another destination or elsewhere. Stop them first."
                ) from error
            if isinstance(cause, kafka.BrokerResponseError) and errors.code_of(cause) in errors.CERTAIN:
                raise
            raise OutcomeUnknown(f"{error.detail} It may have been done: repeat it.") from error

    async def _do(self, ask: Callable[[KafkaAdminClient], T], what: str) -> T:
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(_TRIES)):
            if self._closed:
                raise BackendUnavailable("The connection to Kafka is closed.")
            try:
                return await loop.run_in_executor(self._thread, self._try, ask)
            except Exception as error:
                if not tries_left or not isinstance(error, _AGAIN):
                    raise errors.of_exception(error, what) from error
            await asyncio.sleep(_PAUSE)
        raise AssertionError

    # On the thread

    def _try(self, ask: Callable[[KafkaAdminClient], T]) -> T:
        if self._client is None:
            self._client = connections.connect(KafkaAdminClient, self._options)
        try:
            return ask(self._client)
        except Exception as error:
            # The client remembers a controller or coordinator also after that broker has gone, and after a defect none
            # of its threads may run any more: connect again.
            if isinstance(error, _AGAIN) or not isinstance(error, kafka.BrokerResponseError):
                with suppress(Exception):  # the first error is the one to report
                    self._disconnect()
            raise

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _values(configs: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Return the settings of an answer, which has none if the user lacks DescribeConfigs."""
    return {name: value for name, entry in configs.items() if (value := entry["value"]) is not None}


def _parts_of(topics: Collection[str], client: KafkaAdminClient) -> list[TopicPartition]:
    described = client.describe_topics(list(topics))
    return [
        TopicPartition(topic["name"], part["partition_index"]) for topic in described for part in topic["partitions"]
    ]


def _commit(group: str, commits: Commits, client: KafkaAdminClient) -> None:
    wanted = {TopicPartition(*part): OffsetAndMetadata(*commit, -1) for part, commit in commits.items()}
    _raise_first(client.alter_group_offsets(group, wanted))


def _raise_first(results: Mapping[TopicPartition, type[kafka.KafkaError]]) -> None:
    for error in results.values():
        if error is not kafka.NoError:
            raise error
