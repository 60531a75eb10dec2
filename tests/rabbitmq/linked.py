"""Links and publishers against a real RabbitMQ, and what lies in its queues."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

from pika import BasicProperties

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.base import Stored
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.publish.publisher import Publisher

SECONDS = 60.0


@asynccontextmanager
async def linked(url: str, purpose: str = "test") -> AsyncIterator[Link]:
    """A connection, closed at the end."""
    link = Link(parse(url), purpose)
    try:
        await link.start()
        yield link
    finally:
        await link.close()


class Desk(NamedTuple):
    """A publisher, and a connection beside it that declares and looks."""

    publisher: Publisher
    link: Link
    beside: Channel
    beside_link: Link

    async def exchange(self) -> str:
        """A new exchange."""
        name = f"x-{uuid4().hex}"
        await self.beside.ask(name, "exchange_declare", exchange=name, exchange_type="topic", auto_delete=True)
        return name

    async def queue(self, exchange: str | None = None, routing_key: str = "#") -> str:
        """A new queue, bound to the exchange; both go a while after the tests, if the broker is not theirs."""
        name = f"q-{uuid4().hex}"
        await self.beside.ask(name, "queue_declare", queue=name, durable=True, arguments={"x-expires": 600_000})
        if exchange is not None:
            await self.beside.ask(name, "queue_bind", queue=name, exchange=exchange, routing_key=routing_key)
        return name

    async def held(self, queue: str) -> int:
        """How many messages lie in the queue."""
        answer = await self.beside.ask(queue, "queue_declare", queue=queue, passive=True)
        return int(answer.message_count)

    async def take(self, queue: str, number: int) -> list[bytes]:
        """Consume that many."""
        channel = await self.beside_link.channel()
        bodies: list[bytes] = []
        enough = asyncio.Event()

        def arrived(_channel: object, method: Any, _properties: object, body: bytes) -> None:  # noqa: ANN401 - pika's
            bodies.append(body)
            channel.raw.basic_ack(method.delivery_tag)
            if len(bodies) == number:
                enough.set()

        await channel.ask(queue, "basic_consume", queue=queue, on_message_callback=arrived)
        if number:
            await asyncio.wait_for(enough.wait(), SECONDS)
        await channel.close()
        return bodies

    async def arrivals(self, queue: str, last: bytes) -> list[Arrival]:
        """Consume up to the message with that body."""
        channel = await self.beside_link.channel()
        came: list[Arrival] = []
        ended = asyncio.Event()

        def arrived(_consumer: str, arrival: Arrival) -> None:
            came.append(arrival)
            if arrival.body == last:
                ended.set()

        await channel.consume(queue, arrived, auto_ack=True)
        await asyncio.wait_for(ended.wait(), SECONDS)
        await channel.close()
        return came

    def send(
        self,
        exchange: str,
        body: bytes = b"x",
        routing_key: str = "p0",
        *,
        confirmed: bool = True,
    ) -> asyncio.Future[Stored]:
        """Publish, with a unique id."""
        properties = BasicProperties(message_id=uuid4().hex, delivery_mode=2)
        outgoing = Outgoing(exchange, routing_key, properties, body)
        return self.publisher.send(outgoing, confirmed=confirmed)


@asynccontextmanager
async def desk(url: str, beside: str | None = None) -> AsyncIterator[Desk]:
    """A publisher on its own connection; `beside`: the URL of who declares and looks, if it is another."""
    async with linked(beside or url) as other:
        link = Link(parse(url), "publishing")
        publisher = Publisher(parse(url), link)
        try:
            await link.start()
            yield Desk(publisher, link, await other.channel(), other)
        finally:
            await publisher.close()
            await link.close()


async def outcomes(futures: list[asyncio.Future[Stored]]) -> list[Stored | BaseException]:
    """What became of each."""
    await asyncio.wait(futures, timeout=SECONDS)
    return [future.exception() or future.result() for future in futures]


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for it."""
    async with asyncio.timeout(SECONDS):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.02)
