"""The RabbitMQ backend: who publishes, who consumes, and which exchanges and queues they use."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from adapters.base import Features, Revoked, Stored, Support
from adapters.clock import wall
from adapters.rabbitmq import names
from adapters.rabbitmq.book import Book
from adapters.rabbitmq.delays import Delays
from adapters.rabbitmq.destinations import Destinations
from adapters.rabbitmq.groups import Groups
from adapters.rabbitmq.inbox import Inbox
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.members import Membership
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publisher import Publisher
from adapters.rabbitmq.record import Outgoing
from adapters.rabbitmq.subscription import RabbitMQSubscription
from bridge.errors import BackendUnavailable, Refused
from bridge.message import AT_MOST_ONCE, FIELDS, Message

_EMULATED: Final = frozenset({"messageKey", "partition", "priority", "delayTime", "expireTime"})
"""By queues for the partitions, by the window, and by queues in which messages wait until they die."""
_SORTED: Final = (4, 0, 0)
"""Since when quorum queues hand messages out by priority."""
_NORMAL: Final = 4
"""AMQP's default priority. The message's own stands in a header, too."""


class RabbitMQAdapter:
    """Destinations are exchanges, groups are queues, and every message is an ordinary one to a native client."""

    kept_in = "rabbitmq"

    def __init__(self, options: Options) -> None:
        self.features = Features(
            fields={f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.asks},
            durable=True,
            late_groups=options.log,
            shared_groups=True,
        )
        self._options = options
        self._publishing = Link(options, "publishing")
        self._consuming = Link(options, "consuming")
        self._publisher = Publisher(options, self._publishing)
        self._book = Book(options, self._consuming, self._publisher)
        self._destinations = Destinations(options, self._consuming, self._book)
        self._groups = Groups(self._publishing, self._consuming, self._publisher, self._book, self._destinations)
        self._delays = Delays(options, self._consuming, self._publisher, self._destinations)
        self._inbox = Inbox(options, self._consuming, self._publishing, self._publisher)
        self._publisher.gone = self._gone
        self._subscriptions: list[RabbitMQSubscription] = []

    async def start(self) -> None:
        """Connect, read the book. Raises `BackendUnavailable` or `CannotStart`."""
        await self._publishing.start()
        await self._consuming.start()
        try:
            await self._publisher.start()
            await self._book.start()
            await self._inbox.start()
        except Refused as error:  # of the bridge's own names: a permission can be given while it waits
            raise BackendUnavailable(error.detail) from error

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Send one message: to its destination, or to where it waits until it is due."""
        properties, body = to_properties(message)
        if message.message_key is not None and self._publishing.version >= _SORTED:
            properties.priority = _NORMAL  # else a later one of its key could overtake it in RabbitMQ's own queue
        if message.delay_time and message.due > wall():
            return self._delays.publish(message, properties, body)
        exchange, key = self._destinations.route(message)
        return self._publisher.send(
            Outgoing(exchange, key, properties, body),
            confirmed=message.qos != AT_MOST_ONCE,
            stored=Stored(message.partition, None),
        )

    async def partitions(self, destination: str) -> int:
        """Number of partitions, creating the exchange on first use."""
        return await self._destinations.partitions(destination)

    async def subscribe(
        self, source: str, group: str, revoked: Revoked, *, latest: bool = False
    ) -> RabbitMQSubscription:
        """Consume the queues of the group."""
        subscription = RabbitMQSubscription(
            source,
            partial(self._groups.sources, source, group, latest=latest),
            revoked,
            consuming=self._consuming,
            publisher=self._publisher,
            make_membership=partial(Membership, self._inbox, names.group(source, group)),
            note_drained=partial(self._book.drained, source, group),
            prefetch=self._options.prefetch,
            put_off=partial(self._delays.defer, group),
        )
        await subscription.join()
        self._subscriptions = [other for other in self._subscriptions if not other.closed]
        self._subscriptions.append(subscription)
        return subscription

    async def keep(self, key: str, value: str | None) -> None:
        """Keep a note in the book."""
        await self._book.keep(key, value)

    def kept(self) -> Mapping[str, str]:
        """Every note."""
        return self._book.kept()

    def gauges(self) -> Mapping[str, int]:
        """What is held for the groups of this bridge."""
        total: Counter[str] = Counter()
        for subscription in self._subscriptions:
            total.update(subscription.gauges())
        total.update(self._delays.gauges())
        return total

    async def close(self) -> None:
        """Flush what was accepted, let go of every connection."""
        await self._inbox.close()
        await self._delays.close()
        await self._groups.close()
        await self._destinations.close()
        await self._book.close()
        await self._publisher.close()
        await self._consuming.close()
        await self._publishing.close()

    def _gone(self, exchange: str) -> None:
        """An exchange has turned out not to be there."""
        self._destinations.forget(exchange)
        self._delays.forget(exchange)
