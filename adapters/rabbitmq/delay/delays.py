"""What waits: messages that are not due yet, and messages that a group gave back for long."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from pika import BasicProperties

from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.base import Delivery, Stored
from adapters.cloud_events import PropertyHeaders
from adapters.field_headers import INTERNAL_PREFIX
from adapters.plain_properties import prefixed_header
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.declarer import Declarer, Exit
from adapters.rabbitmq.delay.levels import KeyQueue, Pace, not_before
from adapters.rabbitmq.message.headers import ATTEMPTS
from adapters.rabbitmq.message.mapping import to_properties
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.outcomes import again, is_missing, is_unroutable, not_taken
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own, Source
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown
from bridge.message import AT_MOST_ONCE, Message

_GROUP: Final = f"{INTERNAL_PREFIX}group"
"""Header of a message that a group put off, for people: which one."""
_LOOK: Final = 60.0
"""Seconds between two looks at the lost."""
_RETRY: Final = 0.2
"""Seconds between attempts to declare what the first message in the line needs, during an outage."""
_log = logging.getLogger("bridge.rabbitmq")


class _Way(NamedTuple):
    """What leads from the lowest level to somewhere, and the words of a routing key that lead there."""

    exit_: Exit
    target: str


class _Waiting(NamedTuple):
    """A message on its way to its level."""

    destination: str | None
    """Where it goes when it is due; None: to one queue of a group."""
    exit_: Exit
    target: str
    key_queue: KeyQueue | None
    due: int
    properties: BasicProperties
    body: bytes
    confirmed: bool = True
    deadline: float | None = None
    """Until when it waits for the broker, in seconds of the loop's clock; None: it fails at once."""


class _InLine(NamedTuple):
    """A message that waits until everything is declared that it needs."""

    waiting: _Waiting
    answer: asyncio.Future[Stored]
    timer: asyncio.TimerHandle | None


class Delays:
    """Sends messages to the level of the highest digit of what is left until they are due.

    What needs levels or an exit that are not known to be there waits in a line until they are.
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
        self._link = declaring
        self._publisher = publisher
        self._destinations = destinations
        self._declarer = Declarer(self._own, declaring)
        self._pace = Pace()
        self._ways: dict[tuple[str, int], _Way] = {}
        """To destinations; another one after each purge."""
        self._line: deque[_InLine] = deque()
        self._closing = False
        self._working: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._lost = 0

    def publish(
        self, message: Message, properties: BasicProperties, body: bytes, deadline: float | None = None
    ) -> asyncio.Future[Stored]:
        """Store a message that goes to its destination when it is due. The future raises as `Adapter.publish` says.

        During an outage it waits until `deadline` (seconds of the loop's clock); None: it fails at once.
        """
        exit_, target = self._way(message)
        target = f"{target}.{names.routing_key(message.partition or 0)}"
        confirmed = message.qos != AT_MOST_ONCE
        key_queue = None if message.message_key is None else (target, message.message_key)
        return self._send(
            _Waiting(message.destination, exit_, target, key_queue, message.due, properties, body, confirmed, deadline)
        )

    def defer(self, group: str, delivery: Delivery, source: Source, until: int) -> asyncio.Future[Stored]:
        """Store a delivery once more, for this queue of this group alone, where it comes no earlier than `until`.

        Times in ms since 1970. When the future is done, the original can be acknowledged. It raises as
        `Adapter.publish` says; the original is to be kept then.
        """
        message = delivery.message
        if message.store_timestamp is None:  # of a native producer who did not say when
            message = message._replace(store_timestamp=wall())
        properties, body = to_properties(message, self._header_of)
        properties.expiration = None  # it would end the wait in its level
        properties.headers.update({ATTEMPTS: delivery.attempts, _GROUP: group})
        if source.shared:  # not ours to bind anything to
            exit_, target = self._relay(levels.relay(self._own, "", source.queue))
            target = f"{target}.{names.routing_key(source.partition)}"
        else:
            purges = self._destinations.purges(message.destination, group)
            target = levels.to_queue(source.queue, purges)
            exit_ = Exit(target, (levels.from_deliver_to_queue(self._own, source.queue, purges),))
        return self._send(_Waiting(None, exit_, target, None, until, properties, body))

    def forget(self, exchange: str) -> None:
        """Declare what leads to it once more on the next use: an exchange has turned out not to be there."""
        way = self._ways.get((exchange, self._destinations.purges(exchange)))
        if way is not None or exchange.startswith(self._own.prefix):
            self._declarer.forget(None if way is None else way.exit_)

    def gauges(self) -> Mapping[str, int]:
        """What waits until it can be sent to its level, and what was due without a destination, at the last look."""
        return {"delays_queued": len(self._line), "delays_lost": self._lost}

    async def close(self) -> None:
        """Send what was accepted, stop looking. Idempotent."""
        self._closing = True
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.wait((looking,))
        if self._working is not None:
            await asyncio.wait((self._working,))
        await self._declarer.close()

    def _way(self, message: Message) -> _Way:
        """Return how a message gets to its destination; the last word of its routing key is still to come."""
        destination = message.destination
        purges = self._destinations.purges(destination)
        way = self._ways.get((destination, purges))
        if way is None:
            if (existing := self._destinations.existing(destination)) is not None:
                exchange, routing_key = self._destinations.route(message)
                apart = "" if existing.exchange is None else destination
                way = self._relay(levels.relay(self._own, exchange, routing_key, apart), purges)
            elif not self._destinations.log_bytes(destination):  # perhaps it has no queue at all
                way = self._relay(levels.relay(self._own, destination), purges)
            else:
                target = levels.to_destination(destination, purges)
                way = _Way(Exit(target, (levels.from_deliver_to_exchange(self._own, destination, purges),)), target)
            self._ways[destination, purges] = way
        return way

    def _relay(self, relay: levels.Queue, purges: int = 0) -> _Way:
        target = levels.to_queue(relay.name, purges)
        binding = levels.from_deliver_to_queue(self._own, relay.name, purges, partitioned=True)
        return _Way(Exit(target, (relay, binding)), target)

    def _send(self, waiting: _Waiting) -> asyncio.Future[Stored]:
        if self._declarer.declared(waiting.exit_):
            return self._go(waiting)
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        timer = None
        if waiting.deadline is not None:
            expire = partial(_fail, answer, not_taken(self._own.deliver))
            timer = asyncio.get_running_loop().call_at(waiting.deadline, expire)
        self._line.append(_InLine(waiting, answer, timer))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return answer

    def _go(self, waiting: _Waiting) -> asyncio.Future[Stored]:
        if waiting.destination is None:  # the engine does not hold it
            wait = not_before(waiting.due, wall())
        else:
            wait = self._pace.wait(waiting.key_queue, waiting.due, wall())
        key = levels.routing_key(wait, waiting.target)
        outgoing = Outgoing(levels.entry(self._own, wait), key, waiting.properties, waiting.body)
        sent = self._publisher.send(outgoing, confirmed=waiting.confirmed, deadline=waiting.deadline)
        sent.add_done_callback(self._sent)
        return sent

    def _sent(self, sent: asyncio.Future[Stored]) -> None:
        """Look whether the level is gone: the message was not stored then, and everything is declared anew."""
        if not sent.cancelled() and (is_unroutable(error := sent.exception()) or is_missing(error)):
            self._declarer.forget()

    async def _work(self) -> None:
        """Serve the line until it is empty."""
        try:
            while self._line:
                waiting, answer, timer = self._line[0]
                try:
                    await self._prepare(waiting, answer)
                except BackendUnavailable as error:
                    if waiting.deadline is not None and not answer.done() and not self._closing:
                        self._fail_impatient(error)
                        await self._pause(answer)
                        continue
                    _fail(answer, error)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's, and the others go on
                    _fail(answer, error)
                if timer is not None:
                    timer.cancel()
                if not answer.done():
                    self._go(waiting).add_done_callback(partial(_hand_on, answer))
                self._line.popleft()
        finally:
            self._working = None

    async def _pause(self, answer: asyncio.Future[Stored]) -> None:
        """Wait for the connection, or a moment if it is there."""
        while True:
            await asyncio.sleep(_RETRY)
            if self._link.up or answer.done() or self._closing:
                return

    def _fail_impatient(self, error: BridgeError) -> None:
        """Fail what does not wait for the broker: what a group defers is delivered again after an outage."""
        for waiting, answer, _ in self._line:
            if waiting.deadline is None:
                _fail(answer, again(error))

    async def _prepare(self, waiting: _Waiting, answer: asyncio.Future[Stored]) -> None:
        """Declare what is missing, unless the answer is done."""
        while not answer.done() and not self._declarer.declared(waiting.exit_):
            await self._declare(waiting)
        if self._looking is None:
            self._looking = asyncio.create_task(self._count_lost())

    async def _declare(self, waiting: _Waiting) -> None:
        try:
            await self._declarer.declare(waiting.exit_)
        except DestinationUnknown:  # what is known is not true any more
            self._declarer.forget()
            if waiting.destination is not None:
                self._destinations.forget(waiting.destination)
                await self._destinations.partitions(waiting.destination)
            await self._declarer.declare(waiting.exit_)

    async def _count_lost(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            await self._look()

    async def _look(self) -> None:
        """Count the lost, and log when they have become more."""
        with contextlib.suppress(BridgeError):
            lost = await self._declarer.lost()
            if lost is not None:
                if lost > self._lost:
                    _log.warning("%d delayed messages had no destination when they were due: %s", lost, self._own.lost)
                self._lost = lost


def _fail(answer: asyncio.Future[Stored], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _hand_on(answer: asyncio.Future[Stored], sent: asyncio.Future[Stored]) -> None:
    if answer.done():
        return
    if sent.cancelled():
        answer.cancel()
    elif (error := sent.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(sent.result())
