"""A broker that times out, or is killed: leases outlive its consumer timeout, and acknowledgements outlive it."""

import asyncio

import pytest

from adapters.base import Outcome
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.consuming import GUARD, bodies, consumer_of, pool, renewed, until


@pytest.fixture
def rabbit(stoppable_rabbitmq: RabbitMQ) -> RabbitMQ:
    return stoppable_rabbitmq


async def test_what_lies_here_for_long_comes_on_a_new_channel(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool(rabbitmq_url) as here:
        await here.write(["a", "b", "c", "d"])
        bridge = await here.bridge(refresh=0.2)
        found = await bridge.lease(await bridge.take(2))
        consumer = consumer_of(bridge)
        for _ in range(3):
            consumer = await renewed(bridge, consumer)
        await bridge.settle(found[:1])
        await here.write(["e"])
        rest = await bridge.take(3)
        assert [(each.message.body, each.attempts) for each in rest] == [(b"c", 0), (b"d", 0), (b"e", 0)]
        await bridge.settle(rest)
        await renewed(bridge, consumer)
        await bridge.settle(found[1:])
        assert not bridge.revoked
        assert not caplog.records
        assert bridge.nothing_comes()
        await bridge.stop()
        await here.counted(0)


async def test_what_is_settled_lets_a_channel_live(rabbitmq_url: str) -> None:
    async with pool(rabbitmq_url) as here:
        bridge = await here.bridge(refresh=1.5)
        consumer = consumer_of(bridge)
        for number in range(20):
            await here.write([str(number)])
            await bridge.settle(await bridge.take(1))
            await asyncio.sleep(0.1)  # twenty of these last longer than `refresh`, none does
        assert consumer_of(bridge) is consumer


@pytest.mark.extended
async def test_leases_outlive_the_brokers_patience(rabbit: RabbitMQ) -> None:
    rabbit.ctl("eval", "application:set_env(rabbit, channel_tick_interval, 200).")
    async with pool(rabbit.url) as here:
        await here.write(["a", "b", "c"])
        rabbit.ctl("eval", "application:set_env(rabbit, consumer_timeout, 400).")
        bridge = await here.bridge()
        found = await bridge.lease(await bridge.take(2))
        consumer = consumer_of(bridge)
        for _ in range(2):
            consumer = await renewed(bridge, consumer)
        rabbit.ctl("eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
        await renewed(bridge, consumer)
        await bridge.settle(found[1:])
        rest = await bridge.take(1)
        assert [(each.message.body, each.attempts) for each in rest] == [(b"c", 0)]
        assert not bridge.revoked
        await bridge.stop()
        after = await here.bridge()
        assert bodies(await after.take(2)) == ["a", "c"]


@pytest.mark.extended
async def test_nothing_is_settled_until_the_broker_has_written_it(rabbit: RabbitMQ) -> None:
    async with pool(rabbit.url) as here:
        await here.write(["a", "b", "c"])
        bridge = await here.bridge()
        for delivery in await bridge.take(3):  # each kind of proof in turn
            await asyncio.to_thread(rabbit.ctl, "eval", "sys:suspend(ra_log_wal).")
            try:
                settled = bridge.subscription.settle([delivery], Outcome.SETTLED)
                # two answers of the broker after the acknowledgement: weaker proofs would have come by then
                await here.ask("basic_qos", prefetch_count=1)
                await asyncio.to_thread(rabbit.ctl, "eval", "ok.")
                assert not settled.done()
            finally:
                await asyncio.to_thread(rabbit.ctl, "eval", "sys:resume(ra_log_wal).")
            await asyncio.wait_for(settled, GUARD)


@pytest.mark.extended
async def test_what_is_settled_stays_so_when_the_broker_is_killed(rabbit: RabbitMQ) -> None:
    async with pool(rabbit.url) as here:
        # RabbitMQ 3.10 may not find a queue again that it made less than five seconds before it was killed
        await asyncio.sleep(6)
        await here.write(map(str, range(100)))
        bridge = await here.bridge()
        await bridge.settle((await bridge.take(100))[:90:2])
        rabbit.kill()
        rabbit.start()
        assert sorted(map(int, bodies(await bridge.take_again(55)))) == [*range(1, 90, 2), *range(90, 100)]
        assert bridge.nothing_comes()
        await until(lambda: here.link.up)
