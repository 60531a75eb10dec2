"""Nacks with a long delay, where the backend can keep a message for so long."""

import asyncio

import pytest

from adapters.base import Deferring, Delivery, Outcome
from bridge.errors import BackendUnavailable, BridgeError, LeaseEnded, OutcomeUnknown
from tests.unit.engine.fakes import FakeSubscription, delivery
from tests.unit.engine.group_bench import GroupBench
from tests.unit.engine.virtual import LoopClock, turns

LONG = 60_000


class DeferringSubscription(FakeSubscription):
    """Remembers what was put off, and until when; tests set how that ends."""

    def __init__(self, *backlog: Delivery) -> None:
        super().__init__(*backlog)
        self.deferred: list[tuple[Delivery, int]] = []
        self.ends: list[asyncio.Future[None]] = []

    def defer(self, delivery: Delivery, until: int) -> asyncio.Future[None]:
        assert not self.closed
        self.deferred.append((delivery, until))
        self.ends.append(asyncio.get_running_loop().create_future())
        return self.ends[-1]


def benched(clock: LoopClock, *backlog: Delivery, **more: object) -> tuple[GroupBench, DeferringSubscription]:
    bench = GroupBench(clock, *backlog, subscription=DeferringSubscription, **more)  # type: ignore[arg-type]
    assert isinstance(bench.subscription, DeferringSubscription)
    return bench, bench.subscription


def test_not_every_subscription_can_defer() -> None:
    assert isinstance(DeferringSubscription(), Deferring)
    assert not isinstance(FakeSubscription(), Deferring)


async def test_a_long_nack_defers_the_message_in_the_backend(clock: LoopClock) -> None:
    bench, subscription = benched(clock, delivery(1, attempts=2))
    bench.group.release(await bench.got(), LONG)
    assert [(d.position, d.attempts, until) for d, until in subscription.deferred] == [(1, 3, clock.wall() + LONG)]
    assert bench.counters.nacked == 1
    subscription.ends[0].set_result(None)
    await turns()
    assert (bench.group.buffer.size, bench.group.buffer.paused, bench.group.idle) == (0, 0, True)
    assert await bench.pull(wait=2 * LONG) is None
    assert subscription.reported(Outcome.SETTLED) == [], "the subscription has settled it"


async def test_its_lease_is_over_at_once_and_no_pull_gets_it_meanwhile(clock: LoopClock) -> None:
    bench, _ = benched(clock, delivery(1))
    entry = await bench.got()
    number = entry.number
    bench.group.release(entry, LONG)
    with pytest.raises(LeaseEnded):
        bench.group.find(number)
    assert await bench.pull(wait=20_000) is None
    assert not bench.group.idle
    assert bench.group.buffer.size == 1


async def test_deferring_frees_space_for_the_next_ones(clock: LoopClock) -> None:
    bench, subscription = benched(clock, *[delivery(position) for position in range(4)], prefetch=2)
    bench.group.release(await bench.got(), LONG)
    bench.group.release(await bench.got(), LONG)
    pull = bench.waiting()
    await turns()
    assert not pull.done()
    for end in subscription.ends:
        end.set_result(None)
    entry = await pull
    assert entry is not None
    assert entry.delivery.position == 2


@pytest.mark.parametrize("delay", [0, 1, 30_000])
async def test_a_short_delay_is_spent_in_the_buffer(clock: LoopClock, delay: int) -> None:
    bench, subscription = benched(clock, delivery(1))
    bench.group.release(await bench.got(), delay)
    assert (await bench.got(wait=LONG)).attempts == 2
    assert clock.mono() == 1_000_000 + delay
    assert subscription.deferred == []


async def test_so_is_any_delay_of_a_message_with_a_key(clock: LoopClock) -> None:
    """
    > the next message of a key waits until the one before it is settled.
    """
    bench, subscription = benched(clock, delivery(1, message_key=""), delivery(2, message_key=""))
    bench.group.release(await bench.got(), LONG)
    entry = await bench.got(wait=2 * LONG)
    assert (entry.delivery.position, entry.attempts) == (1, 2)
    assert clock.mono() == 1_000_000 + LONG
    assert subscription.deferred == []


async def test_so_is_any_delay_where_the_backend_cannot(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.group.release(await bench.got(), LONG)
    assert (await bench.got(wait=2 * LONG)).attempts == 2
    assert clock.mono() == 1_000_000 + LONG


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("perhaps")])
async def test_a_message_that_cannot_be_deferred_waits_in_the_buffer(clock: LoopClock, error: BridgeError) -> None:
    bench, subscription = benched(clock, delivery(1))
    bench.group.release(await bench.got(), LONG)
    await asyncio.sleep(5)
    subscription.ends[0].set_exception(error)
    await turns()
    assert bench.group.buffer.paused == 1
    assert (await bench.got(wait=2 * LONG)).attempts == 2
    assert clock.mono() == 1_000_000 + LONG, "from the nack on"


async def test_so_does_what_it_does_not_answer_for(clock: LoopClock) -> None:
    bench, _ = benched(clock, delivery(1), produce_timeout=2000)
    bench.group.release(await bench.got(), LONG)
    await asyncio.sleep(2.001)
    assert bench.group.buffer.paused == 1
    assert (await bench.got(wait=2 * LONG)).attempts == 2
    assert clock.mono() == 1_000_000 + LONG


async def test_a_deferred_message_is_dead_lettered_after_its_last_delivery(clock: LoopClock) -> None:
    bench, subscription = benched(clock, delivery(1, attempts=1), limit=2)
    bench.group.release(await bench.got(), LONG)
    subscription.ends[0].set_result(None)
    (deferred, _) = subscription.deferred[0]
    subscription.give(deferred)
    await turns()
    assert bench.dead_letters == [1]


@pytest.mark.parametrize("fails", [False, True])
async def test_closing_waits_for_it(clock: LoopClock, fails: bool) -> None:
    bench, subscription = benched(clock, delivery(1))
    bench.group.release(await bench.got(), LONG)
    closing = asyncio.ensure_future(bench.group.close())
    await turns()
    assert not closing.done()
    if fails:
        subscription.ends[0].set_exception(BackendUnavailable("away"))
    else:
        subscription.ends[0].set_result(None)
    await closing
    assert [(d.position, d.attempts) for d in subscription.backlog] == ([(1, 1)] if fails else [])


@pytest.mark.parametrize("fails", [False, True])
async def test_revoking_its_partition_removes_it(clock: LoopClock, fails: bool) -> None:
    bench, subscription = benched(clock, delivery(1), delivery(2, partition=1))
    bench.group.release(await bench.got(), LONG)
    assert [(d.position, d.attempts) for d in bench.group.revoke({0})] == [(1, 1)]
    if fails:
        subscription.ends[0].set_exception(BackendUnavailable("away"))
    else:
        subscription.ends[0].set_result(None)
    await turns()
    assert (bench.group.buffer.size, bench.group.buffer.paused) == (1, 0)
    assert (await bench.got()).delivery.position == 2


async def test_a_pause_that_a_consumer_asks_for_is_spent_in_the_buffer(clock: LoopClock) -> None:
    bench, subscription = benched(clock, delivery(1))
    bench.group.defer(await bench.got(), LONG)
    assert (await bench.got(wait=2 * LONG)).attempts == 1
    assert subscription.deferred == []
