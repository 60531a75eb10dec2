import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.base import Delivery, Outcome
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.engine.push_consumer import (
    BATCH,
    BATCH_BYTES,
    CREDIT,
    CREDIT_MAX,
    CREDIT_PERIOD,
    ConsumerOptions,
    Leased,
    PushConsumer,
)
from bridge.errors import BackendUnavailable, Draining, LeaseEnded, OutcomeUnknown, TooManyInFlight
from tests.calls import settled
from tests.unit.engine.fakes import FakeAdapter, FakeSubscription, delivery
from tests.unit.engine.virtual import LoopClock, turns

APP = SubscriptionKey("orders", "app")
LEASE = 30_000
LONG_AFTER = 30 * LEASE
A_DAY = 86_400


class ConsumerBench:
    """An engine whose one group has a backlog, and the time that has passed."""

    def __init__(self, clock: LoopClock, *backlog: Delivery, **options: object) -> None:
        self.clock = clock
        self.adapter = FakeAdapter()
        self.adapter.backlogs["orders", "app"] = list(backlog)
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080")._replace(**options))  # type: ignore[arg-type]
        # not started: the task that closes idle groups would let time pass without end
        self.engine.not_ready_reason = None
        self._begun = clock.mono()
        task = asyncio.current_task()
        assert task is not None
        self.guard = asyncio.get_running_loop().call_later(A_DAY, task.cancel)
        """Ends a test that hangs: leases are extended without end, so the virtual time never runs out."""

    @property
    def passed(self) -> int:
        return self.clock.mono() - self._begun

    @property
    def subscription(self) -> FakeSubscription:
        return self.adapter.of()

    async def consume(self, **options: object) -> PushConsumer:
        return await self.engine.consume(APP, ConsumerOptions(LEASE)._replace(**options))  # type: ignore[arg-type]

    async def pull(self, wait: int = 0) -> tuple[bytes, int | None] | None:
        pulled = await settled(self.engine.pull(APP, PullRequest(LEASE, wait), ack=True))
        return None if pulled is None else (pulled.message.body, pulled.message.delivery_count)

    async def ack(self, *leased: Leased) -> None:
        await self.engine.leases.ack([receipt(each) for each in leased], APP)

    def nack(self, leased: Leased, delay: int = 0) -> None:
        self.engine.leases.nack([receipt(leased)], delay, APP)

    def reported(self, outcome: Outcome) -> list[int]:
        return self.subscription.reported(outcome)


def receipt(leased: Leased) -> str:
    assert leased.receipt is not None
    return leased.receipt


def positions(taken: list[Leased]) -> list[int]:
    return [int(each.message.body) for each in taken]


async def is_waiting(task: "asyncio.Task[object]") -> bool:
    """Return whether a task is still waiting after 30 leases."""
    return task not in (await asyncio.wait((task,), timeout=LONG_AFTER / 1000))[0]


def backlog(count: int, **fields: object) -> list[Delivery]:
    return [delivery(i, **fields) for i in range(count)]  # type: ignore[arg-type]


@pytest.fixture
async def waiting() -> AsyncIterator[list["asyncio.Task[object]"]]:
    """Tasks that the test leaves waiting."""
    tasks: list[asyncio.Task[object]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Credit


async def test_no_more_messages_are_taken_than_there_is_credit(
    clock: LoopClock, waiting: list["asyncio.Task[object]"]
) -> None:
    bench = ConsumerBench(clock, *backlog(5))
    consumer = await bench.consume(credit=3)
    assert positions(await consumer.take()) == [0, 1, 2]
    assert len(consumer._leased) == 3
    waiting.append(more := asyncio.ensure_future(consumer.take()))
    assert await is_waiting(more)
    assert await bench.pull() == (b"3", 1)


@pytest.mark.parametrize("how", ["ack", "nack", "consumer's ack", "consumer's nack", "put off"])
async def test_each_message_that_is_settled_frees_its_place(clock: LoopClock, how: str) -> None:
    bench = ConsumerBench(clock, *backlog(5))
    consumer = await bench.consume(credit=2)
    first, _ = await consumer.take()
    more = asyncio.ensure_future(consumer.take())
    await turns()
    assert not more.done()
    if how == "ack":
        await bench.ack(first)
    elif how == "nack":
        bench.nack(first, 1000)
    elif how == "consumer's ack":
        await consumer.ack(first)
    elif how == "consumer's nack":
        consumer.nack(first, 1000)
    else:
        consumer.defer(first, 1000)
    assert positions(await more) == [2]
    assert (len(consumer._leased), bench.passed) == (2, 0)


@pytest.mark.parametrize(("settled", "credit"), [(0, CREDIT), (3, CREDIT), (256, 256), (1984, CREDIT_MAX)])
async def test_without_a_number_the_credit_is_what_was_settled_in_the_last_period(
    clock: LoopClock, waiting: list["asyncio.Task[object]"], settled: int, credit: int
) -> None:
    bench = ConsumerBench(clock, *backlog(4000), prefetch=4000)
    consumer = await bench.consume()
    for count in range(0, settled, BATCH):
        await consumer.ack(*(await consumer.take())[: settled - count])
    await asyncio.sleep(CREDIT_PERIOD / 1000)
    assert await credit_of(consumer, waiting) == credit
    await asyncio.sleep(CREDIT_PERIOD / 1000)
    assert consumer._own_credit() == CREDIT  # as soon as it settles few


async def credit_of(consumer: PushConsumer, waiting: list["asyncio.Task[object]"]) -> int:
    """Return how many messages a consumer has taken when it waits."""
    while True:
        more = asyncio.ensure_future(consumer.take())
        await turns()
        if not more.done():
            waiting.append(more)
            return len(consumer._leased)


async def test_a_batch_ends_where_the_credit_in_bytes_does(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *[delivery(i, body=b"%d" % i * 100) for i in range(9)])
    consumer = await bench.consume(credit_bytes=250)
    first = await consumer.take()
    assert len(first) == 3, "as many as begin within it"
    more = asyncio.ensure_future(consumer.take())
    await turns()
    assert not more.done()
    await bench.ack(*first[:2])
    assert len(await more) == 2


async def test_one_message_is_taken_however_large_it_is(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, delivery(0, body=b"x" * 1000), delivery(1))
    consumer = await bench.consume(credit_bytes=10)
    (large,) = await consumer.take()
    more = asyncio.ensure_future(consumer.take())
    await turns()
    assert not more.done()
    await bench.ack(large)
    assert positions(await more) == [1]


@pytest.mark.parametrize("ack", [True, False])
async def test_a_batch_is_bounded_in_messages_and_in_bytes(clock: LoopClock, ack: bool) -> None:
    bench = ConsumerBench(clock, *backlog(BATCH + 6))
    consumer = await bench.consume(credit=1000, ack=ack)
    assert len(await consumer.take()) == BATCH
    assert len(await consumer.take()) == 6
    heavy = ConsumerBench(clock, *[delivery(i, body=b"x" * (BATCH_BYTES // 2)) for i in range(5)])
    consumer = await heavy.consume(credit=1000, credit_bytes=BATCH_BYTES * 9, ack=ack)
    assert [len(await consumer.take()) for _ in range(3)] == [2, 2, 1]


async def test_a_message_that_wakes_a_consumer_brings_those_behind_it(clock: LoopClock) -> None:
    bench = ConsumerBench(clock)
    consumer = await bench.consume(credit=3)
    woken = asyncio.ensure_future(consumer.take())
    await turns()
    bench.subscription.give(*backlog(5))
    assert positions(await woken) == [0, 1, 2]


# How it ends


@pytest.mark.parametrize("ack", [True, False])
async def test_no_more_than_its_limit_is_ever_taken(clock: LoopClock, ack: bool) -> None:
    bench = ConsumerBench(clock, *backlog(200))
    consumer = await bench.consume(limit=70, credit=1000, ack=ack)
    assert [len(await consumer.take()) for _ in range(3)] == [64, 6, 0]
    assert consumer.end_reason == "maxmessages"
    assert await consumer.take() == []


async def test_a_message_that_comes_back_counts_again(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume(limit=2)
    for count in (1, 2):
        (leased,) = await consumer.take()
        assert leased.message.delivery_count == count
        bench.nack(leased)
    assert await consumer.take() == []


async def test_silence_ends_it_and_each_message_breaks_the_silence(clock: LoopClock) -> None:
    bench = ConsumerBench(clock)
    consumer = await bench.consume(silence=1000)
    silent = asyncio.ensure_future(consumer.take())
    await asyncio.sleep(0.9)
    bench.subscription.give(delivery(0))
    assert positions(await silent) == [0]
    assert bench.passed == 900
    assert await consumer.take() == []
    assert (bench.passed, consumer.end_reason) == (1900, "waitmills")


async def test_no_silence_at_all_ends_it_when_nothing_is_at_hand(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(2))
    consumer = await bench.consume(silence=0)
    assert positions(await consumer.take()) == [0, 1]
    assert await consumer.take() == []
    assert (bench.passed, consumer.end_reason) == (0, "waitmills")


async def test_silence_counts_only_while_there_is_credit(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume(silence=1000, credit=1)
    (leased,) = await consumer.take()
    silent = asyncio.ensure_future(consumer.take())
    assert await is_waiting(silent)
    await bench.ack(leased)
    assert await silent == []
    assert bench.passed == LONG_AFTER + 1000


async def test_settling_up_ends_with_the_last_acknowledgement(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(2))
    consumer = await bench.consume(limit=2)
    first, second = await consumer.take()
    settled = asyncio.ensure_future(consumer.settle_up())
    await asyncio.sleep(1)
    await bench.ack(first)
    await turns()
    assert not settled.done()
    await bench.ack(second)
    await settled
    assert bench.passed == 1000
    assert bench.reported(Outcome.SETTLED) == [0, 1]


async def test_settling_up_gives_each_lease_its_whole_time_once_more(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume(limit=1)
    await consumer.take()
    await asyncio.sleep(2.5 * LEASE / 1000)
    assert len(consumer._leased) == 1
    await consumer.settle_up()
    assert (bench.passed, len(consumer._leased)) == (3.5 * LEASE, 0)
    assert await bench.pull() == (b"0", 2)


async def test_settling_up_cuts_no_lease_that_its_client_has_extended(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume(limit=1)
    (leased,) = await consumer.take()
    bench.engine.leases.extend([leased.receipt or ""], 5 * LEASE, None)
    await consumer.settle_up()
    assert bench.passed == 5 * LEASE


async def test_settling_up_takes_no_time_when_nothing_is_held(clock: LoopClock) -> None:
    bench = ConsumerBench(clock)
    consumer = await bench.consume(silence=0)
    assert await consumer.take() == []
    await consumer.settle_up()
    assert bench.passed == 0


# Leases


async def test_leases_are_renewed_for_as_long_as_it_lives(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    consumer = await bench.consume()
    first, *_ = await consumer.take()
    for _ in range(10):
        await asyncio.sleep(LEASE / 1000 - 0.001)
        assert await bench.pull() is None
        await asyncio.sleep(0.001)
        assert await bench.pull() is None
    await bench.ack(first)
    consumer.close()
    assert [await bench.pull() for _ in range(3)] == [(b"1", 2), (b"2", 2), None]
    assert bench.engine.counters.leases_ended == 0


async def test_a_lease_that_its_client_extends_lasts_as_long_as_that_and_is_renewed_then(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume()
    (leased,) = await consumer.take()
    bench.engine.leases.extend([receipt(leased)], 5 * LEASE, APP)
    ends = consumer._leased[leased.number].deadline
    assert ends == clock.mono() + 5 * LEASE
    await asyncio.sleep(5.5 * LEASE / 1000)
    assert consumer._leased[leased.number].deadline == ends + LEASE
    await bench.ack(leased)
    assert len(consumer._leased) == 0


async def test_a_lease_says_when_it_would_end_without_being_renewed(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    (leased,) = await (await bench.consume()).take()
    assert leased.lease_until == clock.wall() + LEASE


async def test_an_idle_consumer_needs_no_timer(clock: LoopClock, waiting: list["asyncio.Task[object]"]) -> None:
    """The loop of these tests raises when something waits and no timer is set."""
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume()
    await bench.ack(*await consumer.take())
    await asyncio.sleep(LEASE / 1000)
    waiting.append(asyncio.ensure_future(consumer.take()))
    await turns()
    loop = asyncio.get_running_loop()
    assert [each for each in loop._scheduled if not each.cancelled()] == [bench.guard]  # type: ignore[attr-defined]


# What it gives back


async def test_closing_releases_everything_at_once_and_that_counts(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    consumer = await bench.consume()
    await consumer.take()
    consumer.close()
    consumer.close()
    assert [await bench.pull() for _ in range(4)] == [(b"0", 2), (b"1", 2), (b"2", 2), None]
    assert (bench.passed, len(consumer._leased)) == (0, 0)


async def test_a_released_message_wakes_a_waiting_pull(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer, other = await bench.consume(), await bench.consume()
    await consumer.take()
    heir = asyncio.ensure_future(other.take())
    await turns()
    consumer.close()
    (leased,) = await heir
    assert (leased.message.delivery_count, bench.passed) == (2, 0)


async def test_an_acknowledgement_under_way_is_not_given_back(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(2))
    consumer = await bench.consume()
    first, _ = await consumer.take()
    bench.subscription.slow = True
    acking = asyncio.ensure_future(bench.ack(first))
    await turns()
    consumer.close()
    assert await bench.pull() == (b"1", 2)
    bench.subscription.confirm()
    await acking
    assert await bench.pull() is None


async def test_an_acknowledgement_under_way_that_fails_after_the_close_gives_its_message_back(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume()
    (leased,) = await consumer.take()
    bench.subscription.slow = True
    acking = asyncio.ensure_future(bench.ack(leased))
    await turns()
    consumer.close()
    bench.subscription.unconfirmed[0].set_exception(BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable):
        await acking
    assert await bench.pull(wait=2 * LEASE) == (b"0", 2)


async def test_the_order_of_a_key_outlives_its_consumer(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3, message_key="k"))
    consumer = await bench.consume()
    assert positions(await consumer.take()) == [0]
    consumer.close()
    other = await bench.consume()
    for position, count in ((0, 2), (1, 1), (2, 1)):
        (leased,) = await other.take()
        assert (int(leased.message.body), leased.message.delivery_count) == (position, count)
        await bench.ack(leased)


async def test_an_ack_of_a_released_message_settles_nothing(clock: LoopClock) -> None:
    """The entry may be another consumer's by now, or no consumer's: then it would stay marked as settling."""
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume()
    (leased,) = await consumer.take()
    consumer.nack(leased, 0)
    with pytest.raises(LeaseEnded):
        await consumer.ack(leased)
    (again,) = await consumer.take()
    with pytest.raises(LeaseEnded):
        await consumer.ack(leased)
    consumer.nack(leased, 0)
    consumer.defer(leased, 0)
    assert len(consumer._leased) == 1
    await consumer.ack(again)
    await consumer.ack(again)
    assert bench.reported(Outcome.SETTLED) == [0]


async def test_a_deferred_message_waits_and_does_not_count(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume()
    (leased,) = await consumer.take()
    consumer.defer(leased, 5000)
    (again,) = await consumer.take()
    assert (again.message.delivery_count, bench.passed) == (1, 5000)


async def test_messages_delivered_too_often_are_dead_lettered_after_any_release(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, delivery(0), max_deliveries=3)
    for count in (1, 2, 3):
        consumer = await bench.consume()
        (leased,) = await consumer.take()
        assert leased.message.delivery_count == count
        consumer.close()
    assert await bench.pull() is None
    await turns()
    assert [message.destination for message in bench.adapter.published] == ["orders.dlq"]


# Cancelling


async def test_cancelling_in_every_turn_of_the_loop_loses_and_counts_nothing(clock: LoopClock) -> None:
    outcomes = set()
    for turn in range(12):
        bench = ConsumerBench(clock)
        consumer = await bench.consume()
        taking = asyncio.ensure_future(consumer.take())
        await asyncio.sleep(0)
        bench.subscription.give(*backlog(3))
        await turns(turn)
        cancelled = taking.cancel()
        await turns()
        outcomes.add(cancelled)
        if not cancelled:
            assert positions(taking.result()) == [0, 1, 2]
        else:
            assert len(consumer._leased) == 0
            assert positions(await consumer.take()) == [0, 1, 2]
            assert {each.attempts for each in consumer._leased.values()} == {1}
        assert bench.engine.counters.waiting_pulls == 0
    assert outcomes == {True, False}


async def test_cancelling_while_credit_is_awaited_loses_nothing(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(2))
    consumer = await bench.consume(credit=1)
    (leased,) = await consumer.take()
    taking = asyncio.ensure_future(consumer.take())
    await turns()
    taking.cancel()
    await turns()
    await bench.ack(leased)
    assert positions(await consumer.take()) == [1]


# At most once


async def test_without_ack_messages_are_settled_before_they_are_taken(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    consumer = await bench.consume(ack=False)
    bench.subscription.slow = True
    taking = asyncio.ensure_future(consumer.take())
    await turns()
    assert not taking.done()
    assert bench.reported(Outcome.SETTLED) == [0, 1, 2]
    bench.subscription.confirm()
    found = await taking
    assert [(each.receipt, each.lease_until, each.message.delivery_count) for each in found] == [(None, 0, 1)] * 3
    assert len(consumer._leased) == 0
    consumer.close()
    assert await bench.pull() is None


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("late")])
async def test_what_could_not_be_settled_is_neither_taken_nor_lost_nor_counted(
    clock: LoopClock, error: BackendUnavailable | OutcomeUnknown
) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    consumer = await bench.consume(ack=False)
    bench.subscription.settle_failures = [error]
    with pytest.raises(type(error)):
        await consumer.take()
    assert [(int(e.message.body), e.message.delivery_count) for e in await consumer.take()] == [(0, 1), (1, 1), (2, 1)]


async def test_a_consumer_that_leaves_while_its_messages_are_settled_does_not_lose_them(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    consumer = await bench.consume(ack=False)
    bench.subscription.slow = True
    taking = asyncio.ensure_future(consumer.take())
    await turns()
    taking.cancel()
    await turns()
    consumer.close()
    assert [await bench.pull() for _ in range(3)] == [(b"0", 1), (b"1", 1), (b"2", 1)]


async def test_without_ack_the_order_of_a_key_holds(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3, message_key="k"))
    consumer = await bench.consume(ack=False)
    assert [positions(await consumer.take()) for _ in range(3)] == [[0], [1], [2]]


# The end of the bridge


async def test_a_drain_ends_the_waiting_and_counts_nothing(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(3))
    idle, full = await bench.consume(credit=9), await bench.consume(credit=3)
    held = await full.take()
    tasks = [asyncio.ensure_future(each.take()) for each in (idle, full)]
    await turns()
    bench.engine.drain()
    assert await asyncio.gather(*tasks) == [[], []]
    assert [each.end_reason for each in (idle, full)] == ["draining"] * 2
    await asyncio.sleep(3 * LEASE / 1000)
    await bench.ack(held[1])
    for each in (idle, full):
        await each.settle_up()
        each.close()
    with pytest.raises(Draining):
        await bench.consume()
    assert bench.reported(Outcome.RELEASED) == []
    await bench.engine.close()
    ((_, given_back),) = [outcome for outcome in bench.subscription.outcomes if outcome[0] is Outcome.RELEASED]
    assert [(each.position, each.attempts) for each in given_back] == [(0, 0), (2, 0)]


async def test_a_drain_ends_the_settling_up(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(1))
    consumer = await bench.consume(limit=1)
    await consumer.take()
    settled = asyncio.ensure_future(consumer.settle_up())
    await turns()
    bench.engine.drain()
    await settled
    assert (bench.passed, len(consumer._leased)) == (0, 1)


async def test_nothing_is_kept_of_a_consumer_that_is_closed(clock: LoopClock) -> None:
    bench = ConsumerBench(clock)
    consumer = await bench.consume()
    ((_, group),) = bench.engine.groups
    assert (group.consumers, group.idle) == (1, False)
    consumer.close()
    consumer.close()
    assert (group.consumers, group.idle, len(bench.engine._consumers)) == (0, True, 0)


async def test_a_group_with_a_consumer_is_never_dropped_as_idle(
    clock: LoopClock, waiting: list["asyncio.Task[object]"]
) -> None:
    bench = ConsumerBench(clock, group_idle=60_000)
    await bench.engine.start()
    consumer = await bench.consume()
    waiting.append(taking := asyncio.ensure_future(consumer.take()))
    await asyncio.sleep(600)
    assert not bench.subscription.closed
    bench.subscription.give(delivery(0))
    assert await taking
    consumer.close()
    await bench.pull()
    await bench.engine.close()


async def test_the_group_of_a_consumer_that_is_closed_is_dropped_as_idle(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, group_idle=60_000)
    await bench.engine.start()
    (await bench.consume()).close()
    await asyncio.sleep(600)
    assert bench.subscription.closed
    await bench.engine.close()


# Beside others


async def test_two_consumers_and_a_pull_share_a_group(clock: LoopClock) -> None:
    """Waiting consumers are served in turn: none stays idle while another is overloaded."""
    bench = ConsumerBench(clock)
    first, second = await bench.consume(credit=100), await bench.consume(credit=100)
    seen: dict[str, list[int]] = {"first": [], "second": [], "pull": []}

    async def consume(name: str, consumer: PushConsumer) -> None:
        while found := await consumer.take():
            seen[name] += positions(found)
            await bench.ack(*found)

    async def pull() -> None:
        while (pulled := await settled(bench.engine.pull(APP, PullRequest(LEASE, 1000), ack=False))) is not None:
            seen["pull"].append(int(pulled.message.body))

    tasks = [asyncio.ensure_future(work) for work in (consume("first", first), consume("second", second), pull())]
    for position in range(30):
        await asyncio.sleep(0.001)
        bench.subscription.give(delivery(position))
    await tasks[2]
    bench.engine.drain()
    await asyncio.gather(*tasks)
    assert sorted(position for found in seen.values() for position in found) == list(range(30))
    assert {name: len(bodies) for name, bodies in seen.items()} == {"first": 10, "second": 10, "pull": 10}


async def test_a_busy_consumer_does_not_starve_a_pull_that_waits(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *backlog(8), prefetch=4)
    consumer = await bench.consume(credit=4)
    held = await consumer.take()
    waiting = asyncio.ensure_future(bench.pull(wait=LEASE))
    await turns()
    assert not waiting.done()
    taking = asyncio.ensure_future(consumer.take())
    await bench.ack(*held)
    assert await waiting == (b"4", 1)
    assert positions(await taking) == [5, 6, 7]


async def test_the_higher_priority_is_taken_first(clock: LoopClock) -> None:
    bench = ConsumerBench(clock, *[delivery(i, priority=i) for i in (3, 9, 1, 7, 10)])
    consumer = await bench.consume(credit=2)
    first = await consumer.take()
    assert positions(first) == [10, 9]
    bench.subscription.give(delivery(8, priority=8))
    await turns()
    await bench.ack(*first)
    assert positions(await consumer.take()) == [8, 7]


async def test_what_is_not_due_and_what_expires_is_not_taken(clock: LoopClock) -> None:
    wall = clock.wall()
    bench = ConsumerBench(
        clock,
        delivery(0, born_timestamp=wall, delay_time=4000),
        delivery(1, born_timestamp=wall - 1, expire_time=wall),
        delivery(2, born_timestamp=wall, delay_time=2000, expire_time=wall + 1999),
    )
    consumer = await bench.consume(silence=10_000)
    assert positions(await consumer.take()) == [0]
    assert bench.passed == 4000
    assert await consumer.take() == []


async def test_consumers_count_as_waiting(clock: LoopClock, waiting: list["asyncio.Task[object]"]) -> None:
    bench = ConsumerBench(clock, waiting_pulls=1)
    waiting.append(asyncio.ensure_future((await bench.consume()).take()))
    await turns()
    assert bench.engine.counters.waiting_pulls == 1
    with pytest.raises(TooManyInFlight):
        await bench.consume()
