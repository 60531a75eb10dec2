"""A member of a consumer group as the engine drives it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove
from kafka.structs import OffsetAndMetadata

from adapters.base import Delivery, Outcome
from adapters.kafka.admin import Admin
from adapters.kafka.consume.subscription import KafkaSubscription
from adapters.kafka.names import LANES
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable

SECONDS = 60.0
LARGE = 1 << 24


class Reader:
    """Holds what it was handed until it is acknowledged, and gives back what is revoked, as the engine does."""

    def __init__(self, servers: str, topic: str, lanes: int = 1, **options: object) -> None:
        self.options = Options(tuple(servers.split(",")))._replace(**options)  # type: ignore[arg-type] # by name
        self.out: dict[tuple[int, int], Delivery] = {}
        self.revoked: list[int] = []
        topics = [topic + suffix for suffix in LANES[:lanes]]

        self._admin = Admin(self.options)
        self.subscription = KafkaSubscription(self.options, self._admin, topic, topics, self.take_back)

    def take_back(self, partitions: Collection[int]) -> list[Delivery]:
        """Be `Revoked`: leases that are cut short do not count."""
        self.revoked += partitions
        back = [each for key, each in self.out.items() if key[0] in partitions]
        self.out = {key: each for key, each in self.out.items() if key[0] not in partitions}
        return back

    def now(self, limit: int = 100_000) -> list[Delivery]:
        """Return what is at hand, and lease it."""
        future = self.subscription.fetch(limit, LARGE)
        if not future.done():
            future.cancel()
            return []
        return self._lease(future.result())

    async def take(self, count: int, seconds: float = SECONDS) -> list[Delivery]:
        """Lease `count` messages; AssertionError if they do not come."""
        found: list[Delivery] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            future = self.subscription.fetch(count - len(found), LARGE)
            await asyncio.wait((future,), timeout=deadline - time.monotonic())
            if not future.done():
                future.cancel()
                raise AssertionError(f"{len(found)} of {count} messages have come")
            try:
                found += self._lease(future.result())
            except BackendUnavailable:
                await asyncio.sleep(0.1)
        return found

    async def ack(self, deliveries: Collection[Delivery]) -> None:
        """Acknowledge, and wait until it is recorded."""
        await self.subscription.settle(list(deliveries), Outcome.SETTLED)
        for each in deliveries:
            self.out.pop((each.partition, each.position), None)

    async def close(self) -> None:
        """Give back what is out, unharmed, and leave."""
        back, self.out = list(self.out.values()), {}
        await self.subscription.settle(back, Outcome.RELEASED)
        await self.subscription.close()
        await self._admin.close()

    def gauge(self, name: str) -> int:
        return self.subscription.gauges()[name]

    def _lease(self, deliveries: list[Delivery]) -> list[Delivery]:
        for each in deliveries:
            self.out[each.partition, each.position] = each
        leased = [each._replace(attempts=each.attempts + 1) for each in deliveries]
        self.subscription.settle(leased, Outcome.LEASED)
        return deliveries


@asynccontextmanager
async def reader(servers: str, topic: str, *, lanes: int = 1, **options: object) -> AsyncIterator[Reader]:
    """Join the group that is called as the topic; at the end give back what is out, and leave."""
    one = Reader(servers, topic, lanes, **options)
    await one.subscription.join()
    try:
        yield one
    finally:
        await one.close()


def make(servers: str, partitions: int = 1, name: str | None = None, **configs: str) -> str:
    """Make a topic."""
    name = name or f"t-{uuid4().hex[:12]}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({name: {"num_partitions": partitions, "configs": configs}}, wait_for_metadata=True)
    return name


def fill(servers: str, topic: str, count: int, partitions: int = 1, *, first: int = 0) -> None:
    """Store messages with numbers from `first` on, in each partition in turn."""
    with closing(KafkaProducer(bootstrap_servers=servers, linger_ms=5)) as producer:
        sent = [producer.send(topic, b"%d" % n, partition=n % partitions) for n in range(first, first + count)]
        for each in sent:
            each.get(60)


def numbers(deliveries: Collection[Delivery]) -> list[int]:
    """Return the numbers of `fill`, in order."""
    return sorted(int(each.message.body) for each in deliveries)


async def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until the condition, a function, holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


def committed(servers: str, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what the group has committed."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        offsets: dict[TopicPartition, OffsetAndMetadata] = admin.list_group_offsets(group)[group]
    return offsets


def throw_out(servers: str, group: str) -> None:
    """End the membership of all in the group, without a notice to them."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        members = admin.describe_groups([group])[group]["members"]
        admin.remove_group_members(group, [MemberToRemove(member_id=each["member_id"]) for each in members])


def client_threads() -> int:
    """Number of threads of members and of the client libraries."""
    return sum(each.name.startswith("kafka") for each in threading.enumerate())
