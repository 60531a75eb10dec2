"""The Kafka backend: who publishes, who consumes, and which topics they use."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from adapters.base import Features, Revoked, Stored, Support
from adapters.clock import wall
from adapters.kafka import drivers
from adapters.kafka.delay.delays import Delays
from adapters.kafka.drivers.kafka_python.admin import Admin
from adapters.kafka.mapping import to_record
from adapters.kafka.names import LANES, lane_of
from adapters.kafka.notes import Notes
from adapters.kafka.options import Options
from adapters.kafka.publisher import Publisher, acks_of
from adapters.kafka.subscription import KafkaSubscription
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable, Refused
from bridge.message import FIELDS, Message

_EMULATED: Final = frozenset({"priority", "delayTime", "expireTime", "compression"})
"""By the window, by the delay topics, and by compressing whole batches: a body lies in Kafka as it was before gzip."""


class KafkaAdapter:
    """Destinations are topics, groups are consumer groups, and every record is an ordinary one to a native client."""

    features = Features(
        fields={f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.asks},
        durable=True,
        late_groups=True,
        shared_groups=True,
    )
    kept_in = "kafka"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._admin = Admin(options)
        self._publisher = Publisher(options)
        self._topics = Topics(options, self._admin, self._publisher)
        self._notes = Notes(options, self._topics, self._publisher)
        self._delays = Delays(options, self._admin, self._topics, self._publisher)
        self._subscriptions: list[KafkaSubscription] = []

    async def start(self) -> None:
        """Connect, read the notes, begin to forward what is delayed. Raises `BackendUnavailable`, `CannotStart`."""
        await self._publisher.start()
        try:
            await self._notes.start()
            await self._delays.start()
        except Refused as error:  # of the bridge's own topics: a permission can be given while it waits
            raise BackendUnavailable(error.detail) from error

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Send one record: to its destination, to a lane of it, or to where it waits until it is due."""
        lane = lane_of(message.priority) if self._options.lanes else 0
        record = to_record(message, message.destination + LANES[lane])
        if message.delay_time:
            ahead = message.due - wall()
            if ahead > 0 and (self._options.strict_delay or ahead > self._options.hold):
                return asyncio.ensure_future(self._delays.publish(record, message.due))
        return self._publisher.send(record, acks_of(message))

    async def partitions(self, destination: str) -> int:
        """Number of partitions, creating the topic on first use."""
        return await self._topics.partitions(destination)

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> KafkaSubscription:
        """Join the consumer group of that name."""
        await self._topics.partitions(source)
        topics = [source + lane for lane in (LANES if self._options.lanes else LANES[:1])]
        if latest:
            await self._admin.start_at_end(group, topics)
        subscription = KafkaSubscription(
            source, topics, revoked, lambda member: drivers.consumer(self._options, group, topics, member)
        )
        await subscription.join()
        self._subscriptions = [other for other in self._subscriptions if not other.closed]
        self._subscriptions.append(subscription)
        return subscription

    async def keep(self, key: str, value: str | None) -> None:
        """Keep a note in the topic of notes."""
        await self._notes.keep(key, value)

    def kept(self) -> Mapping[str, str]:
        """Every note."""
        return self._notes.kept()

    def gauges(self) -> Mapping[str, int]:
        """What is held for the groups of this bridge, and what is on its way from delay topics."""
        total: Counter[str] = Counter()
        for subscription in self._subscriptions:
            total.update(subscription.gauges())
        total.update(self._delays.gauges())
        return total

    async def close(self) -> None:
        """Flush what was accepted, stop forwarding, let go of every connection."""
        await self._delays.close()
        await self._topics.close()
        await self._publisher.close()
        await self._admin.close()
