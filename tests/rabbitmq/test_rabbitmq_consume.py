"""A subscription on real queues: what is fetched, what an acknowledgement is worth, and what happens when things go."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.rabbitmq.consuming import Pool, bodies, pool


@pytest_asyncio.fixture
async def one(rabbitmq_url: str) -> AsyncIterator[Pool]:
    async with pool(rabbitmq_url) as found:
        yield found


@pytest_asyncio.fixture
async def three(rabbitmq_url: str) -> AsyncIterator[Pool]:
    async with pool(rabbitmq_url, 3) as found:
        yield found


async def test_the_first_fetch_misses_nothing(three: Pool) -> None:
    wrote = [[f"{partition}-{number}" for number in range(20)] for partition in range(3)]
    for partition, each in enumerate(wrote):
        await three.write(each, partition)
    bridge = await three.bridge()
    future = bridge.subscription.fetch(100, 1 << 20)
    assert future.done()
    assert [bodies(future.result(), partition) for partition in range(3)] == wrote
    assert bridge.nothing_comes()


async def test_settled_is_gone(one: Pool) -> None:
    await one.write(f"{n}" for n in range(10))
    bridge = await one.bridge()
    found = await bridge.take(10)
    await bridge.settle(found[3:5])
    await bridge.settle(found[0:1])
    await bridge.die()
    after = await one.bridge()
    assert bodies(await after.take(7)) == ["1", "2", "5", "6", "7", "8", "9"]
