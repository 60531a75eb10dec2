"""Partitions that go to another bridge of the group, in the middle of everything."""

import asyncio

import pytest

from adapters.base import Delivery, Outcome
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.engine.push_consumer import ConsumerOptions
from bridge.errors import BackendUnavailable, LeaseEnded, OutcomeUnknown
from tests.calls import settled
from tests.unit.engine.fakes import FakeAdapter, delivery
from tests.unit.engine.group_bench import LEASE, GroupBench
from tests.unit.engine.virtual import LoopClock, turns, until

APP = SubscriptionKey("orders", "app")


def counts(deliveries: object) -> list[tuple[int, int]]:
    assert isinstance(deliveries, list | tuple)
    return [(d.position, d.attempts) for d in deliveries]


async def test_a_revoked_lease_has_ended_and_was_no_failure(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, attempts=2), delivery(2), delivery(3, partition=1))
    entry = await bench.got()
    assert counts(bench.group.revoke({0})) == [(1, 2), (2, 0)]
    with pytest.raises(LeaseEnded):
        bench.group.find(entry.number)
    assert (await bench.got()).delivery.position == 3
    assert await bench.pull() is None
    assert bench.group.buffer.size == 1


async def test_revoked_leases_are_not_reported_afterwards(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, partition=1))
    await bench.got()
    await bench.got()
    bench.group.revoke({0})
    await turns()
    assert bench.subscription.reported(Outcome.LEASED) == [2]


async def test_no_lease_is_reported_when_all_were_revoked(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    await bench.got()
    bench.group.revoke({0})
    await turns()
    assert bench.subscription.outcomes == []


async def test_what_a_fetch_brought_in_the_same_turn_is_revoked_too(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    await turns()
    bench.subscription.give(delivery(1), delivery(2, partition=1))
    assert counts(bench.group.revoke({0})) == [(1, 0)]
    assert (await bench.got()).delivery.position == 2
    await turns()
    assert await bench.pull() is None
    bench.subscription.give(delivery(3, partition=1))
    await turns()
    assert (await bench.got()).delivery.position == 3, "fetching goes on"


async def test_a_fetch_that_failed_in_the_same_turn_is_tried_again_once(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    await turns()
    bench.subscription.fail_fetch(BackendUnavailable("away"))
    bench.group.revoke({0})
    bench.subscription.backlog.append(delivery(1))
    assert (await bench.got(wait=5000)).delivery.position == 1
    assert clock.mono() == 1_001_000
    assert bench.subscription.fetches == 3


async def test_a_revocation_frees_space_that_is_filled_at_once(clock: LoopClock) -> None:
    bench = GroupBench(clock, *[delivery(i) for i in range(4)], delivery(4, partition=1), prefetch=4)
    pull = bench.waiting()
    first = await pull
    assert first is not None
    entries = [first, *[await bench.got() for _ in range(3)]]
    waits = bench.waiting()
    await turns()
    assert len(entries) == 4
    assert not waits.done()
    bench.group.revoke({0})
    entry = await waits
    assert entry is not None
    assert (entry.delivery.position, clock.mono()) == (4, 1_000_000)


async def test_a_pull_served_in_the_very_turn_of_the_revocation_waits_on(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting(5000)
    await asyncio.sleep(2)
    bench.subscription.give(delivery(1))
    await until(lambda: bench.group.buffer.leases)
    assert not pull.done()
    assert counts(bench.group.revoke({0})) == [(1, 0)]
    await asyncio.sleep(1)
    assert not pull.done()
    bench.subscription.give(delivery(2, partition=1))
    entry = await pull
    assert entry is not None
    assert (entry.delivery.position, entry.attempts) == (2, 1)
    assert bench.residue() == 0


async def test_a_pull_that_waits_on_ends_after_its_time_all_the_same(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting(5000, "r")
    await asyncio.sleep(2)
    bench.subscription.give(delivery(1))
    await until(lambda: bench.group.buffer.leases)
    bench.group.revoke({0})
    assert await pull is None
    assert clock.mono() == 1_005_000
    assert bench.residue() == 0


async def test_a_revocation_in_every_turn_of_the_loop_delivers_nothing_that_was_revoked(clock: LoopClock) -> None:
    for turn in range(12):
        bench = GroupBench(clock)
        pull = bench.waiting(1000)
        await asyncio.sleep(0)
        bench.subscription.give(delivery(1))
        await turns(turn)
        answered = pull.done()
        assert counts(bench.group.revoke({0})) == [(1, 0)], turn
        assert (await pull is not None) is answered, turn
        assert bench.group.buffer.size == 0
        assert (bench.residue(), bench.group.buffer.leases) == (0, {})


async def test_an_acknowledgement_that_the_backend_still_records_is_done(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, message_key="a"), delivery(2, message_key="a"))
    bench.subscription.slow = True
    entry = await bench.got()
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await turns()
    assert counts(bench.group.revoke({0})) == [(2, 0)]
    assert bench.group.buffer.size == 0
    bench.subscription.confirm()
    await ack
    assert bench.group.find(entry.number) is None, "acknowledging twice is 204"
    assert bench.counters.settled == 1
    assert (bench.group.buffer.size, bench.group.buffer.bytes) == (0, 0)


@pytest.mark.parametrize("error", [BackendUnavailable("another bridge has it"), OutcomeUnknown("late")])
async def test_an_acknowledgement_that_came_too_late_fails_as_the_backend_says(
    clock: LoopClock, error: BackendUnavailable | OutcomeUnknown
) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.subscription.slow = True
    entry = await bench.got()
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await turns()
    bench.group.revoke({0})
    bench.subscription.unconfirmed[0].set_exception(error)
    with pytest.raises(type(error)):
        await ack
    with pytest.raises(LeaseEnded):
        bench.group.find(entry.number)
    assert (bench.counters.settled, bench.group.buffer.size) == (0, 0)


async def test_a_late_acknowledgement_leaves_alone_what_came_back(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, message_key="a"), delivery(2, message_key="a"))
    bench.subscription.slow = True
    entry = await bench.got()
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await turns()
    bench.group.revoke({0})
    bench.subscription.give(delivery(1, attempts=1, message_key="a"), delivery(2, message_key="a"))
    await turns()
    again = await bench.got()
    assert (again.delivery.position, again.attempts) == (1, 2)
    bench.subscription.confirm()
    await ack
    assert bench.group.find(again.number) is again
    assert bench.group.buffer.size == 2
    assert await bench.pull() is None, "the next of the key waits"


async def test_a_revoked_message_cannot_be_acknowledged(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, partition=1))
    entries = [await bench.got(), await bench.got()]
    bench.group.revoke({0})
    with pytest.raises(LeaseEnded):
        await bench.group.settle(entries)
    assert bench.subscription.reported(Outcome.SETTLED) == []
    assert not entries[1].settling


async def test_an_undo_of_a_revoked_message_releases_nothing(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got()
    bench.group.revoke({0})
    bench.group.undo(entry, entry.number)
    assert await bench.pull() is None
    assert bench.group.buffer.size == 0


async def test_a_repeated_pull_gets_no_revoked_message(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, partition=1))
    await bench.got(request_id="r")
    bench.group.revoke({0})
    assert (await bench.got(request_id="r")).delivery.position == 2


@pytest.mark.parametrize("fails", [False, True])
async def test_a_dead_letter_under_way_does_not_touch_a_message_fetched_again(clock: LoopClock, fails: bool) -> None:
    bench = GroupBench(clock, delivery(1, attempts=1, message_key="a"), delivery(2, message_key="a"), limit=2)
    bench.dead_letter_gate = asyncio.Event()
    bench.dead_letter_failures = [BackendUnavailable("away")] if fails else []
    bench.group.release(await bench.got(), 0)
    await turns()
    assert counts(bench.group.revoke({0})) == [(1, 2), (2, 0)]
    assert (bench.group.buffer.size, bench.group.buffer.bytes) == (0, 0)
    bench.subscription.give(delivery(1, attempts=1, message_key="a"), delivery(2, message_key="a"))
    await turns()
    bench.dead_letter_gate.set()
    await turns()
    assert bench.dead_letters == ([] if fails else [1])
    assert (bench.counters.dead_letters, bench.counters.dead_letter_failures) == ((0, 1) if fails else (1, 0))
    assert (bench.group.buffer.size, bench.group.buffer.paused) == (2, 0)
    assert (await bench.got()).delivery.position == 1
    assert await bench.pull() is None, "the next of the key waits"


async def test_a_revoked_pause_wakes_no_pull(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, born_timestamp=clock.wall(), delay_time=3000))
    bench.group.release(await bench.got(), 2000)
    assert counts(bench.group.revoke({0})) == [(1, 1), (2, 0)]
    assert bench.group.idle
    assert await bench.pull(wait=10_000) is None
    assert clock.mono() == 1_010_000


async def test_a_revocation_is_no_sign_of_life_of_a_consumer(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    await asyncio.sleep(60)
    bench.group.revoke({0})
    await turns()
    assert bench.group.last_used == 1_000_000


async def test_a_revocation_while_the_group_closes_takes_nothing_back_twice(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, partition=1))
    await bench.got()
    bench.subscription.may_close.clear()
    closing = asyncio.ensure_future(bench.group.close())
    await turns()
    assert bench.subscription.reported(Outcome.RELEASED) == [1, 2]
    assert bench.group.revoke({0, 1}) == []
    bench.subscription.may_close.set()
    await closing
    assert bench.subscription.reported(Outcome.RELEASED) == [1, 2]


class RevokedEngineBench:
    """An engine on a backend that shares partitions out."""

    def __init__(self, clock: LoopClock, *backlog: Delivery) -> None:
        self.adapter = FakeAdapter()
        self.adapter.backlogs["orders", "app"] = list(backlog)
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080"))
        self.engine.not_ready_reason = None

    def revoke(self, *partitions: int) -> list[tuple[int, int]]:
        return counts(self.adapter.revoked["orders", "app"](set(partitions)))

    async def receipt(self) -> str:
        pulled = await settled(self.engine.pull(APP, PullRequest(LEASE), ack=True))
        assert pulled is not None
        assert pulled.receipt is not None
        return pulled.receipt


async def test_the_receipts_of_revoked_messages_are_refused_and_the_others_done(clock: LoopClock) -> None:
    bench = RevokedEngineBench(clock, delivery(1), delivery(2, partition=1))
    receipts = [await bench.receipt(), await bench.receipt()]
    assert bench.revoke(0) == [(1, 0)]
    with pytest.raises(LeaseEnded, match="the others are done"):
        await bench.engine.leases.ack(receipts, None)
    assert bench.adapter.of().reported(Outcome.SETTLED) == [2]
    with pytest.raises(LeaseEnded):
        bench.engine.leases.nack(receipts[:1], 0, None)
    with pytest.raises(LeaseEnded):
        bench.engine.leases.extend(receipts[:1], 1000, None)


async def test_at_most_once_sends_no_revoked_message(clock: LoopClock) -> None:
    bench = RevokedEngineBench(clock)
    pull = asyncio.ensure_future(settled(bench.engine.pull(APP, PullRequest(LEASE, 2000), ack=False)))
    await turns()
    bench.adapter.of().give(delivery(1))
    _, group = bench.engine.groups[0]
    await until(lambda: group.buffer.leases)
    assert not pull.done()
    assert bench.revoke(0) == [(1, 0)]
    assert await pull is None
    assert bench.adapter.of().reported(Outcome.SETTLED) == []


@pytest.mark.parametrize("ack", [False, True])
async def test_a_stream_outlives_the_partitions_it_has_messages_of(clock: LoopClock, ack: bool) -> None:
    bench = RevokedEngineBench(clock, delivery(1), delivery(2))
    consumer = await bench.engine.consume(APP, ConsumerOptions(LEASE, ack=ack, credit=2))
    held = await consumer.take()
    assert len(held) == 2
    more = asyncio.ensure_future(consumer.take())
    await turns()
    assert bench.revoke(0) == ([(1, 0), (2, 0)] if ack else [])
    bench.adapter.of().give(delivery(3, partition=1))
    (leased,) = await more
    assert leased.entry.delivery.position == 3
    if ack:
        with pytest.raises(LeaseEnded):
            await consumer.ack(held[0])
        consumer.nack(held[1], 0)
    consumer.close()
    assert (bench.engine.groups[0][1].buffer.size, consumer._leased) == (1 if ack else 0, {})


async def test_a_stream_served_in_the_very_turn_of_the_revocation_goes_on(clock: LoopClock) -> None:
    bench = RevokedEngineBench(clock)
    consumer = await bench.engine.consume(APP, ConsumerOptions(LEASE))
    taking = asyncio.ensure_future(consumer.take())
    await turns()
    bench.adapter.of().give(delivery(1))
    _, group = bench.engine.groups[0]
    await until(lambda: group.buffer.leases)
    bench.revoke(0)
    await turns()
    assert not taking.done()
    bench.adapter.of().give(delivery(2, partition=1))
    assert [leased.entry.delivery.position for leased in await taking] == [2]


async def test_partitions_that_go_before_the_group_is_there_take_nothing_with_them(clock: LoopClock) -> None:
    class Hasty(FakeAdapter):
        async def subscribe(self, source: str, group: str, revoked: object, *, latest: bool = False) -> object:  # type: ignore[override]
            assert callable(revoked)
            assert revoked({0}) == ()
            return await super().subscribe(source, group, revoked, latest=latest)

    adapter = Hasty()
    adapter.backlogs["orders", "app"] = [delivery(1)]
    engine = Engine(adapter, clock, EngineOptions("bridge:8080"))  # type: ignore[arg-type]
    engine.not_ready_reason = None
    assert await settled(engine.pull(APP, PullRequest(LEASE), ack=True)) is not None
