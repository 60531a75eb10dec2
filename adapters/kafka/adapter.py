"""The Kafka backend: publishes and subscribes, and combines the parts that do the rest."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from adapters.base import Features, Revoked, Stored, Support
from adapters.cloud_events import EventHeaders
from adapters.kafka.admin import Admin
from adapters.kafka.broker_probe import BrokerProbe
from adapters.kafka.consume.subscription import KafkaSubscription
from adapters.kafka.delay.delays import Delays
from adapters.kafka.deletion import Deletion, Purges
from adapters.kafka.mapping import EVENT_PREFIX, PLAIN_NAMES, Outgoing, to_record
from adapters.kafka.names import LANES, lane_of
from adapters.kafka.options import Options
from adapters.kafka.own_topics import configs_of
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, MetadataTopic, Topics
from adapters.kafka.transaction.transactions import Transactions
from adapters.probe import Probe
from adapters.property_names import prefixed_header
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, Refused
from bridge.message import FIELDS, Message

_EMULATED: Final = frozenset({"priority", "delayTime", "expireTime", "compression"})
"""By the prefetch buffer, by the delay topics, and by compressing whole batches: Kafka stores a body as it was before
gzip."""


class KafkaAdapter:
    """Destinations are topics, groups are consumer groups, and every record is an ordinary one to a native client."""

    features = Features(
        fields={f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.is_feature},
        durable=True,
        late_groups=True,
        shared_groups=True,
    )
    stored_in = "kafka"
    transactions = Support.NATIVE
    help_texts: Mapping[str, str] = {
        "held_partitions": "Partitions that this bridge holds, of all its groups.",
        "paused_partitions": "Held partitions that are paused: too many messages follow an unsettled one.",
        "buffered_records": "Records fetched and not yet in the prefetch buffer.",
        "buffered_bytes": "Bytes of these records, an estimate.",
        "delayed_held": "Delayed messages held in memory until they are due.",
        "delayed_put_off": "Destinations, and single messages, that cannot be forwarded now.",
        "prepared_bytes": "Bytes of prepared messages of open transactions, of all bridges.",
        "prepared_held_bytes": "Bytes of those that this bridge has in memory.",
        "delayed_moved": "Records moved out of delay topics.",
        "delayed_expired": "Delayed messages dropped as expired, purged or foreign.",
    }

    def __init__(self, options: Options) -> None:
        self.new_partitions, self.creates = options.partitions, options.create
        plain = options.properties == "plain"
        if plain:
            self.features = self.features._replace(property_refusal=PLAIN_NAMES.refusal)
        header_of = PLAIN_NAMES.header if plain else prefixed_header
        self._header_of = EventHeaders(EVENT_PREFIX, header_of) if options.format == "cloudevents" else header_of
        self._options = options
        self._admin = Admin(options)
        self._publisher = Publisher(options)
        self._topics = Topics(options, self._admin, self._publisher)
        cluster = Cluster(options, self._admin, self._topics, self._publisher)
        self._metadata = MetadataTopic(cluster)
        purges = Purges(cluster)
        self._delays = Delays(cluster, purges)
        self._transactions = Transactions(cluster, self._outgoing)
        self._broker_probe = BrokerProbe(options)
        self._probe = Probe(self._broker_probe.ask, self._broker_probe.unanswered)
        self._subscriptions: list[KafkaSubscription] = []
        # The optional capabilities of `adapters.base`: each is one part's.
        deletion = Deletion(cluster, purges)
        self.purge, self.delete = deletion.purge, deletion.delete
        self.put, self.all = self._metadata.put, self._metadata.all
        self.partitions, self.known_partitions = self._topics.partitions, self._topics.known_partitions
        self.known_transactions = self._transactions.known
        self.prepare, self.commit = self._transactions.prepare, self._transactions.commit
        self.rollback = self._transactions.rollback
        self.totals = self._delays.totals

    async def start(self) -> None:
        """Connect, read metadata and transactions, begin to forward. Raises `BackendUnavailable` or `CannotStart`."""
        await self._publisher.start()
        try:
            await self._topics.check(configs_of(self._options.prefix))
            await self._metadata.start()
            await self._delays.start()
            await self._transactions.start()
        except Refused as error:  # of the bridge's own topics: an operator can change it while the bridge waits
            raise BackendUnavailable(error.detail) from error
        self._probe.start()

    @property
    def not_ready_reason(self) -> str | None:
        """See `Monitored`: no broker answers."""
        return self._probe.reason

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Send one record to its destination, to a lane of it, or to a delay topic."""
        record = self._record(message)
        if self._waits(message):
            return asyncio.ensure_future(self._delays.publish(record, message.due))
        return self._publisher.send(record)

    def _record(self, message: Message) -> Outgoing:
        lane = lane_of(message.priority) if self._options.lanes else 0
        return to_record(message, message.destination + LANES[lane], self._header_of)

    def _waits(self, message: Message) -> bool:
        return bool(message.delay_time) and message.due - wall() > self._options.forwarded_early

    async def _outgoing(self, message: Message) -> Outgoing:
        record = self._record(message)
        return await self._delays.delayed(record, message.due) if self._waits(message) else record

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> KafkaSubscription:
        """Join the consumer group of that name."""
        await self._topics.partitions(source)
        topics = self._topics.of(source)
        if latest:
            await self._admin.start_at_end(group, topics)
        subscription = KafkaSubscription(self._options, self._admin, group, topics, revoked)
        await subscription.join()
        self._subscriptions = [other for other in self._subscriptions if not other.closed]
        self._subscriptions.append(subscription)
        return subscription

    def gauges(self) -> Mapping[str, int]:
        """Return numbers of what is held for groups, and of delayed messages; see `help_texts`."""
        total: Counter[str] = Counter()
        for subscription in self._subscriptions:
            total.update(subscription.gauges())
        total.update(self._delays.gauges())
        total.update(self._transactions.gauges())
        return total

    async def close(self) -> None:
        """Finish commits, flush what was accepted, stop forwarding, close every connection."""
        await self._probe.close()
        self._broker_probe.close()
        await self._transactions.close()
        await self._delays.close()
        await self._topics.close()
        await self._publisher.close()
        await self._admin.close()
