"""The RabbitMQ backend: connects publishing, consuming, groups, delays and transactions."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.base import Features, Revoked, Stored, Support
from adapters.cloud_events import EventHeaders
from adapters.probe import Probe
from adapters.property_names import prefixed_header
from adapters.rabbitmq.consume.assigned import GroupDependencies
from adapters.rabbitmq.consume.subscription import RabbitMQSubscription
from adapters.rabbitmq.delay.delays import Delays
from adapters.rabbitmq.group.membership import Bridges, Membership
from adapters.rabbitmq.group.queues_and_history import Groups
from adapters.rabbitmq.headers import EVENT_PREFIX, PLAIN_NAMES
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import UNSENT_TIMEOUT, Options
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.deleting import Deletion
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.transaction.transactions import Dependencies, Transactions
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, Refused
from bridge.message import AT_MOST_ONCE, FIELDS, Message

_EMULATED: Final = frozenset({"messageKey", "partition", "priority", "delayTime", "expireTime"})
"""By a queue for each partition, by the prefetch buffer, and by queues whose messages expire."""
_PRIORITIES_SINCE: Final = (4, 0, 0)
"""The version from which quorum queues deliver by priority."""
_NORMAL: Final = 4
"""AMQP's default priority. A header has the message's priority, too."""
_NO_ANSWER: Final = "RabbitMQ: it does not answer."


class RabbitMQAdapter:
    """Destinations are exchanges, groups are queues, and native clients can read every message."""

    stored_in = "rabbitmq"
    transactions = Support.EMULATED
    help_texts: Mapping[str, str] = {
        "held_partitions": "Partitions that this bridge consumes, of all its groups.",
        "buffered_records": "Messages delivered to this bridge and not yet in the prefetch buffer.",
        "buffered_bytes": "Bytes of these messages, bodies and headers.",
        "prepared_bytes": "Bytes of prepared messages of open transactions, of all bridges; also in memory.",
        "delays_queued": "Delayed messages that wait for their queues to be created.",
        "delays_lost": "Messages in the queue oms.lost, looked up once a minute.",
    }

    def __init__(self, options: Options) -> None:
        self.features = Features(
            fields={
                f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.is_feature
            },
            durable=True,
            late_groups=options.log,
            shared_groups=True,
        )
        plain = options.properties == "plain"
        if plain:
            self.features = self.features._replace(property_refusal=PLAIN_NAMES.refusal)
        header_of = PLAIN_NAMES.header if plain else prefixed_header
        self._header_of = EventHeaders(EVENT_PREFIX, header_of) if options.format == "cloudevents" else header_of
        self.new_partitions, self.creates = options.partitions, options.create
        self.unsent_timeout = UNSENT_TIMEOUT
        self._options = options
        self._publishing = Link(options, "publishing")
        self._consuming = Link(options, "consuming")
        # separate: RabbitMQ may close a connection over a queue that it fails to create (541)
        self._declaring = Link(options, "declaring")
        self._publisher = Publisher(options, self._publishing)
        self._copying = Publisher(options, self._declaring)
        self._catalogue = Catalogue(options, self._consuming, self._publisher)
        self._destinations = Destinations(options, self._declaring, self._catalogue)
        self._groups = Groups(self._declaring, self._copying, self._catalogue, self._destinations)
        self._delays = Delays(options, self._declaring, self._publisher, self._destinations, self._header_of)
        self._bridges = Bridges(options, self._consuming, self._publishing, self._publisher)
        use = Dependencies(
            *(self._declaring, self._consuming, self._publisher, self._catalogue, self._bridges, self._publish_all)
        )
        self._transactions = Transactions(options.prefix, use)
        self._publisher.on_exchange_missing = self._catalogue.on_deleted = self._forget_exchange
        self._links = self._publishing, self._consuming, self._declaring
        self._probe = Probe(self._ask, lambda: _NO_ANSWER)
        self._asking: Channel | None = None
        self._subscriptions: list[RabbitMQSubscription] = []
        # The optional capabilities of `adapters.base`: each is one part's.
        deletion = Deletion(Own(options.prefix), self._declaring, self._catalogue, self._destinations)
        self.purge, self.delete = deletion.purge, deletion.delete
        self.put, self.all = self._catalogue.put, self._catalogue.all
        self.partitions, self.known_partitions = self._destinations.partitions, self._destinations.known_partitions
        self.known_transactions = self._transactions.known
        self.prepare, self.commit = self._transactions.prepare, self._transactions.commit
        self.rollback = self._transactions.rollback

    async def start(self) -> None:
        """Connect, read the catalogue. Raises `BackendUnavailable` or `CannotStart`."""
        for link in self._links:
            await link.start()
        try:
            await self._catalogue.start()
            await self._bridges.start()
            await self._transactions.start()
        except Refused as error:  # of the bridge's own names: the permission can be given while it waits
            raise BackendUnavailable(error.detail) from error
        self._probe.start()

    @property
    def not_ready_reason(self) -> str | None:
        """See `Monitored`: a connection is lost, or the broker does not answer. An alarm is no reason."""
        lost = next((link for link in self._links if not link.up), None)
        return self._probe.reason if lost is None else lost.failure.detail

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Publish one message: to its destination, or to a delay level. It waits during an outage."""
        properties, body = to_properties(message, self._header_of)
        if message.message_key is not None and self._publishing.version >= _PRIORITIES_SINCE:
            properties.priority = _NORMAL  # otherwise a later message of its key could overtake it in the queue
        deadline = asyncio.get_running_loop().time() + self.unsent_timeout / 1000
        if message.delay_time and message.due > wall():
            return self._delays.publish(message, properties, body, deadline)
        exchange, key = self._destinations.route(message)
        return self._publisher.send(
            Outgoing(exchange, key, properties, body),
            confirmed=message.qos != AT_MOST_ONCE,
            stored=Stored(message.partition, None),
            deadline=deadline,
            # programs that consume an existing exchange or queue would get a message twice
            resend=message.qos != AT_MOST_ONCE and message.destination not in self._destinations.existing,
        )

    async def subscribe(
        self, source: str, group: str, revoked: Revoked, *, latest: bool = False
    ) -> RabbitMQSubscription:
        """Consume the queues of the group."""
        dependencies = GroupDependencies(
            make_sources=partial(self._groups.sources, source, group, latest=latest),
            make_membership=partial(Membership, self._bridges, names.group(source, group)),
            record_drained=partial(self._catalogue.enter, "drained", source, group),
            store_deferred=partial(self._delays.defer, group),
            consuming=self._consuming,
            publisher=self._publisher,
            prefetch=self._options.prefetch,
        )
        subscription = RabbitMQSubscription(source, revoked, dependencies)
        await subscription.join()
        self._subscriptions = [other for other in self._subscriptions if not other.closed]
        self._subscriptions.append(subscription)
        return subscription

    def gauges(self) -> Mapping[str, int]:
        """See `Measured`."""
        total: Counter[str] = Counter()
        for subscription in self._subscriptions:
            total.update(subscription.gauges())
        total.update(self._delays.gauges())
        total.update(self._transactions.gauges())
        return total

    def totals(self) -> Mapping[str, int]:
        """Return nothing: RabbitMQ has such metrics."""
        return {}

    async def close(self) -> None:
        """Flush accepted messages, and close all connections."""
        for part in (
            self._probe,
            self._transactions,
            self._bridges,
            self._delays,
            self._groups,
            self._destinations,
            self._catalogue,
        ):
            await part.close()
        for publisher in (self._publisher, self._copying):
            await publisher.close()
        for link in (self._consuming, self._declaring, self._publishing):
            await link.close()

    async def _ask(self) -> None:
        """Ask the broker on the connection that no alarm blocks; a broker that hangs keeps its connections."""
        if self._asking is None or not self._asking.open:
            self._asking = await self._consuming.channel()
        await self._asking.ask("RabbitMQ", "basic_qos", prefetch_count=1)

    async def _publish_all(self, messages: Sequence[Message]) -> list[Stored | BaseException]:
        """Publish the messages of a commit in order, after all their destinations are declared."""
        for destination in {message.destination for message in messages}:
            await self._destinations.partitions(destination)
        return await asyncio.gather(*map(self.publish, messages), return_exceptions=True)

    def _forget_exchange(self, exchange: str) -> None:
        """Declare an exchange again: it is missing, or another bridge has deleted it."""
        self._destinations.forget(exchange)
        self._delays.forget(exchange)
