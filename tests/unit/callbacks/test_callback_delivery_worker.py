"""What a worker does with the answers: on the real engine, a fake backend and virtual time."""

import asyncio
import logging
import random
from itertools import pairwise

import pytest

from adapters.base import Outcome
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse, RequestBlocked
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.errors import BackendUnavailable, OutcomeUnknown
from tests.unit.callbacks.delivery_worker_bench import LEASE, OK, Bench, Script, dead
from tests.unit.engine.fakes import delivery
from tests.unit.engine.virtual import LoopClock, turns, until

HOUR = 3600


def released(bench: Bench) -> dict[int, int]:
    """By position: how often a message that was given back counts as delivered."""
    return {d.position: d.attempts for o, ds in bench.subscription.outcomes if o is Outcome.RELEASED for d in ds}


async def test_a_2xx_acknowledges(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(20))) as bench:
        await until(lambda: len(bench.endpoint.taken) == 20)
        await until(lambda: bench.engine.counters.settled == 20)
        assert sorted(bench.subscription.reported(Outcome.SETTLED)) == list(range(20))
        assert (bench.history.delivered, bench.history.failed, bench.worker.in_flight) == (20, 0, 0)
        assert bench.counters.callbacks_delivered == 20
        bench.subscription.give(delivery(20))
        await until(lambda: bench.history.delivered == 21)


async def test_a_failure_is_delivered_again_after_its_pause(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0)) as bench:
        answers: list[EndpointResponse | Exception] = [
            EndpointResponse(500, None),
            RequestBlocked("127.0.0.1 is loopback"),
            NoResponse("no answer"),
            EndpointResponse(302, None),
            OK,
        ]
        bench.endpoint.script = lambda _: answers.pop(0)
        await until(lambda: bench.endpoint.taken, 0.05)
        assert bench.endpoint.attempts("m0") == [1, 2, 3, 4, 5]
        times = [at for _, _, at in bench.endpoint.posts]
        for pause, longest in zip((b - a for a, b in pairwise(times)), (1, 2, 4, 8), strict=True):
            assert longest * 500 <= pause <= longest * 1000 + 1
        assert (bench.history.delivered, bench.history.failed) == (1, 4)
        assert [(f.message_id, f.attempt, f.status) for f in bench.history.failures] == [
            ("m0", 1, 500),
            ("m0", 2, None),
            ("m0", 3, None),
            ("m0", 4, 302),
        ]
        assert "loopback" in bench.history.failures[1].reason
        assert bench.counters.callbacks_failed == 4


async def test_the_last_ten_failures_are_kept(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(15)), credit=1) as bench:
        bench.endpoint.script = lambda m: OK if (m.delivery_count or 0) > 1 else EndpointResponse(500, None)
        await until(lambda: len(bench.endpoint.taken) == 15, 0.1)
        assert len(bench.history.failures) == 10
        assert bench.history.failed == 15


async def test_no_more_are_in_flight_than_the_credit(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(50)), credit=5) as bench:
        bench.endpoint.seconds = 1
        await until(lambda: len(bench.endpoint.taken) == 50, 0.1)
        assert bench.endpoint.most_in_flight == 5


async def test_each_key_keeps_its_order_whatever_fails(clock: LoopClock) -> None:
    chance = random.Random(7)  # noqa: S311
    backlog = [delivery(n, message_key=f"k{n % 7}") for n in range(120)]
    async with Bench(clock, *backlog, max_deliveries=1000) as bench:
        answers: list[EndpointResponse | Exception] = [
            OK,
            OK,
            EndpointResponse(500, None),
            NoResponse("no answer"),
            EndpointResponse(503, "1"),
        ]
        bench.endpoint.seconds = 0.2
        bench.endpoint.script = lambda _: chance.choice(answers)
        await until(lambda: len(bench.endpoint.taken) == 120, 0.5)
        for key in range(7):
            of_key = [int(taken[1:]) for taken in bench.endpoint.taken if int(taken[1:]) % 7 == key]
            assert of_key == sorted(of_key)
            posted = [int(m[1:]) for m, _, _ in bench.endpoint.posts if int(m[1:]) % 7 == key]
            assert posted == sorted(posted), "the next of a key waits for the one before"
        assert bench.endpoint.most_in_flight > 4


async def test_the_dead_letter_comes_after_max_deliveries(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0), delivery(1), max_deliveries=3) as bench:
        bench.endpoint.script = lambda m: EndpointResponse(422, None) if m.message_id == "m0" else OK
        await until(lambda: bench.engine.counters.dead_letters, 0.1)
        assert bench.endpoint.attempts("m0") == [1, 2, 3]
        assert bench.endpoint.taken == ["m1"]
        (dead_letter,) = bench.adapter.published
        assert (dead_letter.destination, dead_letter.message_id) == ("orders.dlq", "m0")


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_pauses_the_registration_and_counts_nothing(clock: LoopClock, status: int) -> None:
    async with Bench(clock, *(delivery(n) for n in range(20)), credit=4) as bench:
        bench.endpoint.script = lambda _: EndpointResponse(status, "300")
        await until(lambda: len(bench.endpoint.posts) == 4 and not bench.worker.in_flight)
        before = clock.mono()
        bench.endpoint.script = lambda _: OK
        bench.subscription.give(delivery(20))
        await bench.passes(299)
        assert len(bench.endpoint.posts) == 4, "nothing is sent in the pause"
        assert bench.engine.counters.delivered == 4, "nor taken"
        assert bench.worker.paused_until == before + 300_000
        await until(lambda: len(bench.endpoint.taken) == 21, 0.1)
        assert bench.endpoint.posts[4][2] >= before + 300_000
        assert {attempt for _, attempt, _ in bench.endpoint.posts} == {1}, "a message that was put off is not delivered"
        assert bench.history.failed == 0


async def test_without_retry_after_it_is_a_failure(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0)) as bench:
        answers = [EndpointResponse(429, None), EndpointResponse(503, "later"), OK]
        bench.endpoint.script = lambda _: answers.pop(0)
        await until(lambda: bench.endpoint.taken, 0.1)
        assert bench.endpoint.attempts("m0") == [1, 2, 3]


async def test_a_410_ends_it_and_gives_back_what_it_holds(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(20)), credit=4) as bench:
        bench.endpoint.seconds = 1
        bench.endpoint.script = lambda m: EndpointResponse(410, None) if m.message_id == "m1" else OK
        assert bench.running is not None
        await bench.running
        assert bench.worker.gone
        assert sorted(bench.endpoint.taken) == ["m0", "m2", "m3"], "what was in flight still counts"
        assert not bench.engine._consumers
    assert released(bench) == dict.fromkeys([1, *range(4, 20)], 0)
    assert sorted(bench.subscription.reported(Outcome.SETTLED)) == [0, 2, 3]


async def test_a_dead_endpoint_costs_nothing(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(200)), credit=8, group_idle=10 * HOUR * 1000) as bench:
        bench.endpoint.script = dead
        await bench.passes(60)
        assert not bench.worker.breaker.closed
        assert bench.counters.callback_circuits_open == 1
        posts, fetches = len(bench.endpoint.posts), bench.subscription.fetches
        assert bench.engine.counters.delivered == posts, "what is taken is posted"
        await bench.passes(8 * HOUR)
        probes = len(bench.endpoint.posts) - posts
        assert 8 * HOUR / 600 <= probes <= 8 * HOUR / 150
        assert bench.subscription.fetches == fetches
        assert max(bench.endpoint.posts, key=lambda post: post[1])[1] <= 3, "probes do not count as deliveries"
        bench.endpoint.script = lambda _: OK
        await until(lambda: len(bench.endpoint.taken) == 200, 1)
        assert bench.engine.counters.dead_letters == 0
        assert bench.counters.callback_circuits_open == 0
        assert bench.worker.breaker.closed


async def test_opening_and_closing_of_a_circuit_are_logged_once(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.callbacks")
    async with Bench(clock, *(delivery(n) for n in range(20))) as bench:
        bench.endpoint.script = dead
        await bench.passes(HOUR)
        assert not bench.worker.breaker.closed, "several probes have failed"
        bench.endpoint.script = lambda _: OK
        await until(lambda: len(bench.endpoint.taken) == 20, 1)
    opened, closed = [record for record in caplog.records if "circuit" in record.message]
    assert (opened.levelname, closed.levelname) == ("WARNING", "INFO")
    assert "is open after 10 failures in a row: no connection to shop.example" in opened.message
    assert "is closed" in closed.message
    for record in (opened, closed):
        shown = vars(record)
        assert (shown["source"], shown["group"], shown["host"]) == ("orders", "app", "shop.example")
        assert "/hook" not in str(shown)


async def test_an_open_circuit_lets_one_probe_out_and_nothing_else(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(50)), credit=16) as bench:
        bench.endpoint.script = dead
        await until(lambda: not bench.worker.breaker.closed and not bench.worker.in_flight)
        bench.endpoint.most_in_flight, bench.endpoint.seconds = 0, 5
        await bench.passes(120)
        assert bench.endpoint.most_in_flight == 1
        bench.endpoint.script = lambda _: OK
        await until(lambda: len(bench.endpoint.taken) == 50, 1)
        assert bench.endpoint.most_in_flight == 16, "one success opens the door"


async def test_what_kills_the_endpoint_does_not_take_every_probe(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.callbacks.ack_or_retry.random", lambda: 0.0)  # or another one might be ready first
    backlog = [delivery(0, priority=10), *(delivery(n) for n in range(1, 40))]
    async with Bench(clock, *backlog, credit=1) as bench:
        bench.endpoint.script = dead
        await until(lambda: bench.endpoint.posts[10:], 0.05)  # m0 is the first probe: it has the highest priority
        assert not bench.worker.breaker.closed
        assert bench.endpoint.posts[10][0] == "m0"
        bench.endpoint.script = lambda m: OK if m.message_id != "m0" else NoResponse("the connection broke")
        await bench.passes(60)
        assert len(bench.endpoint.taken) == 39
        await bench.passes(3 * HOUR)
        assert bench.engine.counters.dead_letters == 0, "alone, it is what finds out whether the endpoint is back"
        assert len(bench.endpoint.attempts("m0")) > 15


async def test_a_probe_that_is_answered_counts(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0), max_deliveries=14) as bench:
        bench.endpoint.script = lambda _: EndpointResponse(500, None)
        await until(lambda: bench.engine.counters.dead_letters, 1)
        assert bench.endpoint.attempts("m0") == list(range(1, 15)), (
            "a lone message that always fails ends in the letters"
        )


async def test_a_long_post_keeps_its_lease(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0)) as bench:
        bench.endpoint.seconds = 10 * LEASE / 1000
        await until(lambda: bench.endpoint.taken, 1)
        assert bench.endpoint.attempts("m0") == [1]


@pytest.mark.parametrize(
    "outcome",
    [EndpointResponse(500, None), EndpointResponse(410, None), EndpointResponse(429, "9"), NoResponse("no answer")],
)
async def test_a_drain_counts_no_failure(clock: LoopClock, outcome: EndpointResponse | Exception) -> None:
    bench = Bench(clock, *(delivery(n) for n in range(4)), credit=3)
    async with bench:
        bench.endpoint.seconds = 2
        bench.endpoint.script = lambda m: OK if m.message_id == "m1" else outcome
        await until(lambda: bench.worker.in_flight == 3)
    assert len(bench.endpoint.posts) == 3, "nothing new goes out"
    assert bench.subscription.reported(Outcome.SETTLED) == [1], "a 2xx in time still acknowledges"
    assert released(bench) == {0: 0, 2: 0, 3: 0}
    assert bench.history.failed == 0


async def test_ended_while_posts_are_in_flight(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(9)), credit=3) as bench:
        bench.endpoint.seconds = 2
        await until(lambda: bench.worker.in_flight == 3)
        bench.worker.end()
        assert bench.running is not None
        await bench.running
        assert len(bench.endpoint.taken) == len(bench.endpoint.posts) == 3
        assert not bench.engine._consumers


async def test_the_backend_may_come_later(clock: LoopClock) -> None:
    bench = Bench(clock, delivery(0))
    bench.adapter.start_failures = [BackendUnavailable("away")] * 5
    async with bench:
        await bench.passes(2)
        assert bench.worker.last_error is not None
        await until(lambda: bench.endpoint.taken, 0.5)
        assert bench.worker.last_error is None


async def test_a_group_that_cannot_be_joined_is_tried_again(clock: LoopClock) -> None:
    bench = Bench(clock, delivery(0))
    bench.adapter.subscribe_failures = [BackendUnavailable("away"), BackendUnavailable("away")]
    async with bench:
        await until(lambda: bench.endpoint.taken, 0.5)


async def test_an_acknowledgement_is_repeated_instead_of_the_post(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0), delivery(1)) as bench:
        await until(lambda: ("orders", "app") in bench.adapter.subscriptions)
        bench.subscription.settle_failures = [
            BackendUnavailable("away"),
            OutcomeUnknown("slow"),
            BackendUnavailable("away"),
        ]
        await until(lambda: bench.engine.counters.settled == 2, 0.5)
        assert min(bench.endpoint.posts)[:2] == ("m0", 1)
        assert len(bench.endpoint.posts) == 2
        assert bench.worker.last_error is None


async def test_a_defect_does_not_end_the_loop(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    async with Bench(clock, delivery(0)) as bench:
        outcomes: list[EndpointResponse | Exception] = [ZeroDivisionError("a defect"), OK]
        bench.endpoint.script = lambda _: outcomes.pop(0)
        await until(lambda: bench.endpoint.taken, 0.1)
        assert bench.endpoint.attempts("m0") == [1, 2]
        assert "internal error" in caplog.text
        assert "internal error in the bridge; its log has the details" in {
            failure.reason for failure in bench.history.failures
        }


async def test_ended_while_the_circuit_is_open(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(20))) as bench:
        bench.endpoint.script = dead
        await until(lambda: bench.counters.callback_circuits_open)
        await bench.passes(100)
        bench.worker.end()
        assert bench.running is not None
        await asyncio.wait_for(bench.running, 1)
        assert bench.counters.callback_circuits_open == 0


@pytest.mark.parametrize("late", range(8))
async def test_ended_just_when_a_message_comes(clock: LoopClock, late: int) -> None:
    async with Bench(clock) as bench:
        await until(lambda: ("orders", "app") in bench.adapter.subscriptions)
        await turns()
        bench.subscription.give(delivery(0))
        await turns(late)
        bench.worker.end()
        assert bench.running is not None
        await bench.running
        posts = len(bench.endpoint.posts)
    assert bench.subscription.reported(Outcome.SETTLED) == [0][:posts]
    assert released(bench) == ({} if posts else {0: 0})


@pytest.mark.parametrize("script", [dead, lambda _: OK, lambda _: EndpointResponse(503, "5")])
async def test_a_bridge_that_stops_ends_it(clock: LoopClock, script: Script) -> None:
    async with Bench(clock, *(delivery(n) for n in range(20))) as bench:
        bench.endpoint.script = script
        await bench.passes(1)
        bench.engine.drain()
        assert bench.running is not None
        await asyncio.wait_for(bench.running, 60)


async def test_ended_while_the_group_is_being_joined(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0)) as bench:
        bench.adapter.may_subscribe.clear()
        await turns()
        bench.worker.end()
        assert bench.running is not None
        await asyncio.wait_for(bench.running, 1)
        bench.adapter.may_subscribe.set()


async def test_a_defect_while_acknowledging_does_not_keep_the_message(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bench(clock, delivery(0)) as bench:
        whole, broken = Group.settle, [ZeroDivisionError("a defect")]

        async def settle(group: Group, entries: list[Entry]) -> None:
            if broken:
                raise broken.pop()
            await whole(group, entries)

        monkeypatch.setattr(Group, "settle", settle)
        await until(lambda: bench.engine.counters.settled, 0.1)
        assert bench.endpoint.attempts("m0") == [1, 2]
