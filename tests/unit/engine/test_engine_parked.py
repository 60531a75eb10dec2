"""Messages that wait for their key, or for a time, do not keep others out of a full prefetch buffer."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from adapters.base import Delivery, Outcome
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.parked_fetcher import PARKED_MAX
from bridge.errors import BackendUnavailable
from tests.unit.engine.fakes import FakeSubscription, delivery
from tests.unit.engine.group_bench import GroupBench
from tests.unit.engine.virtual import LoopClock, turns

DAY = 86_400_000
PREFETCH = 20


def hot(count: int, partition: int = 0) -> list[Delivery]:
    return [delivery(number, partition=partition, message_key="hot") for number in range(count)]


def cold(first: int, count: int = 10) -> list[Delivery]:
    return [delivery(number, message_key=f"cold {number}") for number in range(first, first + count)]


async def settled(bench: GroupBench, count: int) -> list[int]:
    """Pull and settle so many messages one after the other; return their positions."""
    positions = []
    for _ in range(count):
        entry = await bench.got(wait=10_000)
        positions.append(entry.delivery.position)
        assert entry.message.body == b"%d" % entry.delivery.position
        await bench.group.settle([entry])
    return positions


async def nothing(bench: GroupBench) -> None:
    assert await bench.pull(wait=100) is None


@pytest.mark.parametrize(
    "block",
    [
        lambda bench, entry: bench.group.release(entry, DAY),
        lambda bench, entry: bench.group.extend(entry, DAY),
        lambda bench, entry: bench.group.defer(entry, DAY),
    ],
    ids=["nacked", "leased", "deferred"],
)
async def test_followers_of_a_blocked_key_do_not_keep_other_keys_out(
    clock: LoopClock, block: Callable[[GroupBench, Entry], None]
) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count), *cold(count), prefetch=PREFETCH)
    first = await bench.got()
    assert first.delivery.position == 0
    block(bench, first)
    assert await settled(bench, 10) == list(range(count, count + 10))
    assert bench.group.buffer.size <= PREFETCH
    assert bench.group.buffer.parked > 0


async def test_they_come_in_order_once_the_key_goes_on(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count), *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), 60_000)
    await settled(bench, 10)
    bench.subscription.give(*(delivery(n, message_key="hot") for n in range(count + 10, count + 15)))
    await asyncio.sleep(61)
    assert await settled(bench, count + 5) == [*range(count), *range(count + 10, count + 15)]
    buffer = bench.group.buffer
    assert (buffer.size, buffer.bytes, buffer.parked, buffer.missing) == (0, 0, 0, 0)


async def test_a_buffer_that_is_full_of_bytes_makes_space(clock: LoopClock) -> None:
    large = [each._replace(message=each.message._replace(body=bytes(1000))) for each in hot(50)]
    bench = GroupBench(clock, *large, *cold(50), prefetch_bytes=10_000)
    bench.group.release(await bench.got(), 60_000)
    assert await settled(bench, 10) == list(range(50, 60))
    assert bench.group.buffer.bytes <= 11_000
    await asyncio.sleep(61)
    for number in range(50):
        entry = await bench.got(wait=10_000)
        assert (entry.delivery.position, len(entry.message.body)) == (number, 1000)
        await bench.group.settle([entry])
        assert bench.group.buffer.bytes <= 11_000


async def test_many_blocked_keys_with_few_followers_each(clock: LoopClock) -> None:
    blocked = [delivery(2 * n + m, message_key=f"hot {n}") for n in range(3 * PREFETCH) for m in (0, 1)]
    bench = GroupBench(clock, *blocked, *cold(len(blocked)), prefetch=PREFETCH)
    for n in range(3 * PREFETCH):
        entry = await bench.got(wait=5000)
        assert entry.delivery.position == 2 * n
        bench.group.release(entry, 60_000)
    assert await settled(bench, 10) == list(range(len(blocked), len(blocked) + 10))
    await asyncio.sleep(61)
    positions = await settled(bench, len(blocked))
    assert sorted(positions) == list(range(len(blocked)))
    assert all(positions.index(n) < positions.index(n + 1) for n in range(0, len(blocked), 2))


async def test_messages_without_a_key_that_are_paused(clock: LoopClock) -> None:
    bench = GroupBench(clock, *map(delivery, range(5 * PREFETCH)), prefetch=PREFETCH)
    for n in range(4 * PREFETCH):
        entry = await bench.got(wait=1000)
        assert entry.delivery.position == n
        bench.group.release(entry, 60_000)
    assert await settled(bench, PREFETCH) == list(range(4 * PREFETCH, 5 * PREFETCH))
    assert bench.group.buffer.paused == 4 * PREFETCH
    await asyncio.sleep(61)
    assert sorted(await settled(bench, 4 * PREFETCH)) == list(range(4 * PREFETCH))


async def test_messages_that_fetch_returned_before_they_are_due(clock: LoopClock) -> None:
    early = [delivery(n, born_timestamp=clock.wall(), delay_time=60_000) for n in range(3 * PREFETCH)]
    bench = GroupBench(clock, *early, *cold(len(early)), prefetch=PREFETCH)
    assert await settled(bench, 10) == list(range(len(early), len(early) + 10))
    await asyncio.sleep(61)
    assert sorted(await settled(bench, len(early))) == list(range(len(early)))


async def test_the_attempts_of_parked_messages_are_kept(clock: LoopClock) -> None:
    bench = GroupBench(clock, *map(delivery, range(3 * PREFETCH)), prefetch=PREFETCH)
    for _ in range(2 * PREFETCH):
        bench.group.release(await bench.got(wait=1000), 60_000)
    await settled(bench, PREFETCH)
    await asyncio.sleep(61)
    entry = await bench.got(wait=1000)
    assert entry.message.delivery_count == 2


async def test_a_parked_message_that_was_delivered_too_often_becomes_a_dead_letter(clock: LoopClock) -> None:
    bench = GroupBench(clock, *map(delivery, range(3 * PREFETCH)), prefetch=PREFETCH, limit=1)
    for _ in range(2 * PREFETCH):
        bench.group.release(await bench.got(wait=1000), 60_000)
    await settled(bench, PREFETCH)
    await asyncio.sleep(61)
    await nothing(bench)
    assert sorted(bench.dead_letters) == list(range(2 * PREFETCH))


async def test_a_parked_message_that_has_expired_is_dropped(clock: LoopClock) -> None:
    expires = clock.wall() + 30_000
    count = 5 * PREFETCH
    first, *followers = hot(count)
    followers = [
        each._replace(message=each.message._replace(expire_time=expires)) if each.position < count - 1 else each
        for each in followers
    ]
    bench = GroupBench(clock, first, *followers, *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), 60_000)
    await settled(bench, 10)
    await asyncio.sleep(61)
    assert await settled(bench, 2) == [0, count - 1]
    assert bench.counters.expired == count - 2
    assert sorted(bench.subscription.reported(Outcome.SETTLED)) == list(range(count + 10))


async def test_a_message_that_the_backend_has_not_kept_does_not_block_its_key(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count), *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), 60_000)
    await settled(bench, 10)
    parked = [e.delivery.position for e in bench.group.buffer._key_queues[0, "hot"] or () if e.parked]
    for position in parked[::2]:
        del bench.subscription.given[0, position]
    await asyncio.sleep(61)
    expected = [n for n in range(count) if n not in parked[::2]]
    assert await settled(bench, len(expected)) == expected
    assert set(parked[::2]) <= set(bench.subscription.reported(Outcome.SETTLED))
    assert bench.group.buffer.parked == 0


async def test_a_backend_that_fails_is_asked_again(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count), *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), 60_000)
    await settled(bench, 10)
    bench.subscription.fetch_again_failures = [BackendUnavailable("away") for _ in range(3)]
    await asyncio.sleep(61)
    assert await settled(bench, count) == list(range(count))


async def test_closing_releases_parked_messages_with_their_attempts(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count, partition=1), *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), DAY)
    await settled(bench, 10)
    await bench.group.close()
    [(_, released)] = [given for given in bench.subscription.outcomes if given[0] is Outcome.RELEASED]
    assert [(each.position, each.attempts) for each in released] == [(0, 1), *((n, 0) for n in range(1, count))]


async def test_revoking_a_partition_removes_its_parked_messages(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    bench = GroupBench(clock, *hot(count, partition=1), *cold(count), prefetch=PREFETCH)
    bench.group.release(await bench.got(), 5_000)
    await settled(bench, 10)
    await asyncio.sleep(4.9)
    released = bench.group.revoke([1])
    assert [each.position for each in released] == list(range(count))
    buffer = bench.group.buffer
    assert (buffer.size, buffer.bytes, buffer.parked, buffer.missing) == (0, 0, 0, 0)


class SlowSubscription(FakeSubscription):
    """Messages are fetched again when the test says so."""

    results: list[Callable[[], None]]

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        found = super().fetch_again(deliveries)
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        self.results = [lambda: future.set_result(found.result())]
        return future


async def test_a_partition_that_is_revoked_while_its_messages_are_fetched_again(clock: LoopClock) -> None:
    count = 5 * PREFETCH
    backlog = (*hot(count, partition=1), *cold(count))
    bench = GroupBench(clock, *backlog, prefetch=PREFETCH, subscription=SlowSubscription)
    bench.group.release(await bench.got(), 60_000)
    await settled(bench, 10)
    await asyncio.sleep(61)
    buffer = bench.group.buffer
    while not buffer.requested:
        await settled(bench, 1)
        await turns()
    bench.group.revoke([1])
    bench.subscription.given.clear()
    bench.subscription.give(*(delivery(n, partition=1, message_key="hot") for n in range(50, 60)))
    assert isinstance(bench.subscription, SlowSubscription)
    bench.subscription.results[0]()
    assert await settled(bench, 10) == list(range(50, 60))
    assert (buffer.size, buffer.bytes, buffer.parked, buffer.missing) == (0, 0, 0, 0)
    assert not buffer.requested


async def test_the_number_of_parked_messages_is_bounded(clock: LoopClock) -> None:
    count = 2 * PARKED_MAX
    bench = GroupBench(clock, *hot(count), *cold(count), prefetch=1)
    bench.group.release(await bench.got(), 60_000)
    assert await bench.pull(wait=5000) is None
    assert bench.group.buffer.parked == PARKED_MAX
    await asyncio.sleep(60)
    assert await settled(bench, count + 10) == list(range(count + 10))


async def test_a_key_with_fast_consumers_is_fetched_once(clock: LoopClock) -> None:
    bench = GroupBench(clock, *hot(5 * PREFETCH), prefetch=PREFETCH)
    waiting = bench.waiting()  # a second consumer
    await turns()
    for _ in range(5 * PREFETCH - 1):
        entry = await waiting
        assert entry is not None
        waiting = bench.waiting()
        await asyncio.sleep(0.005)
        await bench.group.settle([entry])
    assert bench.subscription.fetched_again == []
