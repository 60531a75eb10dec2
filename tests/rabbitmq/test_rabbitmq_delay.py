"""Delayed messages on a real broker: when they come, where they go, and what becomes of those with nowhere to go."""

import asyncio
import random
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from adapters.base import Delivery
from adapters.rabbitmq.delay import delays
from adapters.rabbitmq.delay.levels import APART, UNIT
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.topology.names import Source
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, DestinationUnknown
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.waiting import Came, Waiting, completed, counted, levels_of_their_own, until, waiting

STUCK = 40
"""More than the 32 dead letters that a queue of RabbitMQ hands on at a time."""


@pytest_asyncio.fixture
async def here(rabbitmq_url: str, prefix: str) -> AsyncIterator[Waiting]:
    async with waiting(rabbitmq_url, prefix) as found:
        yield found


async def test_everything_comes_and_nothing_long_before_it_is_due(here: Waiting) -> None:
    """The engine holds it until then."""
    came = await _consumed(here, here.orders)
    delays = [1, 2, 15, 16, 17, 255, 256, 257, 300, 1000, *(random.randint(1, 2500) for _ in range(30))]  # noqa: S311
    await asyncio.gather(*(here.send(here.orders, b"%d" % delay, delay) for delay in delays))
    await until(lambda: len(came) >= len(delays))
    assert sorted(int(each.body) for each in came) == sorted(delays)
    for each in came:
        assert each.at >= each.due - UNIT - APART, (each.body, each.at - each.due)


async def test_a_delay_of_a_year_is_stored_and_waits(here: Waiting) -> None:
    """
    > any length up to a year.
    """
    came = await _consumed(here, here.orders)
    await here.send(here.orders, b"a year", 366 * 24 * 3_600_000)
    await here.send(here.orders, b"now")
    await until(lambda: came)
    assert [each.body for each in came] == [b"now"]
    assert await here.count(here.own.delay(28)) == 1


async def test_a_message_comes_as_it_was_sent(here: Waiting) -> None:
    came = await _consumed(here, here.orders)
    expires = wall() + 3_600_000
    sent = await here.send(
        here.orders,
        b"\0\1",
        200,
        priority=9,
        correlation_id="c",
        properties={"a": "b"},
        expire_time=expires,
        partition=1,
    )
    await until(lambda: came)
    properties = came[0].properties
    assert came[0].body == b"\0\1"
    assert came[0].key.endswith(f".{here.orders}.p1")
    assert (properties.message_id, properties.correlation_id, properties.priority) == (sent.message_id, "c", 8)
    assert (properties.delivery_mode, properties.expiration) == (2, None), "an expiration would end the wait"
    assert properties.headers["oms_p_a"] == "b"
    assert properties.headers["oms_h_expireTime"] == expires


async def test_destinations_that_look_like_each_other_get_their_own(here: Waiting) -> None:
    names = [here.orders + end for end in ("", ".eu", ".p1", ".eu.p1")]
    came = {name: await _consumed(here, name) for name in names}
    for name in names:
        await here.send(name, name.encode(), 100, partition=1)
    await until(lambda: sum(map(len, came.values())) >= len(names))
    assert {name: [each.body for each in found] for name, found in came.items()} == {n: [n.encode()] for n in names}


async def test_a_burst_with_one_delay_keeps_its_order(here: Waiting) -> None:
    """
    > takes its place in the order of its key when it does
    """
    came = await _consumed(here, here.orders)
    await here.destinations.partitions(here.orders)
    messages = [completed(here.orders, b"%d" % number, 700, message_key="k", partition=0) for number in range(300)]
    await asyncio.gather(*(here.publish(message) for message in messages))
    await until(lambda: len(came) >= 300)
    assert [int(each.body) for each in came] == list(range(300))


async def test_messages_of_a_deleted_destination_are_lost_visibly_and_block_nobody(
    here: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    """
    > an unroutable dead letter blocks a whole delay level invisibly (alternate exchange on the last hop);
    """
    came = await _consumed(here, here.orders)
    await here.send(here.orders, delay=1)
    before = await here.count(here.own.lost)
    gone, due = f"{here.orders}.gone", wall() + 3000
    for _ in range(STUCK):
        await here.send(gone, b"gone", born_timestamp=due - 5000, delay_time=5000)
    await here.ask("exchange_delete", exchange=gone)
    await here.send(here.orders, b"good", born_timestamp=due - 4999, delay_time=5000)
    await until(lambda: len(came) >= 2)
    await counted(here, here.own.lost, before + STUCK)
    await here.delays._count_lost()
    assert here.delays.gauges()["delays_lost"] == before + STUCK
    assert here.own.lost in caplog.text


async def test_messages_of_a_destination_that_nobody_has_a_queue_for_block_nobody(
    rabbitmq_url: str, prefix: str
) -> None:
    """Without a log, and before its first group."""
    silent = f"silent-{uuid4().hex[:8]}"
    async with waiting(rabbitmq_url, prefix, {silent: Existing(log=False)}) as here:
        came = await _consumed(here, here.orders)
        await here.send(silent, delay=1)
        born = wall()
        stuck = [completed(silent, delay=1000, born_timestamp=born, message_key="k") for _ in range(STUCK)]
        await asyncio.gather(*(here.publish(message) for message in stuck))  # so they all end in the same level
        for ahead in range(16):  # and one of these, too
            await here.send(here.orders, born_timestamp=born + ahead, delay_time=1500)
        await until(lambda: len(came) >= 16, lambda: len(came))


async def test_the_lost_do_not_grow_without_bounds(here: Waiting) -> None:
    await here.send(here.orders, delay=1)
    with pytest.raises(Exception, match="x-max-length"):
        await here.ask(
            "queue_declare", queue=here.own.lost, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 7}
        )


async def test_a_destination_deleted_and_made_again_gets_its_messages(here: Waiting) -> None:
    await here.send(here.orders, delay=1)
    await here.ask("exchange_delete", exchange=here.orders)
    with pytest.raises(BackendUnavailable):
        await here.send(here.orders, b"undelayed")
    came = await _consumed(here, here.orders)
    await here.send(here.orders, b"2", delay=1)
    await until(lambda: came)


async def test_so_does_one_that_nobody_has_missed_once_the_way_to_it_is_looked_at_again(
    here: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.rabbitmq.delay.delays._TARGET_AGE", 0.5)
    await here.send(here.orders, delay=1)
    await here.ask("exchange_delete", exchange=here.orders)
    await asyncio.sleep(0.5)
    await here.send(here.orders, b"2", delay=500)
    came = await here.consume(await here.queue(here.orders))
    await until(lambda: came)
    assert came[0].body == b"2"


@pytest.mark.parametrize("what", ["queue", "exchange"])
async def test_a_level_that_was_deleted_stores_nothing_and_is_declared_again(here: Waiting, what: str) -> None:
    level, hour = here.own.delay(15), 3_600_000
    await here.send(here.orders, delay=hour)
    before = await here.count(level)
    await here.ask(f"{what}_delete", **{what: level})
    with pytest.raises(BackendUnavailable):
        await here.send(here.orders, delay=hour)
    await here.send(here.orders, delay=hour)
    assert await here.count(level) == (0 if what == "queue" else before) + 1


async def test_nothing_is_trusted_to_queues_that_have_just_been_made(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ forgets a quorum queue that was made just before it is killed."""
    waited: list[float] = []
    with levels_of_their_own(rabbitmq_url) as new:
        async with waiting(rabbitmq_url, new) as first, waiting(rabbitmq_url, new) as second:
            at_last = asyncio.sleep

            async def sleep(seconds: float) -> None:
                if seconds != delays._SETTLED:
                    await at_last(seconds)
                    return
                waited.append(seconds)
                assert await first.count(first.own.delay(28)) == 0, "it is there"
                with pytest.raises(DestinationUnknown):  # who finds it trusts all the others
                    await first.count(first.own.lost)

            monkeypatch.setattr("adapters.rabbitmq.delay.delays.asyncio.sleep", sleep)
            for bridge in (first, second):
                await bridge.send(bridge.orders, delay=5)
                assert waited == [delays._SETTLED], "the second finds it standing"


async def test_what_is_published_to_an_exchange_that_existed_arrives_with_its_routing_key(
    rabbitmq_url: str, prefix: str
) -> None:
    existing = {
        f"{prefix[:-1]}-invoices": Existing(exchange=f"{prefix}billing", routing_key="invoice.created"),
        f"{prefix[:-1]}-legacy": Existing(queue=f"{prefix}legacy"),
    }
    to_invoices, to_legacy = existing
    async with waiting(rabbitmq_url, prefix, existing) as here:
        await here.ask("exchange_declare", exchange=f"{prefix}billing", exchange_type="direct", durable=True)
        invoices = await here.consume(await here.queue(f"{prefix}billing", "invoice.created"))
        await here.ask("queue_declare", queue=f"{prefix}legacy", durable=True)
        legacy = await here.consume(f"{prefix}legacy")
        for _ in range(2):
            await here.send(to_invoices, b"i", 150)
            await here.send(to_legacy, b"l", 150)
        await until(lambda: len(invoices) + len(legacy) >= 4)
        assert [(each.body, each.key) for each in invoices] == [(b"i", "invoice.created")] * 2
        assert [each.body for each in legacy] == [b"l"] * 2
        assert all(each.at >= each.due - UNIT - APART for each in (*invoices, *legacy))


async def test_a_connection_that_is_lost_while_the_levels_are_declared_stores_nothing(here: Waiting) -> None:
    await here.destinations.partitions(here.orders)
    sending = asyncio.ensure_future(here.publish(completed(here.orders, b"1", 500)))
    await asyncio.sleep(0)
    assert here.delays.gauges()["delays_queued"] == 1
    await here.cut()
    with pytest.raises(BackendUnavailable):
        await sending
    came = await _consumed(here, here.orders)
    await here.send(here.orders, b"2", 100)
    await until(lambda: came)
    assert [each.body for each in came] == [b"2"]


async def test_what_a_broker_has_lost_with_its_connections_is_made_again(here: Waiting) -> None:
    await here.send(here.orders, b"1", 1)
    await here.ask("exchange_delete", exchange=here.own.deliver)
    await here.cut()
    came = await here.consume(await here.queue(here.orders))
    await here.send(here.orders, b"2", 100)
    await until(lambda: came)


async def test_a_deadline_does_not_end_the_declarations(rabbitmq_url: str) -> None:
    """Otherwise each of many messages with short deadlines would begin them again."""
    with levels_of_their_own(rabbitmq_url) as new:
        async with waiting(rabbitmq_url, new) as here:
            await here.destinations.partitions(here.orders)
            message = completed(here.orders, b"1", 3_600_000)
            deadline = asyncio.get_running_loop().time() + delays._SETTLED / 3
            with pytest.raises(BackendUnavailable):
                await here.delays.publish(message, *to_properties(message), deadline)
            await until(lambda: here.delays._levels.declared(here.delays._target(message)))


async def test_a_message_that_waits_for_declarations_is_no_part_of_a_purge_meanwhile(here: Waiting) -> None:
    """With the number of before, its binding would bring back what was purged."""
    came = await _consumed(here, here.orders)
    message = completed(here.orders, b"1", 300)
    async with here.delays._in_order:
        deadline = asyncio.get_running_loop().time() + 60
        sending = here.delays.publish(message, *to_properties(message), deadline)
        await here.catalogue.enter("purged", here.orders, None, 1)
    await sending
    await until(lambda: came)
    assert came[0].key.endswith(f".{here.orders}.@1.p0")


@pytest.mark.extended
async def test_delayed_messages_survive_that_bridge_and_broker_are_killed(stoppable_rabbitmq: RabbitMQ) -> None:
    """
    > survives a restart of the bridge and of the broker;
    """
    rabbit = stoppable_rabbitmq
    prefix = f"t{uuid4().hex[:8]}."
    async with waiting(rabbit.url, prefix) as before:
        seen = await _consumed(before, before.orders)
        queue = await before.queue(before.orders)
        await before.send(before.orders, b"2000", 2000)
        # A stream of 3.10.8 that is killed within a second of its creation is down for minutes: not this test's.
        await until(lambda: seen)
        delays = [700, 1500, 3000, 7000, 8000]
        for delay in delays:
            await before.send(before.orders, b"%d" % delay, delay)
        rabbit.kill()
        rabbit.start()
    async with waiting(rabbit.url, prefix) as after:
        came = await after.consume(queue)
        await after.send(before.orders, b"300", 300)
        await until(
            lambda: len({each.body for each in came}) >= 7,
            lambda: [(each.body, each.at - each.due) for each in came],
            240.0,  # what was moved on when the broker was killed may be tried again after three minutes
        )
        assert {int(each.body) for each in came} == {2000, 300, *delays}
        assert all(each.at >= each.due - UNIT - APART for each in came)


# What a group gives back for long.


async def test_what_a_group_puts_off_comes_to_that_group_alone(here: Waiting) -> None:
    await here.destinations.partitions(here.orders)
    mine, others = await here.group(here.orders), await here.group(here.orders, "others")
    expires = wall() + 300
    message = completed(here.orders, b"1", partition=0, expire_time=expires, properties={"a": "b"})
    until_ = wall() + 1500
    came = await here.consume(mine)
    await here.delays.defer("app", Delivery(message, 0, 7, 3), Source(0, mine), until_)
    await until(lambda: came)
    assert came[0].at >= until_
    headers = came[0].properties.headers
    assert (headers["oms_d_attempts"], headers["oms_d_group"]) == (3, "app")
    assert (came[0].properties.message_id, headers["oms_p_a"]) == (message.message_id, "b")
    assert (headers["oms_h_expireTime"], came[0].properties.expiration) == (expires, None)
    assert await here.count(others) == 0


async def test_a_message_of_a_native_producer_can_be_put_off(here: Waiting) -> None:
    await here.destinations.partitions(here.orders)
    mine = await here.group(here.orders)
    came = await here.consume(mine)
    message = completed(here.orders, b"1")._replace(store_timestamp=None, born_timestamp=None)
    await here.delays.defer("app", Delivery(message, 0, 7, 1), Source(0, mine), wall() + 50)
    await until(lambda: came)
    assert came[0].properties.message_id == message.message_id


async def test_what_a_deleted_group_put_off_is_lost_visibly(here: Waiting) -> None:
    await here.destinations.partitions(here.orders)
    mine = await here.group(here.orders)
    delivery = Delivery(completed(here.orders, b"1"), 0, 7, 1)
    await here.send(here.orders, delay=1)
    before = await here.count(here.own.lost)
    await here.delays.defer("app", delivery, Source(0, mine), wall() + 500)
    await here.ask("queue_delete", queue=mine)
    await counted(here, here.own.lost, before + 1)


async def test_putting_off_fails_where_the_queue_is_gone(here: Waiting) -> None:
    """The engine then holds it back itself."""
    await here.destinations.partitions(here.orders)
    delivery = Delivery(completed(here.orders, b"1"), 0, 7, 1)
    with pytest.raises(DestinationUnknown):
        await here.delays.defer("nobody", delivery, Source(0, f"{here.orders}.nobody.p0"), wall() + 500)


async def test_a_queue_that_existed_gets_what_was_put_off_and_no_binding(here: Waiting) -> None:
    queue = f"{here.own.prefix}legacy"
    await here.ask("queue_declare", queue=queue, durable=True)
    came = await here.consume(queue)
    delivery = Delivery(completed("legacy", b"1"), 0, 7, 2)
    await here.delays.defer("app", delivery, Source(0, queue, shared=True), wall() + 100)
    await until(lambda: came)
    assert came[0].properties.headers["oms_d_attempts"] == 2
    assert came[0].key == queue, "through the default exchange"


async def _consumed(here: Waiting, destination: str) -> list[Came]:
    await here.destinations.partitions(destination)
    return await here.consume(await here.queue(destination))
