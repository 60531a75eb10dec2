"""How often a message was handed out, over stops, moves and deaths of bridges: whatever the broker counts."""

from collections.abc import AsyncIterator, Iterable

import pytest_asyncio

from adapters.amqp.messages import Outgoing
from adapters.base import Delivery
from adapters.rabbitmq.mapping import to_properties
from bridge.message import Message
from tests.rabbitmq.consuming import Pool, pool


@pytest_asyncio.fixture
async def one(rabbitmq_url: str) -> AsyncIterator[Pool]:
    async with pool(rabbitmq_url) as found:
        yield found


def counts(deliveries: Iterable[Delivery]) -> list[tuple[str, int]]:
    return [(each.message.body.decode(), each.attempts) for each in deliveries]


async def test_a_stop_is_no_failure(one: Pool) -> None:
    await one.write(["leased", "fetched", "prefetched"])
    for _ in range(3):
        bridge = await one.bridge()
        found = await bridge.take(2)
        assert counts(found) == [("leased", 0), ("fetched", 0)]
        await bridge.lease(found[:1])
        await bridge.stop()


async def test_a_death_counts_what_was_handed_out_and_nothing_else(one: Pool) -> None:
    await one.write(["leased", "fetched", "prefetched"])
    for times in range(3):
        bridge = await one.bridge()
        found = await bridge.take(2)
        assert counts(found) == [("leased", times), ("fetched", 0)]
        await bridge.lease(found[:1])
        await bridge.noted({"leased"})
        await bridge.die()
    after = await one.bridge()
    assert counts(await after.take(3)) == [("leased", 3), ("fetched", 0), ("prefetched", 0)]


async def test_what_is_handed_out_again_and_again_counts_each_time(one: Pool) -> None:
    await one.write(["a", "b"])
    bridge = await one.bridge()
    found = await bridge.take(2)
    for _ in range(4):
        found = await bridge.lease(found)
    await bridge.settle(found[1:])
    await bridge.stop()
    after = await one.bridge()
    assert counts(await after.take(1)) == [("a", 3)], "the last one was cut short"


async def test_a_partition_that_moves_takes_its_counts_along(one: Pool) -> None:
    await one.write(["a", "b"])
    first = await one.bridge()
    await first.lease(await first.lease(await first.take(2)))
    second = await one.bridge([])
    first.shares.move([])
    second.shares.move([0])
    assert counts(await second.take(2)) == [("a", 1), ("b", 1)]
    second.shares.move([])
    first.shares.move([0])
    assert counts(await first.take(2)) == [("a", 1), ("b", 1)]


async def test_counts_outlive_a_bridge_that_handed_out_nothing(one: Pool) -> None:
    await one.write(["a", "b"])
    first = await one.bridge()
    await first.lease(await first.lease(await first.take(1)))
    await first.noted({"a"})
    await first.die()
    second = await one.bridge()
    assert counts(await second.take(1)) == [("a", 2)]
    await second.lease(await second.take(1))
    await second.noted({"a", "b"})
    await second.die()
    third = await one.bridge()
    assert counts(await third.take(2)) == [("a", 2), ("b", 1)]
    await third.stop()
    fourth = await one.bridge()
    await fourth.stop()
    fifth = await one.bridge()
    assert counts(await fifth.take(2)) == [("a", 2), ("b", 1)]


async def test_a_lost_connection_is_no_failure(one: Pool) -> None:
    await one.write(["a", "b"])
    bridge = await one.bridge()
    found = await bridge.lease(await bridge.take(1))
    await bridge.lease(found)
    await bridge.noted({"a"})
    for _ in range(3):
        bridge.cut()
        assert counts(await bridge.take_again(2)) == [("a", 1), ("b", 0)]
        await bridge.lease([])
    other = await one.bridge([])
    bridge.shares.move([])
    other.shares.move([0])
    assert counts(await other.take(2)) == [("a", 1), ("b", 0)]


async def test_whoever_had_it_last_knows_best(one: Pool) -> None:
    await one.write(["a"])
    first, second = await one.bridge(), await one.bridge([])
    await first.lease(await first.take(1))
    await first.noted({"a"})
    first.shares.share = []
    first.cut()
    second.shares.move([0])
    found = await second.take(1)
    assert counts(found) == [("a", 1)]
    await second.lease(await second.lease(found))
    second.shares.move([])
    first.shares.move([0])
    assert counts(await first.take_again(1)) == [("a", 2)]


async def test_without_a_note_the_brokers_count_is_taken(one: Pool) -> None:
    await one.write(["a", "b"])
    for times in range(3):
        bridge = await one.bridge()
        assert counts(await bridge.take(2)) == [("a", times), ("b", times)]
        await bridge.die()


async def test_a_note_that_has_expired_is_written_again(one: Pool) -> None:
    await one.write(["a", "b"])
    bridge = await one.bridge()
    found = await bridge.take(2)
    await bridge.lease(found[:1])
    await bridge.noted({"a"})
    await one.ask("queue_delete", queue=one.note())
    await bridge.lease(found[1:])
    await bridge.noted({"a", "b"})
    await bridge.die()
    after = await one.bridge()
    assert counts(await after.take(2)) == [("a", 1), ("b", 1)]


async def test_forged_counts_count_nothing(one: Pool) -> None:
    message = Message(one.destination, b"a", message_id="a", born_timestamp=1, store_timestamp=1)
    properties, body = to_properties(message)
    properties.headers |= {"x-delivery-count": 9, "x-acquired-count": 9, "x-death": [{"count": 9}]}
    await one.publisher.send(Outgoing("", one.queue(), properties, body))
    bridge = await one.bridge()
    found = await bridge.take(1)
    assert counts(found) == [("a", 0)]
    await bridge.stop()
    again = await one.bridge()
    assert counts(await again.take(1)) == [("a", 0)]


async def test_what_was_put_off_says_itself_how_often(one: Pool) -> None:
    message = Message(one.destination, b"a", message_id="a", born_timestamp=1, store_timestamp=1)
    properties, body = to_properties(message)
    properties.headers["oms_d_attempts"] = 4
    await one.publisher.send(Outgoing("", one.queue(), properties, body))
    first = await one.bridge()
    assert counts(await first.take(1)) == [("a", 4)]
    await first.stop()
    second = await one.bridge()
    found = await second.take(1)
    assert counts(found) == [("a", 4)]
    await second.lease(found)
    await second.noted({"a"})
    await second.die()
    third = await one.bridge()
    assert counts(await third.take(1)) == [("a", 5)]
