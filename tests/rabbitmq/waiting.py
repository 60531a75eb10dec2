"""The part of a bridge that delays messages, without its engine: over real links, to a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.properties import Properties
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.delays import Delays
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import Existing, parse
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable
from bridge.message import Message
from tests.rabbitmq import natives

GUARD: Final = 60.0


class Came(NamedTuple):
    """A message as a native consumer got it, and when, ms since 1970."""

    body: bytes
    at: int
    key: str
    properties: Properties

    @property
    def due(self) -> int:
        headers = self.properties.headers
        return int(headers["oms_h_bornTimestamp"]) + int(headers.get("oms_h_delayTime", 0))


class Waiting:
    """What an adapter makes of its rooms for delays."""

    def __init__(self, url: str, prefix: str, existing: Mapping[str, Existing]) -> None:
        self.options = parse(f"{url}?prefix={prefix}&partitions=2")._replace(destinations=existing)
        self.own = Own(prefix)
        self.orders = f"orders-{uuid4().hex[:8]}"
        """A destination that no other test has."""
        self.publishing, self.consuming = Link(self.options, "publishing"), Link(self.options, "consuming")
        self.publisher = Publisher(self.options, self.publishing)
        self.catalogue = Catalogue(self.options, self.consuming, self.publisher)
        self.destinations = Destinations(self.options, self.consuming, self.catalogue)
        self.delays = Delays(self.options, self.consuming, self.publisher, self.destinations)
        self.publisher.on_exchange_missing = self._gone
        self._native: Channel | None = None

    async def start(self) -> None:
        for each in (self.publishing, self.consuming, self.catalogue):
            await each.start()

    async def close(self) -> None:
        for each in (self.delays, self.catalogue, self.destinations, self.publisher, self.consuming, self.publishing):
            await each.close()

    async def send(self, destination: str, body: bytes = b"body", delay: int = 0, **fields: object) -> Message:
        """Store a message, as the engine does; returns it as it was completed."""
        await self.destinations.partitions(destination)
        message = completed(destination, body, delay, **fields)
        await self.publish(message)
        return message

    async def publish(self, message: Message) -> None:
        properties, body = to_properties(message)
        if message.delay_time:
            await self.delays.publish(message, properties, body)
        else:
            await self.publisher.send(Outgoing(*self.destinations.route(message), properties, body))

    async def queue(self, exchange: str, key: str = "#", **arguments: object) -> str:
        """Make a foreign queue, and bind it."""
        name = f"{self.own.prefix}native.{uuid4().hex[:8]}"
        await self.ask("queue_declare", queue=name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
        await self.ask("queue_bind", queue=name, exchange=exchange, routing_key=key)
        return name

    async def group(self, destination: str, group: str = "app", partition: int = 0) -> str:
        """Make a queue as a group has it."""
        name = f"{destination}.{group}.p{partition}"
        await self.ask("queue_declare", queue=name, durable=True, arguments={"x-queue-type": "quorum"})
        await self.ask("queue_bind", queue=name, exchange=destination, routing_key=f"#.p{partition}")
        return name

    async def consume(self, queue: str, prefetch: int = 0) -> list[Came]:
        """Consume a queue as any program does; returns what is filled as messages come."""
        came: list[Came] = []
        channel = await self.consuming.channel()

        def arrived(raw: Any, method: Any, properties: Properties, body: bytes) -> None:  # noqa: ANN401 - pika's
            came.append(Came(body, wall(), method.routing_key, properties))
            raw.basic_ack(method.delivery_tag)

        await channel.ask(queue, "basic_qos", prefetch_count=prefetch)
        await channel.ask(queue, "basic_consume", queue=queue, on_message_callback=arrived)
        return came

    async def ask(self, method: str, **arguments: object) -> object:
        """Do what an operator, or another program, may do."""
        if self._native is None or not self._native.open:
            self._native = await self.consuming.channel()
        return await self._native.ask("test", method, **arguments)

    async def count(self, queue: str) -> int:
        """How many messages lie in a queue, delivered to no consumer."""
        answer = await self.ask("queue_declare", queue=queue, passive=True)
        return int(answer.message_count)  # type: ignore[attr-defined]

    async def cut(self) -> None:
        """End the connection that declares as a network does that fails, and wait until it is back."""
        back = asyncio.Event()
        self.consuming.on_connected.append(back.set)
        connection = self.consuming._connection
        assert connection is not None
        connection.abort()
        async with asyncio.timeout(GUARD):
            await back.wait()

    def _gone(self, exchange: str) -> None:
        self.destinations.forget(exchange)
        self.delays.forget(exchange)


def completed(destination: str, body: bytes = b"body", delay: int = 0, **fields: object) -> Message:
    """Return a message as the engine hands it to an adapter."""
    now = wall()
    message = Message(
        destination, body, message_id=uuid4().hex, born_timestamp=now, store_timestamp=now, delay_time=delay or None
    )
    return message._replace(**fields)  # type: ignore[arg-type]


@contextmanager
def levels_of_their_own(url: str) -> Iterator[str]:
    """Return a new prefix, and delete its delay levels in the end."""
    prefix = f"t{uuid4().hex[:8]}."
    yield prefix
    with natives.channel(url) as channel:
        for request in levels.levels(Own(prefix)):
            if request.method == "queue_declare":
                channel.queue_delete(request.arguments["queue"])
            elif request.method == "exchange_declare":
                channel.exchange_delete(request.arguments["exchange"])


@asynccontextmanager
async def waiting(url: str, prefix: str, existing: Mapping[str, Existing] = {}) -> AsyncIterator[Waiting]:
    """Start it, and close it in the end."""
    found = Waiting(url, prefix, existing)
    try:
        await _started(found)
        yield found
    finally:
        await found.close()


async def _started(found: Waiting) -> None:
    """Start it as the engine does: a broker that has just come back does not answer for all its queues at once."""
    begun = time.monotonic()
    while True:
        try:
            await found.start()
        except BackendUnavailable:
            assert time.monotonic() < begun + GUARD
            await asyncio.sleep(0.1)
        else:
            break


async def until(condition: Callable[[], object], state: Callable[[], object] = str, guard: float = GUARD) -> None:
    """Wait for something. A guard, no measure: whatever is waited for comes in a second or two."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + guard, state()
        await asyncio.sleep(0.02)


async def counted(found: Waiting, queue: str, count: int) -> None:
    """Wait until so many messages lie in a queue."""
    begun = time.monotonic()
    while (there := await found.count(queue)) != count:
        assert time.monotonic() < begun + GUARD, f"{there} of {count}"
        await asyncio.sleep(0.05)
