import asyncio
import gc

import pytest

from adapters.base import Outcome
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BackendUnavailable, LeaseEnded, OutcomeUnknown
from tests.unit.engine.fakes import delivery
from tests.unit.engine.group_bench import LEASE, GroupBench
from tests.unit.engine.virtual import LoopClock, VirtualLoop, turns, until


async def test_a_first_pull_misses_nothing(clock: LoopClock) -> None:
    entry = await GroupBench(clock, delivery(1)).got()
    assert (entry.delivery.position, entry.attempts) == (1, 1)


async def test_a_pull_that_does_not_wait_is_answered_with_nothing(clock: LoopClock) -> None:
    begun = clock.mono()
    assert await GroupBench(clock).pull() is None
    assert clock.mono() == begun


async def test_a_long_poll_wakes_when_a_message_comes(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting()
    await asyncio.sleep(3)
    bench.subscription.give(delivery(1))
    entry = await pull
    assert entry is not None
    assert clock.mono() == 1_003_000
    assert bench.residue() == 0


async def test_a_long_poll_wakes_when_a_delayed_message_is_due(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, born_timestamp=clock.wall(), delay_time=4000))
    await bench.got(wait=10_000)
    assert clock.mono() == 1_004_000


async def test_a_delay_follows_a_wall_clock_that_is_set(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, born_timestamp=clock.wall(), delay_time=3_600_000))
    pull = bench.waiting(wait=60_000)
    await turns()
    clock.offset += 3_600_000
    assert await pull is not None
    assert clock.mono() <= 1_010_000


async def test_a_long_poll_ends_after_its_time(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    assert await bench.pull(wait=10_000) is None
    assert clock.mono() == 1_010_000
    assert bench.residue() == 0


async def test_ten_thousand_pulls_that_timed_out_leave_nothing_behind(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pulls = [bench.waiting(100, f"r{i}" if i % 2 else None) for i in range(10_000)]
    await turns(2)
    assert bench.counters.waiting_pulls == 10_000
    assert set(await asyncio.gather(*pulls)) == {None}
    assert bench.residue() == 0
    assert not bench.group._idempotent_pulls._answered
    assert bench.subscription.fetches == 1
    bench.subscription.give(delivery(1))
    await turns()
    assert await bench.pull() is not None


async def test_a_pull_finds_what_a_fetch_has_just_brought_after_the_pulls_that_wait(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    waiting = bench.waiting()
    await turns()
    bench.subscription.give(delivery(1), delivery(2))
    second = bench.group.lease(PullRequest(LEASE))
    first = await waiting
    assert first is not None
    assert second is not None
    assert (first.delivery.position, second.delivery.position) == (1, 2)


async def test_waiting_pulls_are_served_in_the_order_they_came(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pulls = [bench.waiting() for _ in range(5)]
    await turns()
    for position in range(5):
        bench.subscription.give(delivery(position))
        await turns()
    assert [entry.delivery.position for entry in await asyncio.gather(*pulls) if entry is not None] == [0, 1, 2, 3, 4]


async def test_a_cancelled_waiting_pull_loses_nothing(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting()
    await turns()
    pull.cancel()
    await turns()
    assert bench.residue() == 0
    bench.subscription.give(delivery(1))
    await turns()
    assert (await bench.got()).attempts == 1


async def test_a_pull_cancelled_after_it_was_served_gives_its_message_back_uncounted(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    first, second = bench.waiting(), bench.waiting()
    await turns()
    bench.subscription.give(delivery(1))
    await until(lambda: bench.group.buffer.leases)
    assert not first.done()
    first.cancel()
    entry = await second
    assert first.cancelled()
    assert entry is not None
    assert (entry.delivery.position, entry.attempts) == (1, 1)
    assert bench.residue() == 0


async def test_cancelling_in_every_turn_of_the_loop_loses_nothing(clock: LoopClock) -> None:
    for turn in range(12):
        bench = GroupBench(clock)
        pull = bench.waiting()
        await asyncio.sleep(0)
        bench.subscription.give(delivery(1))
        await turns(turn)
        cancelled = pull.cancel()
        await turns()
        if cancelled:
            assert (await bench.got()).attempts == 1
        else:
            assert pull.result() is not None
        assert bench.residue() == 0


async def test_a_new_pull_does_not_starve_waiting_ones(clock: LoopClock) -> None:
    """A buffer full of leases: one acknowledgement frees space for one message, and the waiting pull gets it."""
    bench = GroupBench(clock, *[delivery(i) for i in range(6)], prefetch=4)
    entries = [await bench.got() for _ in range(4)]
    pull = bench.waiting()
    await turns()
    assert not pull.done()
    await bench.group.settle(entries[:1])
    entry = await pull
    assert entry is not None
    assert clock.mono() == 1_000_000


async def test_messages_behind_more_expired_ones_than_the_buffer_holds_are_found(clock: LoopClock) -> None:
    stale = [delivery(i, expire_time=clock.wall() - 1, born_timestamp=1) for i in range(100)]
    bench = GroupBench(clock, *stale, delivery(100), prefetch=4)
    pull = bench.waiting()
    entry = await pull
    assert entry is not None
    assert entry.delivery.position == 100
    assert clock.mono() == 1_000_000
    assert bench.subscription.reported(Outcome.SETTLED) == list(range(100))
    assert bench.counters.expired == 100


async def test_a_pull_that_does_not_wait_looks_past_several_buffers_of_expired_messages(clock: LoopClock) -> None:
    stale = [delivery(i, expire_time=clock.wall() - 1, born_timestamp=1) for i in range(20)]
    assert (await GroupBench(clock, *stale, delivery(20), prefetch=4).got()).delivery.position == 20


async def test_a_request_id_replays_its_message_while_the_lease_lives(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2))
    entry = await bench.got(request_id="r")
    number = entry.number
    again = await bench.got(request_id="r")
    assert again is entry
    assert (again.number, again.attempts) == (number, 1)
    assert (await bench.got(request_id="other")).delivery.position == 2
    assert bench.counters.delivered == 2


async def test_a_request_id_replays_nothing_after_the_lease(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2), delivery(3))
    entry = await bench.got(request_id="r")
    await bench.group.settle([entry])
    second = await bench.got(request_id="r")
    assert second.delivery.position == 2
    bench.group.release(second, 60_000)
    assert (await bench.got(request_id="r")).delivery.position == 3


async def test_a_request_id_replays_nothing_after_the_lease_ran_out(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2, priority=1))
    entry = await bench.got(request_id="r", duration=1000)
    await asyncio.sleep(1)
    again = await bench.got(request_id="r")
    assert (again, again.attempts) == (entry, 2)


async def test_a_request_id_replays_nothing_in_the_very_moment_the_lease_ends(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    await bench.got(request_id="r", duration=1000)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += 1  # no turn of the loop: the timer has not fired yet
    assert (await bench.got(request_id="r")).attempts == 2


async def test_a_repeated_waiting_pull_supersedes_the_older_one(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    older = bench.waiting(request_id="r")
    await turns()
    newer = bench.waiting(request_id="r")
    assert await older is None
    assert bench.counters.waiting_pulls == 1
    bench.subscription.give(delivery(1), delivery(2))
    entry = await newer
    assert entry is not None
    assert entry.delivery.position == 1
    assert await bench.pull(request_id="r") is entry
    assert bench.residue() == 0


async def test_an_answer_that_was_lost_does_not_take_the_lease_from_its_repetition(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got(request_id="r")
    assert await bench.got(request_id="r") is entry
    bench.group.undo(entry, entry.number)
    assert bench.group.find(entry.number) is entry
    bench.group.undo(entry, entry.number)
    assert not bench.group.buffer.leases
    assert (await bench.got()).attempts == 1


async def test_an_answer_that_was_lost_does_not_take_a_later_lease_of_its_message(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got(duration=1000)
    number = entry.number
    await asyncio.sleep(1)
    later = await bench.got()
    assert later is entry
    bench.group.undo(entry, number)
    assert bench.group.find(later.number) is later
    assert later.attempts == 2


async def test_request_ids_of_ended_leases_do_not_pile_up(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    for number in range(2000):
        bench.subscription.give(delivery(number))
        await turns(3)
        await bench.group.settle([await bench.got(request_id=f"r{number}")])
    assert len(bench.group._idempotent_pulls._answered) <= 258


async def test_an_acknowledged_message_is_settled_once_and_gone(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got()
    await bench.group.settle([entry])
    assert bench.subscription.reported(Outcome.SETTLED) == [1]
    assert bench.group.find(entry.number) is None
    assert bench.group.buffer.size == 0
    assert bench.counters.settled == 1


async def test_a_message_that_left_meanwhile_does_not_stop_the_others_of_its_settlement(clock: LoopClock) -> None:
    bench = GroupBench(clock, *map(delivery, (1, 2, 3)))
    entries = [await bench.got() for _ in range(3)]
    bench.subscription.slow = True
    first = asyncio.ensure_future(bench.group.settle(entries[:1]))
    await turns()
    both = asyncio.ensure_future(bench.group.settle(entries))
    await turns()
    bench.subscription.confirm()
    await asyncio.gather(first, both)
    assert bench.counters.settled == 3, "each message counts once"
    assert [bench.group.find(entry.number) for entry in entries] == [None] * 3
    assert bench.group.buffer.size == 0


async def test_a_settlement_that_fails_leaves_the_lease_alive(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got()
    bench.subscription.settle_failures = [BackendUnavailable("away")]
    with pytest.raises(BackendUnavailable):
        await bench.group.settle([entry])
    assert bench.group.find(entry.number) is entry
    await bench.group.settle([entry])
    assert bench.group.find(entry.number) is None


async def test_a_settlement_that_fails_late_leaves_the_lease_alive(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got()
    bench.subscription.slow = True
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await asyncio.sleep(LEASE / 1000 - 10)
    bench.subscription.unconfirmed[0].set_exception(BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable):
        await ack
    assert bench.group.find(entry.number) is entry
    await asyncio.sleep(12)
    with pytest.raises(LeaseEnded):
        bench.group.find(entry.number)


async def test_a_lease_does_not_end_while_its_acknowledgement_is_under_way(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.subscription.slow = True
    entry = await bench.got(duration=1000)
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await asyncio.sleep(20)
    assert await bench.pull() is None
    bench.subscription.confirm()
    await ack
    assert bench.group.find(entry.number) is None


async def test_a_settlement_that_is_not_confirmed_in_time_has_an_unknown_outcome(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), produce_timeout=2000)
    bench.subscription.slow = True
    entry = await bench.got()
    with pytest.raises(OutcomeUnknown):
        await bench.group.settle([entry])
    assert clock.mono() == 1_002_000
    assert bench.group.find(entry.number) is entry
    bench.subscription.confirm()
    await turns()
    assert bench.group.find(entry.number) is None
    assert bench.counters.settled == 1


async def test_a_consumer_that_leaves_does_not_withdraw_its_acknowledgement(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.subscription.slow = True
    entry = await bench.got()
    ack = asyncio.ensure_future(bench.group.settle([entry]))
    await turns()
    ack.cancel()
    await turns()
    bench.subscription.confirm()
    await turns()
    assert bench.group.find(entry.number) is None
    assert bench.group.buffer.size == 0


async def test_a_late_confirmation_does_not_touch_a_later_lease(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), produce_timeout=500)
    bench.subscription.slow = True
    entry = await bench.got(duration=1000)
    with pytest.raises(OutcomeUnknown):
        await bench.group.settle([entry])
    await asyncio.sleep(1)
    later = await bench.got()
    bench.subscription.confirm()
    await turns()
    assert bench.group.find(later.number) is later


async def test_a_late_failure_of_a_settlement_is_not_logged(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    bench = GroupBench(clock, delivery(1), produce_timeout=500)
    bench.subscription.slow = True
    with pytest.raises(OutcomeUnknown):
        await bench.group.settle([await bench.got()])
    bench.subscription.unconfirmed.pop().set_exception(BackendUnavailable("late"))
    await turns()
    gc.collect()
    assert caplog.records == []


async def test_a_released_message_waits_for_its_delay_and_its_key_with_it(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, message_key="a"), delivery(2, message_key="a"), delivery(3, message_key="b"))
    bench.group.release(await bench.got(), 5000)
    assert (await bench.got()).delivery.position == 3
    assert await bench.pull() is None
    entry = await bench.got(wait=10_000)
    assert clock.mono() == 1_005_000
    assert (entry.delivery.position, entry.attempts) == (1, 2)
    assert bench.counters.nacked == 1


async def test_a_released_message_without_delay_goes_to_a_waiting_pull(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got()
    pull = bench.waiting()
    await turns()
    bench.group.release(entry, 0)
    assert await pull is entry
    assert clock.mono() == 1_000_000


async def test_a_lease_that_ends_is_delivered_again_and_counted(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    number = (await bench.got(duration=1000)).number
    again = await bench.got(wait=10_000)
    assert clock.mono() == 1_001_000
    assert again.attempts == 2
    with pytest.raises(LeaseEnded):
        bench.group.find(number)
    assert (bench.counters.leases_ended, bench.counters.redelivered) == (1, 1)


async def test_an_extended_lease_lasts_from_now(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    entry = await bench.got(duration=10_000)
    await asyncio.sleep(9)
    bench.group.extend(entry, 5000)
    await bench.got(wait=30_000)
    assert clock.mono() == 1_014_000


async def test_a_shortened_lease_ends_sooner(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.group.extend(await bench.got(), 1000)
    await bench.got(wait=30_000)
    assert clock.mono() == 1_001_000


async def test_a_durable_backend_gets_each_lease_with_its_count(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, attempts=2), delivery(2))
    await bench.got()
    await bench.got()
    await turns()
    assert [(o, [d.attempts for d in ds]) for o, ds in bench.subscription.outcomes] == [(Outcome.LEASED, [3, 1])]


async def test_each_dead_letter_counts(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), delivery(2), limit=1)
    for _ in range(2):
        bench.group.release(await bench.got(), 0)
        await turns()
    assert (bench.dead_letters, bench.counters.dead_letters) == ([1, 2], 2)


async def test_a_dead_message_is_settled_only_after_its_dead_letter_is_confirmed(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, message_key="a"), delivery(2, message_key="a"), limit=1)
    bench.dead_letter_gate = asyncio.Event()
    bench.group.release(await bench.got(), 0)
    await turns()
    assert bench.subscription.reported(Outcome.SETTLED) == []
    assert await bench.pull() is None
    bench.dead_letter_gate.set()
    await turns()
    assert (bench.dead_letters, bench.subscription.reported(Outcome.SETTLED)) == ([1], [1])
    assert (await bench.got()).delivery.position == 2
    assert bench.counters.dead_letters == 1


@pytest.mark.parametrize("place", ["write", "settle"])
async def test_a_dead_letter_that_fails_is_tried_again_and_nothing_is_lost(clock: LoopClock, place: str) -> None:
    bench = GroupBench(clock, delivery(1, message_key="a"), delivery(2, message_key="a"), limit=1)
    entry = await bench.got()
    failures = [BackendUnavailable("away"), BackendUnavailable("still away")]
    if place == "write":
        bench.dead_letter_failures = failures
    else:
        bench.subscription.settle_failures = [*failures]
    bench.group.release(entry, 0)
    await asyncio.sleep(9)
    assert bench.subscription.reported(Outcome.SETTLED) == []
    assert bench.group.buffer.size == 2
    assert bench.counters.dead_letter_failures == 2
    assert await bench.pull() is None
    assert (await bench.got(wait=10_000)).delivery.position == 2
    assert bench.dead_letters[-1:] == [1]
    assert bench.subscription.reported(Outcome.SETTLED) == [1]
    assert clock.mono() == 1_010_000


async def test_a_dead_letter_whose_settlement_hangs_is_tried_again(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), limit=1, produce_timeout=2000)
    entry = await bench.got()
    bench.subscription.slow = True
    bench.group.release(entry, 0)
    await asyncio.sleep(3)
    assert bench.counters.dead_letter_failures == 1
    bench.subscription.slow = False
    await asyncio.sleep(5)
    assert bench.dead_letters == [1, 1]
    assert bench.group.buffer.size == 0


async def test_a_fetch_that_fails_is_tried_again_after_a_pause(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting()
    await turns()
    bench.subscription.fetch_failures = [BackendUnavailable("away"), BackendUnavailable("still away")]
    bench.subscription.fail_fetch(BackendUnavailable("away"))
    await asyncio.sleep(0.5)
    bench.subscription.give(delivery(1))
    assert await pull is not None
    assert 1_002_000 <= clock.mono() <= 1_003_000


async def test_a_first_fetch_that_fails_is_tried_again_too(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), failures=1)
    assert await bench.pull() is None
    assert await bench.pull(wait=5000) is not None
    assert clock.mono() == 1_001_000


async def test_pulls_do_not_multiply_the_attempts_on_a_dead_backend(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    bench.subscription.fetch_failures = [BackendUnavailable("away") for _ in range(1000)]
    bench.subscription.fail_fetch(BackendUnavailable("away"))
    for _ in range(10):
        for _ in range(50):
            assert await bench.pull() is None
        await asyncio.sleep(1)
    assert bench.subscription.fetches <= 12


async def test_fetching_stops_at_a_full_buffer_and_continues_when_there_is_space(clock: LoopClock) -> None:
    bench = GroupBench(clock, *[delivery(i) for i in range(20)], prefetch=4)
    assert bench.group.buffer.size == 4
    entries = [await bench.got() for _ in range(4)]
    assert await bench.pull() is None
    await bench.group.settle(entries)
    assert bench.group.buffer.size == 4
    assert bench.subscription.reported(Outcome.SETTLED) == [0, 1, 2, 3]


async def test_fetching_stops_at_prefetch_bytes(clock: LoopClock) -> None:
    bench = GroupBench(clock, *[delivery(i, body=b"x" * 100) for i in range(20)], prefetch_bytes=250)
    assert bench.group.buffer.size == 3


async def test_a_group_is_idle_when_nothing_uses_it(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    assert bench.group.idle
    entry = await bench.got()
    assert not bench.group.idle
    bench.group.release(entry, 60_000)
    assert not bench.group.idle, "dropping it now would deliver the message before its pause is over"
    await bench.group.settle([await bench.got(wait=70_000)])
    assert bench.group.idle
    pull = bench.waiting(1000)
    await turns()
    assert not bench.group.idle
    await pull
    assert bench.group.idle


async def test_closing_releases_everything_uncounted(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, attempts=3), delivery(2), delivery(3), limit=None)
    await bench.got()
    held = await bench.got()
    bench.group.release(held, 60_000)
    await bench.group.close()
    outcome, back = bench.subscription.outcomes[-1]
    assert outcome is Outcome.RELEASED
    assert [(d.position, d.attempts) for d in back] == [(1, 3), (2, 1), (3, 0)]
    assert bench.subscription.closed


async def test_closing_reports_leases_before_it_releases_them(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    await bench.got()
    await bench.group.close()
    assert [outcome for outcome, _ in bench.subscription.outcomes] == [Outcome.LEASED, Outcome.RELEASED]


async def test_closing_ends_waiting_pulls(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    pull = bench.waiting()
    await turns()
    await bench.group.close()
    assert await pull is None
    assert bench.subscription.waiting is not None
    assert bench.subscription.waiting.cancelled()
    assert await bench.pull(wait=1000) is None


async def test_closing_gives_back_what_was_fetched_in_the_same_turn(clock: LoopClock) -> None:
    bench = GroupBench(clock)
    bench.subscription.give(delivery(1))
    await bench.group.close()
    assert bench.subscription.reported(Outcome.RELEASED) == [1]


async def test_closing_gives_back_what_was_fetched_while_dead_letters_are_written(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), limit=1)
    bench.dead_letter_gate = asyncio.Event()
    bench.group.release(await bench.got(), 0)
    await turns()
    closing = asyncio.ensure_future(bench.group.close())
    await turns()
    bench.subscription.give(delivery(2))
    bench.dead_letter_gate.set()
    await closing
    assert bench.subscription.reported(Outcome.SETTLED) == [1]
    assert [d.position for d in bench.subscription.backlog] == [2]


async def test_closing_waits_for_all_dead_letters(clock: LoopClock) -> None:
    bench = GroupBench(clock, *[delivery(i, attempts=1, message_key="a") for i in range(4)], limit=1)
    await bench.pull()
    await bench.group.close()
    assert bench.dead_letters == [0, 1, 2, 3]
    assert bench.subscription.reported(Outcome.SETTLED) == [0, 1, 2, 3]
    assert bench.group.buffer.size == 0


async def test_closing_closes_the_subscription_also_when_the_backend_is_away(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    bench.subscription.settle_failures = [BackendUnavailable("away")]
    await bench.group.close()
    assert bench.subscription.closed


async def test_closing_does_not_wait_without_end_for_a_backend_that_hangs(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1), produce_timeout=2000)
    bench.subscription.slow = True
    await bench.group.close()
    assert bench.subscription.closed
    assert clock.mono() == 1_002_000


async def test_a_closed_group_sets_no_timer_and_fetches_nothing(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1))
    await bench.got(duration=1000)
    await bench.group.close()
    fetches = bench.subscription.fetches
    await asyncio.sleep(60)
    assert bench.subscription.fetches == fetches
    assert bench.group.buffer.next_events() == (None, None)
