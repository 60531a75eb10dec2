"""Publishes delayed messages, and deliveries that a group has deferred, to the delay levels."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from pika import BasicProperties

from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.retry import retry
from adapters.base import Delivery, Stored
from adapters.cloud_events import PropertyHeaders
from adapters.field_headers import INTERNAL_PREFIX
from adapters.property_names import prefixed_header
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.levels import KeyOrder, KeyQueue, not_before
from adapters.rabbitmq.headers import ATTEMPTS
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.confirm_channel import is_missing, is_unroutable, not_taken
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.declarations import Request, perform_on
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own, Source
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown
from bridge.message import AT_MOST_ONCE, Message

_GROUP: Final = f"{INTERNAL_PREFIX}group"
"""Header of a deferred message, for people: the name of its group."""
_COUNT_LOST: Final = 60.0
"""Seconds between two counts of the messages in `lost`."""
_EARLIER: Final = 0.05
"""Seconds before its deadline at which a message that waits for declarations is refused: the engine, whose timer runs
in the same turn of the loop, would otherwise report an unknown outcome."""
_SETTLED: Final = 1.5
"""Seconds before messages are published to new queues. RabbitMQ (3.10.8) records after a moment which quorum queues
it has: one that was declared up to 0.7 s before `kill -9` exists afterwards, but has failed, with all its messages."""
_TARGET_AGE: Final = 60.0
"""Seconds after which the bindings of a target are declared again: deleting an exchange deletes its bindings."""
_DESTINATIONS: Final = 4096
"""Destinations whose targets are remembered."""
_log = logging.getLogger("bridge.rabbitmq")


class Target(NamedTuple):
    """The exchange or queue to which messages are routed when they are due."""

    key: str
    """The last words of the routing key, without the partition."""
    requests: tuple[Request, ...]
    """Declare the binding from `deliver`, and the queue of a relay."""


class _Delayed(NamedTuple):
    to: str
    """Its destination, or its queue if it is deferred."""
    target: Callable[[], Target]
    """Returns the target with the number of purges that this bridge has read: it may have waited during a purge."""
    partition: str
    """The last word of the routing key; empty: the target has all."""
    key_queue: KeyQueue | None
    due: int
    properties: BasicProperties
    body: bytes
    destination: str | None = None
    """None: it is deferred, for one queue of a group."""
    confirmed: bool = True
    deadline: float | None = None
    """Until when it waits during an outage, seconds of the loop's clock; None: it fails at once."""


class DelayLevels:
    """Declares the levels and targets, and remembers them until the connection is lost: the broker may lose them."""

    def __init__(self, own: Own, link: Link) -> None:
        self._own = own
        self._link = link
        self._levels = False
        """Whether all levels are declared."""
        self._targets: dict[str, float] = {}
        """By key: when the target is declared again, seconds of the monotonic clock; the earliest first."""
        self._declaring = asyncio.Lock()
        link.on_lost.append(lambda _reason: self.forget())

    def declared(self, target: Target) -> bool:
        """Whether the levels and a target are declared."""
        return self._levels and self._targets.get(target.key, 0.0) > monotonic()

    async def declare(self, target: Target) -> None:
        """Declare the levels and a target unless they are.

        Raises `BackendUnavailable`, `Refused`, or `DestinationUnknown` if the target's exchange or queue is missing.
        """
        async with self._declaring:
            if not self._levels:
                await self._declare_levels()
                self._levels = True
            if not self.declared(target):
                await perform_on(self._link, self._own.deliver, target.requests)
                self._forget_old()
                self._targets[target.key] = monotonic() + _TARGET_AGE

    async def count_lost(self) -> int | None:
        """Return the number of messages in `lost`; None: nothing was delayed on this connection yet.

        Raises `BackendUnavailable`, or `DestinationUnknown` if the levels were deleted: they are declared again then.
        """
        if not self._levels:
            return None
        try:
            async with self._link.temporary_channel() as channel:
                answer = await channel.ask(self._own.lost, "queue_declare", queue=self._own.lost, passive=True)
        except BridgeError:
            self.forget()
            raise
        return int(answer.message_count)

    def forget(self, target: Target | None = None) -> None:
        """Declare a target again on its next use; None: everything."""
        if target is not None:
            self._targets.pop(target.key, None)
            return
        self._levels = False
        self._targets.clear()

    def _forget_old(self) -> None:
        """Forget targets that are declared again on their next use: their destinations may be deleted."""
        now = monotonic()
        for key, until in tuple(self._targets.items()):
            if until > now:
                break
            del self._targets[key]

    async def _declare_levels(self) -> None:
        """Declare all levels, also if they exist: some of them may have been deleted."""
        *others, last, binding = levels.levels(self._own)
        async with self._link.temporary_channel() as channel:
            exist = await channel.has(self._own.lost)
        await perform_on(self._link, self._own.deliver, others)
        if not exist:
            await asyncio.sleep(_SETTLED)
        await perform_on(self._link, self._own.deliver, (last, binding))


class Delays:
    """Publishes to the level of the highest binary digit of the remaining delay.

    A message whose levels or target are not declared waits until they are.
    """

    def __init__(
        self,
        options: Options,
        declaring: Link,
        publisher: Publisher,
        destinations: Destinations,
        header_of: PropertyHeaders = prefixed_header,
    ) -> None:
        """`header_of` names the headers of properties."""
        self._header_of = header_of
        self._own = Own(options.prefix)
        self._publisher = publisher
        self._destinations = destinations
        self._levels = DelayLevels(self._own, declaring)
        self._key_order = KeyOrder()
        self._targets: dict[str, tuple[int, Target]] = {}
        """By destination: its number of purges, and the target since then."""
        self._in_order = asyncio.Lock()
        """Held by the message that declares; the others wait in the order of the calls."""
        self._queued: Counter[str] = Counter()
        """Messages that wait for declarations, by destination or queue."""
        self._closing = False
        self._counting: asyncio.Task[None] | None = None
        self._lost = 0

    def publish(
        self, message: Message, properties: BasicProperties, body: bytes, deadline: float | None = None
    ) -> asyncio.Future[Stored]:
        """Store a message that is routed to its destination when it is due; the future raises as `Adapter.publish`.

        During an outage it waits until `deadline` (seconds of the loop's clock); None: it fails at once.
        """
        destination, partition = message.destination, names.routing_key(message.partition or 0)
        key_queue = None if message.message_key is None else (f"{destination}.{partition}", message.message_key)
        to = destination, partial(self._target, message), partition, key_queue
        confirmed = message.qos != AT_MOST_ONCE
        return self._send(_Delayed(*to, message.due, properties, body, destination, confirmed, deadline))

    def defer(self, group: str, delivery: Delivery, source: Source, until: int) -> asyncio.Future[Stored]:
        """Store a copy of a delivery that is routed to this queue of this group alone, no earlier than `until`.

        Times in ms since 1970. When the future is done, the delivery can be acknowledged. It raises as
        `Adapter.publish`; then the delivery must be kept.
        """
        message = delivery.message
        if message.store_timestamp is None:  # of a native producer that has not set the timestamp
            message = message._replace(store_timestamp=wall())
        properties, body = to_properties(message, self._header_of)
        properties.expiration = None  # it would end the wait in a level
        properties.headers.update({ATTEMPTS: delivery.attempts, _GROUP: group})
        if source.shared:  # the bridge must not bind a queue of others
            target, partition = partial(self._relay, "", source.queue), names.routing_key(source.partition)
        else:
            target, partition = partial(self._queue, source.queue, message.destination, group), ""
        return self._send(_Delayed(source.queue, target, partition, None, until, properties, body))

    def forget(self, exchange: str) -> None:
        """Declare the bindings of an exchange again on the next use: it turned out to be missing."""
        known = self._targets.pop(exchange, None)
        if known is not None:
            self._levels.forget(known[1])
        elif exchange.startswith(self._own.prefix):
            self._levels.forget()

    def gauges(self) -> Mapping[str, int]:
        """Return the messages that wait for declarations, and those in `lost` at the last count."""
        return {"delays_queued": self._queued.total(), "delays_lost": self._lost}

    async def close(self) -> None:
        """Publish what was accepted, if the broker is there. Idempotent."""
        self._closing = True
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()
            await asyncio.wait((counting,))
        async with self._in_order:
            pass

    def _target(self, message: Message) -> Target:
        destination = message.destination
        purges = self._destinations.purges(destination)
        before, target = self._targets.get(destination, (purges, None))
        if target is None or before != purges:
            if (existing := self._destinations.existing.get(destination)) is not None:
                apart = "" if existing.exchange is None else destination
                target = self._relay(*self._destinations.route(message), apart, purges=purges)
            elif not self._destinations.log_bytes(destination):  # it may have no queue at all
                target = self._relay(destination, purges=purges)
            else:
                key = names.token(destination, purges)
                target = Target(key, (levels.deliver_to_exchange(self._own, destination, purges),))
            self._remember(destination, purges, target)
        return target

    def _remember(self, destination: str, purges: int, target: Target) -> None:
        if destination not in self._targets and len(self._targets) >= _DESTINATIONS:
            self.forget(next(iter(self._targets)))
        self._targets[destination] = purges, target

    def _queue(self, queue: str, destination: str, group: str) -> Target:
        purges = self._destinations.purges(destination, group)
        return Target(levels.to_queue(queue, purges), (levels.deliver_to_queue(self._own, queue, purges),))

    def _relay(self, exchange: str, routing_key: str | None = None, destination: str = "", purges: int = 0) -> Target:
        relay = levels.relay(self._own, exchange, routing_key, destination)
        queue = str(relay.arguments["queue"])
        binding = levels.deliver_to_queue(self._own, queue, purges, partitioned=True)
        return Target(levels.to_queue(queue, purges), (relay, binding))

    def _send(self, delayed: _Delayed) -> asyncio.Future[Stored]:
        if not self._queued[delayed.to] and self._levels.declared(target := delayed.target()):
            return self._publish(delayed, target)
        self._queued[delayed.to] += 1
        if delayed.deadline is not None:
            delayed = delayed._replace(deadline=delayed.deadline - _EARLIER)
        return asyncio.get_running_loop().create_task(self._declare_and_publish(delayed))

    async def _declare_and_publish(self, delayed: _Delayed) -> Stored:
        try:
            if delayed.deadline is None:
                publishing = self._publish(delayed, await self._declare(delayed))
            else:
                async with asyncio.timeout_at(delayed.deadline), self._in_order:
                    publishing = self._publish(delayed, await self._declare_patiently(delayed))
        except TimeoutError:
            raise not_taken(self._own.deliver) from None
        finally:
            self._queued[delayed.to] -= 1
            if not self._queued[delayed.to]:
                del self._queued[delayed.to]
        return await asyncio.shield(publishing)

    async def _declare_patiently(self, delayed: _Delayed) -> Target:
        """Declare what a message needs. An outage is waited for."""

        def failed(error: BridgeError) -> None:
            if self._closing or not isinstance(error, BackendUnavailable):
                raise error

        return await retry(partial(self._declare, delayed), failed)

    async def _declare(self, delayed: _Delayed) -> Target:
        while not self._levels.declared(target := delayed.target()):
            try:
                await self._declare_once(target)
            except DestinationUnknown:  # something was deleted that had been declared
                self._levels.forget()
                if delayed.destination is not None:
                    self._destinations.forget(delayed.destination)
                    await self._destinations.partitions(delayed.destination)
                await self._declare_once(delayed.target())
        if self._counting is None and not self._closing:
            self._counting = asyncio.create_task(self._count_repeatedly())
        return target

    async def _declare_once(self, target: Target) -> None:
        """Declare a target. A message whose deadline passes does not cancel it, so that the next message finds more."""
        declaring = asyncio.ensure_future(self._levels.declare(target))
        declaring.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(declaring)

    def _publish(self, delayed: _Delayed, target: Target) -> asyncio.Future[Stored]:
        if delayed.destination is None:  # the engine does not hold it until it is due
            wait = not_before(delayed.due, wall())
        else:
            wait = self._key_order.wait(delayed.key_queue, delayed.due, wall())
        key = levels.routing_key(wait, f"{target.key}.{delayed.partition}".removesuffix("."))
        outgoing = Outgoing(levels.entry(self._own, wait), key, delayed.properties, delayed.body)
        publishing = self._publisher.send(outgoing, confirmed=delayed.confirmed, deadline=delayed.deadline)
        publishing.add_done_callback(self._published)
        return publishing

    def _published(self, publishing: asyncio.Future[Stored]) -> None:
        """Declare everything again if the message was not stored because its level is missing."""
        if not publishing.cancelled() and (is_unroutable(error := publishing.exception()) or is_missing(error)):
            self._levels.forget()

    async def _count_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_COUNT_LOST)
            await self._count_lost()

    async def _count_lost(self) -> None:
        """Count the messages in `lost`, and log when there are more."""
        with contextlib.suppress(BridgeError):
            lost = await self._levels.count_lost()
            if lost is not None:
                if lost > self._lost:
                    _log.warning("%d delayed messages had no destination when they were due: %s", lost, self._own.lost)
                self._lost = lost
