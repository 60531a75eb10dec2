"""What waits: messages that are not due yet, and messages that a group gave back for long."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from pika import BasicProperties

from adapters.base import Delivery, Stored
from adapters.clock import wall
from adapters.fields import INTERNAL_PREFIX
from adapters.rabbitmq import ladder, names
from adapters.rabbitmq.destinations import Destinations
from adapters.rabbitmq.headers import ATTEMPTS
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.names import Own
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.outcomes import is_gone, is_unroutable
from adapters.rabbitmq.pace import Lane, Pace
from adapters.rabbitmq.publisher import Publisher
from adapters.rabbitmq.record import Outgoing, Source
from adapters.rabbitmq.scaffold import Exit, Scaffold
from bridge.errors import BridgeError, DestinationUnknown
from bridge.message import AT_MOST_ONCE, Message

_GROUP: Final = f"{INTERNAL_PREFIX}group"
"""Header of a message that a group put off, for people: which one."""
_LOOK: Final = 60.0
"""Seconds between two looks at the lost."""
_log = logging.getLogger("bridge.rabbitmq")


class _Way(NamedTuple):
    """What leads from the foot of the ladder to somewhere, and the words of a routing key that lead there."""

    exit_: Exit
    tail: str


class _Waiting(NamedTuple):
    """A message on its way to the ladder."""

    destination: str | None
    """Where it goes when it is due; None: to one queue of a group."""
    exit_: Exit
    tail: str
    lane: Lane | None
    due: int
    properties: BasicProperties
    body: bytes
    confirmed: bool = True


class Delays:
    """Sends messages to the ladder: to the rung of the highest digit of what is left until they are due.

    What needs rungs or an exit that are not known to be there waits in a line until they are.
    """

    def __init__(self, options: Options, consuming: Link, publisher: Publisher, destinations: Destinations) -> None:
        self._own = Own(options.prefix)
        self._publisher = publisher
        self._destinations = destinations
        self._scaffold = Scaffold(self._own, consuming)
        self._pace = Pace()
        self._ways: dict[str, _Way] = {}
        """To destinations."""
        self._line: deque[tuple[_Waiting, asyncio.Future[Stored]]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._lost = 0

    def publish(self, message: Message, properties: BasicProperties, body: bytes) -> asyncio.Future[Stored]:
        """Store a message that goes to its destination when it is due. The future raises as `Adapter.publish` says."""
        exit_, tail = self._way(message)
        tail = f"{tail}.{names.routing_key(message.partition or 0)}"
        confirmed = message.qos != AT_MOST_ONCE
        lane = None if message.message_key is None else (tail, message.message_key)
        return self._send(_Waiting(message.destination, exit_, tail, lane, message.due, properties, body, confirmed))

    def defer(self, group: str, delivery: Delivery, source: Source, until: int) -> asyncio.Future[Stored]:
        """Store a delivery once more, for this queue of this group alone, where it comes no earlier than `until`.

        Times in ms since 1970. When the future is done, the original can be acknowledged. It raises as
        `Adapter.publish` says; the original is to be kept then.
        """
        message = delivery.message
        if message.store_timestamp is None:  # of a native producer who did not say when
            message = message._replace(store_timestamp=wall())
        properties, body = to_properties(message)
        properties.expiration = None  # it would end the wait on the ladder
        properties.headers.update({ATTEMPTS: delivery.attempts, _GROUP: group})
        if source.shared:  # not ours to bind anything to
            exit_, tail = self._turn("", source.queue)
            tail = f"{tail}.{names.routing_key(source.partition)}"
        else:
            tail = ladder.to_queue(source.queue)
            exit_ = Exit(tail, (ladder.exit_to_queue(self._own, source.queue),))
        return self._send(_Waiting(None, exit_, tail, None, until, properties, body))

    def forget(self, exchange: str) -> None:
        """Declare what leads to it once more on the next use: an exchange has turned out not to be there."""
        way = self._ways.get(exchange)
        if way is not None or exchange.startswith(self._own.prefix):
            self._scaffold.forget(None if way is None else way.exit_)

    def gauges(self) -> Mapping[str, int]:
        """What waits until it can be sent to the ladder, and what came down and found nobody, at the last look."""
        return {"delays_queued": len(self._line), "delays_lost": self._lost}

    async def close(self) -> None:
        """Send what was accepted, stop looking. Idempotent."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.wait((looking,))
        if self._working is not None:
            await asyncio.wait((self._working,))
        await self._scaffold.close()

    def _way(self, message: Message) -> _Way:
        """Return how a message gets to its destination; the last word of its routing key is still to come."""
        destination = message.destination
        way = self._ways.get(destination)
        if way is None:
            if self._destinations.existing(destination) is not None:
                exchange, routing_key = self._destinations.route(message)
                way = self._turn(exchange, routing_key)
            elif not self._destinations.log_bytes(destination):  # perhaps it has no queue at all
                way = self._turn(destination)
            else:
                tail = ladder.to_destination(destination)
                way = _Way(Exit(destination, (ladder.exit_to_exchange(self._own, destination),)), tail)
            self._ways[destination] = way
        return way

    def _turn(self, exchange: str, routing_key: str | None = None) -> _Way:
        turn = ladder.turn(self._own, exchange, routing_key)
        tail = ladder.to_queue(turn.name)
        return _Way(Exit(tail, (turn, ladder.exit_to_queue(self._own, turn.name, partitioned=True))), tail)

    def _send(self, waiting: _Waiting) -> asyncio.Future[Stored]:
        wait = self._wait(waiting)
        if self._scaffold.stands(wait, waiting.exit_):
            return self._go(waiting, wait)
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._line.append((waiting, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return answer

    def _wait(self, waiting: _Waiting) -> int:
        return min(self._pace.wait(waiting.lane, waiting.due, wall()), ladder.LONGEST)

    def _go(self, waiting: _Waiting, wait: int) -> asyncio.Future[Stored]:
        level = self._own.level(ladder.first(wait))
        outgoing = Outgoing(level, ladder.routing_key(wait, waiting.tail), waiting.properties, waiting.body)
        sent = self._publisher.send(outgoing, confirmed=waiting.confirmed)
        sent.add_done_callback(self._sent)
        return sent

    def _sent(self, sent: asyncio.Future[Stored]) -> None:
        """Look whether the rung is gone, or its exchange: it was not stored then, and everything is made anew."""
        if not sent.cancelled() and (is_unroutable(error := sent.exception()) or is_gone(error)):
            self._scaffold.forget()

    async def _work(self) -> None:
        """Serve the line until it is empty."""
        try:
            while self._line:
                waiting, answer = self._line[0]
                try:
                    sent = await self._prepare(waiting)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's, and the others go on
                    if not answer.done():
                        answer.set_exception(error)
                else:
                    sent.add_done_callback(partial(_hand_on, answer))
                self._line.popleft()
        finally:
            self._working = None

    async def _prepare(self, waiting: _Waiting) -> asyncio.Future[Stored]:
        """Make what is missing, then send: what is left to wait becomes less meanwhile, so all it needs is there."""
        while not self._scaffold.stands(wait := self._wait(waiting), waiting.exit_):
            await self._build(waiting, wait)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_for_ever())
        return self._go(waiting, wait)

    async def _build(self, waiting: _Waiting, wait: int) -> None:
        try:
            await self._scaffold.build(wait, waiting.exit_)
        except DestinationUnknown:  # what is known is not true any more
            self._scaffold.forget()
            if waiting.destination is not None:
                self._destinations.forget(waiting.exit_.name)
                await self._destinations.partitions(waiting.destination)
            await self._scaffold.build(wait, waiting.exit_)

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            await self._look()

    async def _look(self) -> None:
        """Count the lost, and tell when they have become more."""
        with contextlib.suppress(BridgeError):
            lost = await self._scaffold.lost()
            if lost is not None:
                if lost > self._lost:
                    _log.warning("%d delayed messages found no queue when they were due: %s", lost, self._own.lost)
                self._lost = lost


def _hand_on(answer: asyncio.Future[Stored], sent: asyncio.Future[Stored]) -> None:
    if answer.done():
        return
    if sent.cancelled():
        answer.cancel()
    elif (error := sent.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(sent.result())
