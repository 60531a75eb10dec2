"""The part of a bridge that has destinations and groups, without its engine: over real links, to a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.rabbitmq.group.queues_and_history import END, Groups
from adapters.rabbitmq.mapping import is_marker, to_properties
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Source
from adapters.wall_clock import wall
from bridge.message import Message

GUARD: Final = 60.0
LAST: Final = b"last"
"""The body that ends what is read of a partition."""


class Rooms:
    """What an adapter makes of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.publishing, self.consuming = Link(options, "publishing"), Link(options, "consuming")
        self.declaring = Link(options, "declaring")
        self.publisher = Publisher(options, self.publishing)
        self.copying = Publisher(options, self.declaring)
        self.catalogue = Catalogue(options, self.consuming, self.publisher)
        self.destinations = Destinations(options, self.declaring, self.catalogue)
        self.groups = Groups(self.declaring, self.copying, self.catalogue, self.destinations)
        self.publisher.on_exchange_missing = self.destinations.forget
        self._channel: Channel | None = None
        self._read: dict[str, list[bytes]] = {}

    async def start(self) -> None:
        for each in (self.publishing, self.consuming, self.declaring, self.catalogue):
            await each.start()

    async def close(self) -> None:
        for each in (self.groups, self.destinations, self.catalogue, self.publisher, self.copying):
            await each.close()
        for link in (self.consuming, self.declaring, self.publishing):
            await link.close()

    async def send(self, destination: str, bodies: Sequence[bytes], partition: int | None = None) -> None:
        """Store messages as the engine does, over the partitions by their order unless one is named."""
        partitions = await self.destinations.partitions(destination)
        await asyncio.gather(
            *(
                self.publish(message(destination, body, at % partitions if partition is None else partition))
                for at, body in enumerate(bodies)
            )
        )

    def publish(self, message: Message) -> Awaitable[object]:
        properties, body = to_properties(message)
        return self.publisher.send(Outgoing(*self.destinations.route(message), properties, body))

    async def sources(self, destination: str, group: str = "app", *, latest: bool = False) -> Sequence[Source]:
        return await self.groups.sources(destination, group, latest=latest)

    async def read(self, sources: Sequence[Source], destination: str = "") -> list[list[bytes]]:
        """Consume each partition up to a message that is sent for that; returns what came before it.

        `destination` where its name does not follow from the queues.
        """
        last = LAST + uuid4().hex.encode()
        for source in sources:
            await self.publish(message(destination or source.queue.split(".")[0], last, source.partition))
        async with asyncio.timeout(GUARD):
            came = await asyncio.gather(*(Holder(self, source, last).run() for source in sources))
        new = [self._new(source.queue, [*bodies, last]) for source, bodies in zip(sources, came, strict=True)]
        return [[body for body in bodies if not body.startswith(LAST)] for bodies in new]

    def _new(self, queue: str, came: list[bytes]) -> list[bytes]:
        """Return what came without what was read before, if that came again first and in its order.

        3.10.8 forgets the last acknowledgements of a channel that is closed right behind them (3 of 300, once in some
        hundred runs).
        """
        before, self._read[queue] = self._read.get(queue, []), came
        again = max(n for n in range(len(before) + 1) if came[:n] == before[len(before) - n :])
        return came[again:]

    async def lose(self) -> None:
        """Lose the consuming and the declaring connection, once they are there."""
        await until(lambda: self.consuming.up and self.declaring.up)
        lost: list[Exception] = []
        for link in (self.consuming, self.declaring):
            link.on_lost.append(lost.append)
            assert link._connection is not None
            link._connection.abort()
        await until(lambda: len(lost) > 1)

    async def ask(self, method: str, **arguments: object) -> Any:  # noqa: ANN401 - the method's answer
        """Do what an operator, or another program, may do."""
        if self._channel is None or not self._channel.open:
            self._channel = await self.consuming.channel()
        return await self._channel.ask("test", method, **arguments)

    async def there(self, queues: Collection[str]) -> set[str]:
        """Return those queues that are there."""
        found = set()
        for queue in queues:
            channel = await self.consuming.channel()
            try:
                await channel.ask(queue, "queue_declare", queue=queue, passive=True)
                found.add(queue)
            except Exception:  # noqa: BLE001, S110 - it is not
                pass
            finally:
                await channel.close()
        return found


class Holder:
    """Consumes one partition, as its holder does, and acknowledges everything at once."""

    def __init__(self, rooms: Rooms, source: Source, last: bytes = LAST) -> None:
        self.came: list[bytes] = []
        self._last = last
        self._rooms = rooms
        self._source = source
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channels: list[Channel] = []
        self._doing: list[asyncio.Future[None]] = []
        self._enough: int | None = None

    async def run(self, enough: int | None = None) -> list[bytes]:
        """Read up to the last message, or until so many have come; then die."""
        self._enough = enough
        await self._consume(self._source.history or self._source.queue)
        await self._done
        await asyncio.gather(*self._doing)
        for channel in self._channels:
            await channel.close()
        return self.came

    async def _consume(self, queue: str) -> None:
        channel = await self._rooms.consuming.channel()
        self._channels.append(channel)

        def arrived(raw: Any, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
            if self._done.done():
                return
            if queue == self._source.history and is_marker(properties, END):
                self._do(self._end())
                return
            raw.basic_ack(method.delivery_tag)
            if not is_marker(properties):
                self._keep(body)

        await channel.ask(queue, "basic_qos", prefetch_count=50)
        await channel.ask(queue, "basic_consume", queue=queue, on_message_callback=arrived)

    def _keep(self, body: bytes) -> None:
        if body == self._last:
            self._done.set_result(None)
            return
        self.came.append(body)
        if len(self.came) == self._enough:
            self._done.set_result(None)

    async def _end(self) -> None:
        await self._rooms.ask("queue_delete", queue=self._source.history)
        await self._consume(self._source.queue)

    def _do(self, doing: Coroutine[Any, Any, None]) -> None:
        self._doing.append(asyncio.ensure_future(doing))


def message(destination: str, body: bytes, partition: int = 0, **fields: object) -> Message:
    """Return a message as the engine hands it to an adapter."""
    now = wall()
    whole = Message(
        destination, body, message_id=uuid4().hex, born_timestamp=now, store_timestamp=now, partition=partition
    )
    return whole._replace(**fields)  # type: ignore[arg-type]


@asynccontextmanager
async def rooms(options: Options) -> AsyncIterator[Rooms]:
    """Start them, and close them in the end."""
    found = Rooms(options)
    try:
        await found.start()
        yield found
    finally:
        await found.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something. A guard, no measure."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + GUARD
        await asyncio.sleep(0.01)
