"""Messages whose time is over: what the broker drops, what the bridge does, and what native consumers see of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pika
import pytest_asyncio

from adapters.base import Delivery
from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.consume.subscription import RabbitMQSubscription
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology.names import queue
from adapters.wall_clock import wall
from tests.rabbitmq import natives
from tests.rabbitmq.waiting import completed


class Here:
    """An adapter, and a destination for one test."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.adapter = RabbitMQAdapter(parse(f"{url}?prefix={prefix}&partitions=1"))
        self.orders = f"orders-{uuid4().hex[:8]}"
        self.queue = queue(self.orders, "app", 0)
        self.joined: list[RabbitMQSubscription] = []

    async def send(self, body: bytes, **fields: object) -> None:
        await self.adapter.publish(completed(self.orders, body, 0, partition=0, **fields))

    async def join(self) -> RabbitMQSubscription:
        self.joined.append(await self.adapter.subscribe(self.orders, "app", lambda _partitions: []))
        return self.joined[-1]

    async def leave(self) -> None:
        for subscription in self.joined:
            await subscription.close()
        self.joined.clear()

    async def native(self) -> str:
        """Make a foreign queue on the destination."""
        return await asyncio.to_thread(natives.queue_of, self.url, "quorum", exchange=self.orders)

    async def left(self, name: str) -> int:
        return await asyncio.to_thread(natives.left, self.url, name)

    async def take(self, name: str) -> natives.Got:
        return (await asyncio.to_thread(natives.take, self.url, name, 1))[0]


@asynccontextmanager
async def _adapter(url: str, prefix: str) -> AsyncIterator[Here]:
    here = Here(url, prefix)
    try:
        await here.adapter.start()
        await here.adapter.partitions(here.orders)
        yield here
    finally:
        await here.leave()
        await here.adapter.close()


@pytest_asyncio.fixture
async def here(rabbitmq_url: str, prefix: str) -> AsyncIterator[Here]:
    async with _adapter(rabbitmq_url, prefix) as found:
        yield found


async def fetched(subscription: RabbitMQSubscription) -> list[Delivery]:
    async with asyncio.timeout(60):
        return await subscription.fetch(100, 1 << 20)


async def test_a_native_consumer_sees_how_long_it_lives_yet(here: Here) -> None:
    mine = await here.native()
    await here.send(b"1", expire_time=wall() + 3_600_000)
    properties = (await here.take(mine)).properties
    assert 3_500_000 < int(properties.expiration) <= 3_600_000


async def test_the_broker_hands_out_nothing_whose_time_is_over(here: Here) -> None:
    """
    > - **Expiry**: never handed out after expireTime,
    """
    mine = await here.native()
    await (await here.join()).close()
    await here.send(b"short-lived", expire_time=wall() + 300)
    await here.send(b"lasting")
    await asyncio.sleep(0.4)  # until its time is over
    assert (await here.take(mine)).body == b"lasting"
    assert [each.message.body for each in await fetched(await here.join())] == [b"lasting"]


async def test_what_lies_behind_a_lasting_one_does_not_come_either(here: Here) -> None:
    """
    > [V] broker never delivers an expired message even if stuck behind an unexpired head
    """
    await (await here.join()).close()
    await here.send(b"lasting")
    await here.send(b"short-lived", expire_time=wall() + 300)
    await here.send(b"last")
    await asyncio.sleep(0.4)
    assert [each.message.body for each in await fetched(await here.join())] == [b"lasting", b"last"]


async def test_an_expired_message_given_back_is_the_brokers_to_drop(here: Here) -> None:
    """
    > also not as a redelivery;
    """
    subscription = await here.join()
    await here.send(b"short-lived", expire_time=wall() + 3000)
    assert [each.message.body for each in await fetched(subscription)] == [b"short-lived"]
    await asyncio.sleep(3.1)
    await here.leave()
    await here.send(b"lasting")
    assert [each.message.body for each in await fetched(await here.join())] == [b"lasting"]


async def test_what_a_native_producer_lets_expire_does_not_come(here: Here) -> None:
    await (await here.join()).close()
    written = [natives.Sent(b"short-lived", "", pika.BasicProperties(expiration="300")), natives.Sent(b"lasting")]
    await asyncio.to_thread(natives.write, here.url, here.orders, written)
    await asyncio.sleep(0.4)
    assert [each.message.body for each in await fetched(await here.join())] == [b"lasting"]


async def test_an_expiry_not_after_the_birth_means_never(here: Here) -> None:
    """
    > `expireTime <= bornTimestamp` means it never expires.
    """
    mine = await here.native()
    for expires in (0, wall() - 5000):
        await here.send(b"lasting", expire_time=expires)
        got = await here.take(mine)
        assert (got.body, got.properties.expiration) == (b"lasting", None)


async def test_a_delayed_one_reaches_native_consumers_with_its_time_in_a_header_alone(here: Here) -> None:
    """
    > `expiration` on a delayed publish fires early;
    """
    mine = await here.native()
    expires = wall() + 60_000
    message = completed(here.orders, b"1", 300, partition=0, expire_time=expires)
    await here.adapter.publish(message)
    got = await here.take(mine)
    assert wall() >= message.due
    assert (got.properties.expiration, got.properties.headers["oms_h_expireTime"]) == (None, expires)
