"""A subscription on real queues: what is fetched, what an acknowledgement is worth, and what happens when things go."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from adapters.amqp.messages import Outgoing
from adapters.base import Delivery, Outcome
from adapters.rabbitmq.consume import prefetch_window, subscription
from adapters.rabbitmq.consume.partition import Partition
from adapters.rabbitmq.group.queues_and_history import END, marker
from bridge.errors import BackendUnavailable, DestinationUnknown, OutcomeUnknown
from bridge.message import Message
from tests.rabbitmq.consuming import Bridge, Pool, bodies, consumer_of, eventually, pool, renewed, until


@pytest_asyncio.fixture
async def one(rabbitmq_url: str) -> AsyncIterator[Pool]:
    async with pool(rabbitmq_url) as found:
        yield found


@pytest_asyncio.fixture
async def three(rabbitmq_url: str) -> AsyncIterator[Pool]:
    async with pool(rabbitmq_url, 3) as found:
        yield found


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


async def test_the_first_fetch_misses_nothing(three: Pool) -> None:
    wrote = [[f"{partition}-{number}" for number in range(20)] for partition in range(3)]
    for partition, each in enumerate(wrote):
        await three.write(each, partition)
    bridge = await three.bridge()
    future = bridge.subscription.fetch(100, 1 << 20)
    assert future.done()
    assert [bodies(future.result(), partition) for partition in range(3)] == wrote
    assert bridge.nothing_comes()


async def test_partitions_take_turns_and_what_is_asked_for_is_the_most(three: Pool) -> None:
    for partition in range(3):
        await three.write([f"{partition}{number}" for number in range(10)], partition)
    bridge = await three.bridge()
    first = await bridge.fetch(3)
    assert {each.partition for each in first} == {0, 1, 2}
    assert len(await bridge.fetch(100, 5 * first[0].message.size // 2)) == 2
    assert len(await bridge.fetch(1, 1)) == 1, "one comes in any case"
    rest = await bridge.fetch()
    assert len(rest) == 30 - 3 - 2 - 1
    assert {each.partition for each in rest[:3]} == {0, 1, 2}


async def test_a_fetch_that_waits_gets_what_comes(one: Pool) -> None:
    bridge = await one.bridge()
    given_up = bridge.subscription.fetch(10, 1 << 20)
    assert not given_up.done()
    given_up.cancel()
    waits = asyncio.ensure_future(bridge.fetch())
    await one.write(["a"])
    assert bodies(await waits) == ["a"]


async def test_prefetch_bounds_what_is_here(one: Pool) -> None:
    await one.write(numbers(25))
    bridge = await one.bridge(prefetch=10)
    found = await bridge.take(10)
    assert bridge.nothing_comes()
    await one.counted(15)
    await bridge.settle(found[5:8])
    assert bodies(await bridge.take(3)) == numbers(3, 10)
    await one.counted(12)


async def test_the_lag_is_what_no_acknowledgement_has_settled(three: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "INTERVAL", 0.05)
    for partition in range(3):
        await three.write(numbers(400), partition)  # more than one prefetch
    bridge = await three.bridge()
    assert bridge.subscription.lag is None, "the broker is asked first"
    await until(lambda: bridge.subscription.lag == 1200)
    found = await bridge.fetch(100)
    assert bridge.subscription.lag == 1200
    await bridge.subscription.settle(found, Outcome.SETTLED)
    await until(lambda: bridge.subscription.lag == 1100)
    monkeypatch.setattr(subscription, "_UNREAD", 0.0)
    await until(lambda: bridge.subscription.lag is None)  # nobody has read it for a while


async def test_large_messages_that_wait_are_bounded_in_bytes(one: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much is given back, and comes again in its place. A lease that began before goes on."""
    monkeypatch.setattr(prefetch_window, "GROUP_BYTES", 1 << 20)
    size = 100_000
    await one.write(["first"])
    await one.write(numbers(60), padding=size)
    bridge = await one.bridge()
    leased = await bridge.lease(await bridge.take(1))
    held = bridge.subscription._assigned.partitions[0]
    await eventually(lambda: _few(held, size))
    found = leased
    while len(found) < 61:
        came = await bridge.take_again(1)
        await bridge.settle(came[:1] if len(found) > 1 else [*leased, *came[:1]])
        found = [*found, *came]
        assert bridge.subscription.gauges()["buffered_bytes"] <= (1 << 20) + 2 * size
    assert [each.message.message_id for each in found] == ["first", *numbers(60)]
    await one.counted(0)


async def _few(held: Partition, size: int) -> bool:
    return held.window.count == (1 << 20) // (size + 2) and held.unacked.bytes > 0 and not held._discarding


async def test_settled_messages_are_not_delivered_again(one: Pool) -> None:
    await one.write(numbers(200))
    bridge = await one.bridge()
    found = await bridge.take(200)
    await bridge.settle(found[5::2])  # more at a time than a broker's channel takes without an answer
    await bridge.settle(found[:4])
    await bridge.settle(found[:1])  # once more
    await bridge.die()
    after = await one.bridge()
    assert bodies(await after.take(98)) == ["4", *(str(n) for n in range(6, 200, 2))]
    assert after.nothing_comes()


async def test_marks_are_for_nobody(one: Pool) -> None:
    await one.write_native(b"", marker("end of the set-up"))
    await one.write(["a"])
    await one.write_native(b"", marker("end of the set-up"))
    bridge = await one.bridge()
    found = await bridge.take(1)
    assert bodies(found) == ["a"]
    assert bridge.nothing_comes()
    await bridge.settle(found)
    await bridge.stop()
    await one.counted(0)


async def test_what_is_given_back_keeps_its_place(one: Pool) -> None:
    await one.write(numbers(10))
    bridge = await one.bridge()
    await bridge.settle((await bridge.take(6))[2:3])
    await bridge.stop()
    with pytest.raises(BackendUnavailable):
        await bridge.subscription.fetch(1, 1)
    await one.write(["new"])
    after = await one.bridge()
    assert bodies(await after.take(10)) == ["0", "1", "3", "4", "5", "6", "7", "8", "9", "new"]


async def test_a_share_that_moves_is_let_go_of(three: Pool) -> None:
    for partition in range(3):
        await three.write([f"{partition}{number}" for number in range(4)], partition)
    first = await three.bridge()
    found = await first.take(12)
    second = await three.bridge([])
    first.shares.move({0})
    second.shares.move({1, 2})
    came = await second.take(8)
    assert first.revoked == [[1, 2]]
    assert [bodies(came, partition) for partition in range(3)] == [[], *([f"{p}{n}" for n in range(4)] for p in (1, 2))]
    await first.settle([each for each in found if each.partition == 0])
    with pytest.raises(BackendUnavailable):
        await first.subscription.settle([each for each in found if each.partition], Outcome.SETTLED)
    assert first.subscription.gauges() == {"held_partitions": 1, "buffered_records": 0, "buffered_bytes": 0}
    first.shares.move({0, 1})
    second.shares.move({2})
    with pytest.raises(BackendUnavailable):
        await first.subscription.settle([each for each in found if each.partition == 1], Outcome.SETTLED)
    assert bodies(await first.take(4)) == [f"1{n}" for n in range(4)]


async def test_a_lost_connection_comes_back(three: Pool) -> None:
    await three.write(["a"], 0)
    await three.write(["b"], 2)
    bridge = await three.bridge()
    found = await bridge.take(2)
    waits = bridge.subscription.fetch(10, 1 << 20)
    bridge.cut()
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(waits, 60)
    assert bridge.revoked == [[0, 1, 2]]
    with pytest.raises(BackendUnavailable):
        await bridge.subscription.settle(found, Outcome.SETTLED)
    assert sorted(bodies(await bridge.take_again(2))) == ["a", "b"]


async def test_acknowledgements_are_unknown_that_a_lost_connection_leaves_open(one: Pool) -> None:
    await one.write(["a"])
    bridge = await one.bridge()
    found = await bridge.take(1)
    sent = bridge.subscription.settle(found, Outcome.SETTLED)
    bridge.cut()
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(sent, 60)
    assert bodies(await bridge.take_again(1)) == ["a"]


async def test_a_queue_that_is_deleted_is_made_again(three: Pool) -> None:
    await three.write(["a"], 1)
    bridge = await three.bridge()
    found = await bridge.take(1)
    waits = bridge.subscription.fetch(10, 1 << 20)
    await three.ask("queue_delete", queue=three.queue(1))
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(waits, 60)
    assert bridge.revoked == [[1]]
    await until(lambda: three.made == 2 and bridge.subscription._assigned.last_error is None)
    with pytest.raises(BackendUnavailable):
        await bridge.subscription.settle(found, Outcome.SETTLED)
    await three.write(["b"], 1)
    await three.write(["c"], 0)
    assert sorted(bodies(await bridge.take(2))) == ["b", "c"]


async def test_leases_outlive_a_channel_that_the_broker_closes(one: Pool) -> None:
    await one.write(numbers(6))
    bridge = await one.bridge()
    found = await bridge.lease(await bridge.take(3))
    await bridge.settle(found[1:2])
    consumer = bridge.subscription._assigned.partitions[0]._consumer
    assert consumer is not None
    consumer._channel.raw.basic_ack(1_000_000)  # an unknown tag
    await until(lambda: bridge.subscription._assigned.partitions[0]._consumer not in {None, consumer})
    await one.write(["new"])
    more = await bridge.take(4)
    assert [(each.message.body, each.attempts) for each in more] == [(b"3", 0), (b"4", 0), (b"5", 0), (b"new", 0)]
    assert not bridge.revoked
    await bridge.settle([found[0], *more])
    await bridge.noted({"2"})
    await bridge.die()
    after = await one.bridge()
    assert [(each.message.body, each.attempts) for each in await after.take(1)] == [(b"2", 1)]
    assert after.nothing_comes()


async def test_a_queue_that_was_there_before_is_shared_with_its_consumers(one: Pool) -> None:
    one.shared = True
    await one.ask("queue_delete", queue=one.queue())
    await one.make_sources()
    await one.write(numbers(4))
    first = await one.bridge(prefetch=2)
    second = await one.bridge(prefetch=2)
    assert first.shares.share is None, "nobody asked for a membership"
    found, others = await first.take(2), await second.take(2)
    assert sorted(bodies([*found, *others])) == numbers(4)
    assert all(each.attempts == 0 for each in (*found, *others))
    await first.lease(found)
    await second.settle(others)
    await first.die()
    assert [(each.message.body.decode(), each.attempts) for each in await second.take(2)] == [("0", 1), ("1", 1)]


async def test_the_leases_of_an_existing_queue_end_with_their_channel(one: Pool) -> None:
    """Another consumer has the message: an acknowledgement must not succeed."""
    one.shared = True
    await one.ask("queue_delete", queue=one.queue())
    await one.make_sources()
    await one.write(numbers(1))
    first, second = await one.bridge(), await one.bridge()
    found = await first.lease(await first.take(1))
    consumer, waiting = consumer_of(first), asyncio.create_task(second.take(1))
    assert consumer is not None
    consumer._channel.raw.basic_ack(999)  # RabbitMQ closes the channel of an unknown tag
    others = await waiting
    assert bodies(others) == bodies(found)
    await renewed(first, consumer)
    await one.write(["later"])
    assert bodies(await first.take_again(1)) == ["later"]
    assert first.revoked == [[0]]
    with pytest.raises(BackendUnavailable, match="no longer has the partition"):
        await first.settle(found)
    await second.settle(others)


async def test_a_history_is_read_first_and_nothing_twice(one: Pool) -> None:
    await late(one)
    bridge = await one.bridge()
    found = await bridge.take(6)
    assert bodies(found) == ["h0", "h1", "both", "mine", "after", "last"]
    await bridge.settle(found[1:])
    assert await there(one, one.history)
    await bridge.settle(found[:1])
    await until_gone(one, one.history)
    await one.write(["h1", "new"])  # the same id again is another message now
    assert bodies(await bridge.take(2)) == ["h1", "new"]


async def test_a_history_goes_on_where_a_bridge_died(one: Pool) -> None:
    await late(one)
    bridge = await one.bridge()
    found = await bridge.lease(await bridge.take(6))
    await bridge.settle([found[0], found[2], found[4]])
    await bridge.lease(found[5:])
    await bridge.noted({"h1", "mine", "last"})
    await bridge.die()
    after = await one.bridge()
    rest = await after.take(3)
    assert [(each.message.body, each.attempts) for each in rest] == [(b"h1", 1), (b"mine", 1), (b"last", 2)]
    await after.settle(rest)
    await until_gone(one, one.history)
    await after.stop()
    await one.counted(0)


async def late(here: Pool) -> None:
    """Make the queues of a group that was created late: a history, and a queue with the mark of the set-up."""
    await here.make_history()
    await here.write(["h0", "h1", "both"], queue=here.history)
    await here.publisher.send(Outgoing("", here.history, marker(END), b""))
    await here.write_native(b"", marker("end of the set-up"))
    await here.write(["mine", "after", "last"])


async def there(here: Pool, queue: str) -> bool:
    try:
        await here.ask("queue_declare", queue=queue, passive=True)
    except DestinationUnknown:
        return False
    return True


async def until_gone(here: Pool, queue: str) -> None:
    async def gone() -> bool:
        return not await there(here, queue)

    await eventually(gone)


async def _waits(bridge: Bridge, waiting: Callable[[], int]) -> list[Delivery]:
    """Fetch everything, as an engine in which so many of the messages of partition 0 wait."""
    bridge.subscription.count_waiting_by(lambda: {0: waiting()})
    found: list[Delivery] = []
    while not any(each.message.message_id == "last" for each in found):
        found += await bridge.fetch(1000)
    return found


async def test_messages_that_wait_in_the_engine_do_not_count_in_the_prefetch(one: Pool) -> None:
    """Another consumer of the channel gets more beside them; the next bridge gets all of them in their order."""
    await one.write([*numbers(300), "last"])
    bridge = await one.bridge(prefetch=10)
    found = await _waits(bridge, lambda: len(bridge.open))
    assert bodies(found) == [*numbers(300), "last"]
    await bridge.lease(found[:1])
    await bridge.settle(found[5:9])
    await one.write(["new"])
    assert bodies(await bridge.fetch()) == ["new"]
    left = [*numbers(5), *numbers(291, 9), "last", "new"]
    for end in ("stop", "die", "stop"):
        await (bridge.stop() if end == "stop" else bridge.die())
        bridge = await one.bridge(prefetch=10)
        [first] = await bridge.take_again(1)
        assert bodies([first]) == left[:1]
        await bridge.settle([first])
        del left[0]
        held = bridge.subscription._assigned.partitions[0].unacked
        await until(lambda held=held: len(held.unacknowledged) >= len(left))  # type: ignore[misc] # bound now
    bridge.subscription.count_waiting_by(lambda: {0: len(bridge.open)})
    assert bodies(await bridge.take(len(left))) == left


async def test_leases_do_count_in_the_prefetch(one: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "_REVIEW", 0.01)
    await one.write(numbers(30))
    bridge = await one.bridge(prefetch=10)
    asked = 0

    def waiting() -> dict[int, int]:
        nonlocal asked
        asked += 1
        return {}

    bridge.subscription.count_waiting_by(waiting)
    await bridge.take(10)
    pending = bridge.subscription.fetch(1, 1)
    await until(lambda: asked > 5)
    assert not pending.done()
    await one.counted(20)


async def test_what_is_fetched_again_comes_in_order_to_the_next_bridge(one: Pool) -> None:
    """Also of a history, which ends meanwhile, while acknowledgements are under way."""
    await one.make_history()
    await one.write(numbers(60), queue=one.history)
    await one.publisher.send(Outgoing("", one.history, marker(END), b""))
    await one.write(numbers(60, 60))
    bridge = await one.bridge(prefetch=20)
    bridge.subscription.count_waiting_by(lambda: {0: len(bridge.open)})
    found = await bridge.take(120)
    assert bodies(found) == numbers(120)
    leased = await bridge.lease(found[:1])
    for some in (found[50:70], found[:3], found[100:]):
        dropped = [each._replace(message=Message("")) for each in some]
        settling = asyncio.ensure_future(bridge.settle(found[30:35]))
        async with asyncio.timeout(60):
            again = await bridge.subscription.fetch_again(dropped)
        assert sorted(again, key=lambda each: each.position) == some
        await settling
    await bridge.settle(leased)
    await bridge.stop()
    bridge = await one.bridge(prefetch=20)
    bridge.subscription.count_waiting_by(lambda: {0: len(bridge.open)})
    left = [*numbers(29, 1), *numbers(85, 35)]
    assert bodies(await bridge.take_again(len(left))) == left


@pytest.mark.parametrize("new", [["new"], []], ids=["a new message comes", "none comes"])
async def test_messages_that_are_purged_while_they_are_parked_are_not_fetched_again(
    one: Pool, monkeypatch: pytest.MonkeyPatch, new: list[str]
) -> None:
    await one.write(numbers(10))
    bridge = await one.bridge()
    found = await bridge.take(10)
    await bridge.settle(found[3:])
    partition = bridge.subscription._assigned.partitions[0]
    consume = partition._open

    async def purge_and_consume() -> None:
        await one.counted(3)
        await one.ask("queue_purge", queue=one.queue())
        await one.write(new)
        await consume()

    monkeypatch.setattr(partition, "_open", purge_and_consume)
    async with asyncio.timeout(60):
        assert await bridge.subscription.fetch_again(found[:3]) == []
    await bridge.settle(found[:3])
    assert bodies(await bridge.take_again(len(new))) == new


async def test_no_acknowledgement_is_sent_just_before_the_channel_closes(
    one: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome would be unknown, and RabbitMQ would not deliver the message again."""
    await one.write(numbers(3))
    bridge = await one.bridge()
    found = await bridge.take(3)
    partition = bridge.subscription._assigned.partitions[0]
    settling, close = [], partition._close_channel

    async def settle_and_close() -> None:
        settling.append(asyncio.ensure_future(bridge.settle(found[:1])))
        for _ in range(3):
            await asyncio.sleep(0)
        await close()

    monkeypatch.setattr(partition, "_close_channel", settle_and_close)
    async with asyncio.timeout(60):
        assert len(await bridge.subscription.fetch_again(found[1:])) == 2
    await asyncio.gather(*settling)


async def test_an_acknowledgement_whose_confirmation_was_lost_is_completed_without_a_new_message(
    one: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ has removed the message, and does not deliver it again."""
    await one.write(numbers(3))
    bridge = await one.bridge()
    found = await bridge.take(3)
    partition = bridge.subscription._assigned.partitions[0]
    consumer = partition._consumer
    assert consumer is not None
    monkeypatch.setattr(consumer, "ack", lambda acks, _confirmed, ack=consumer.ack: ack(acks, lambda: None))
    lost = bridge.subscription.settle(found[:1], Outcome.SETTLED)
    async with asyncio.timeout(60):
        assert len(await bridge.subscription.fetch_again(found[1:])) == 2
    with pytest.raises(OutcomeUnknown):
        await lost
    await bridge.settle(found[:1])
    await bridge.settle(found)


async def test_losing_the_partition_ends_a_fetch_of_parked_messages(one: Pool) -> None:
    await one.write(numbers(3))
    bridge = await one.bridge()
    found = await bridge.take(3)
    again = bridge.subscription.fetch_again(found)
    bridge.cut()
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(again, 60)
    assert bodies(await bridge.take_again(3)) == numbers(3)
    await bridge.subscription.close()
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(bridge.subscription.fetch_again(found), 60)
