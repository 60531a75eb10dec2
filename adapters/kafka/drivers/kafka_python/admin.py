"""Questions and orders about topics and groups, few and far between; kafka-python asks them for either client."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from adapters.kafka.drivers.kafka_python import errors
from adapters.kafka.drivers.kafka_python.network import BOOTSTRAP_TIMEOUT, Client
from adapters.kafka.drivers.kafka_python.security import connection_settings
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Commit, Commits, Part
from bridge.errors import BackendUnavailable

T = TypeVar("T")

_TRIES: Final = 25
_PAUSE: Final = 0.2
"""Seconds between two tries while a coordinator, a controller or a connection is found again: 5 s in all."""
_AGAIN: Final = (
    *(kafka.KafkaConnectionError, kafka.NodeNotReadyError, kafka.Cancelled, kafka.NotControllerError),
    *(kafka.CoordinatorNotAvailableError, kafka.CoordinatorLoadInProgressError, kafka.NotCoordinatorError),
    *(kafka.LeaderNotAvailableError, kafka.NotLeaderForPartitionError, kafka.RequestTimedOutError),
)


class Admin:
    """One thread and, while it is used, connections of its own. Everything it does may be done twice."""

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
        """How many partitions of a topic have a leader now; 0 where there is no such topic."""

        def leaders(client: KafkaAdminClient) -> int:
            [described] = client.describe_topics([topic])
            return sum(part["leader_id"] >= 0 for part in described["partitions"])

        return await self._do(leaders, topic)

    async def topics(self, prefix: str) -> list[str]:
        """Every topic whose name starts so."""
        return await self._do(lambda client: [t for t in client.list_topics() if t.startswith(prefix)], "topics")

    async def delete_records(self, before: Mapping[Part, int]) -> None:
        """Let go of every record below these offsets. Raises `Refused` without the permission to delete."""
        wanted = {TopicPartition(*part): offset for part, offset in before.items()}
        await self._do(lambda client: client.delete_records(wanted, timeout_ms=REQUEST_TIMEOUT), "delete records")

    async def end_offsets(self, topics: Collection[str]) -> dict[Part, int]:
        """The offset after the newest record that is visible, of each partition of the topics."""

        def end_offsets(client: KafkaAdminClient) -> dict[Part, int]:
            described = client.describe_topics(list(topics))
            parts = [TopicPartition(t["name"], p["partition_index"]) for t in described for p in t["partitions"]]
            specs = dict.fromkeys(parts, OffsetSpec.LATEST)
            found = client.list_partition_offsets(
                specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
            )
            return {Part(*part): at.offset for part, at in found.items()}

        return await self._do(end_offsets, ", ".join(topics))

    async def group_offsets(self, group: str) -> dict[Part, Commit]:
        """What a group has committed; empty for one that is not known."""

        def group_offsets(client: KafkaAdminClient) -> dict[Part, Commit]:
            found = client.list_group_offsets(group)[group]
            return {Part(*part): Commit(at.offset, at.metadata) for part, at in found.items() if at.offset >= 0}

        return await self._do(group_offsets, group)

    async def set_group_offsets(self, group: str, commits: Commits) -> None:
        """Commit for a group that has no members. Raises `BackendUnavailable` where it has some."""
        wanted = {TopicPartition(*part): OffsetAndMetadata(*commit, -1) for part, commit in commits.items()}

        def set_group_offsets(client: KafkaAdminClient) -> None:
            for error in client.alter_group_offsets(group, wanted).values():
                if error is not kafka.NoError:
                    raise error

        await self._do(set_group_offsets, group)

    async def start_at_end(self, group: str, topics: Sequence[str]) -> None:
        """Have a group begin after the newest record of those topics for which it has no offsets yet."""
        known = {part.topic for part in await self.group_offsets(group)}
        if new := [topic for topic in topics if topic not in known]:
            ends = await self.end_offsets(new)
            await self.set_group_offsets(group, {part: Commit(end, "") for part, end in ends.items()})

    async def close(self) -> None:
        """Let go of the thread and the connections, after the question that is being answered. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    async def _do(self, ask: Callable[[KafkaAdminClient], T], what: str) -> T:
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(_TRIES)):
            if self._closed:
                raise BackendUnavailable("The connection to Kafka is closed.")
            try:
                return await loop.run_in_executor(self._thread, self._try, ask)
            except _AGAIN as error:
                if not tries_left:
                    raise errors.of_request(error, what) from error
            except (kafka.KafkaError, OSError) as error:
                raise errors.of_request(error, what) from error
            await asyncio.sleep(_PAUSE)
        raise AssertionError

    # On the thread

    def _try(self, ask: Callable[[KafkaAdminClient], T]) -> T:
        if self._client is None:
            self._client = self._connect()
        try:
            return ask(self._client)
        except _AGAIN:
            # It keeps who was controller or coordinator, also after that broker has gone: begin anew.
            self._disconnect()
            raise

    def _connect(self) -> KafkaAdminClient:
        made: list[Client] = []

        def make(**configs: Any) -> Client:  # noqa: ANN401 - the library's settings
            made.append(Client(**configs))
            return made[0]

        try:
            return KafkaAdminClient(
                **connection_settings(self._options),
                request_timeout_ms=REQUEST_TIMEOUT,
                bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT,
                kafka_client=make,
            )
        except Exception as error:
            for client in made:
                client.close()  # which a constructor that failed does not
            reason = made[0].connections.failure if made else error
            raise errors.no_connection(self._options, reason) from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
