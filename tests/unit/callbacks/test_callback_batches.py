"""Batches: which messages share a POST, and what each response does to them. On the real engine and virtual time."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from adapters.base import Outcome
from bridge.callbacks.delivery_worker import BYTES_MAX, split
from bridge.callbacks.registration import BatchOptions
from bridge.callbacks.retry_policy import FAILURE_THRESHOLD, EndpointResponse, NoResponse
from bridge.engine.push_consumer import Leased
from bridge.errors import BackendUnavailable
from bridge.message import Message
from tests.unit.callbacks.delivery_worker_bench import OK, Bench
from tests.unit.engine.fakes import delivery
from tests.unit.engine.virtual import LoopClock, until

TEN = BatchOptions(10, "application/json")


def results(*items: object, status: int = 200) -> EndpointResponse:
    return EndpointResponse(status, None, json.dumps(items).encode())


def each(*statuses: int) -> EndpointResponse:
    return results(*({"status": status} for status in statuses))


def settle_calls(bench: Bench) -> list[list[int]]:
    return [[d.position for d in ds] for outcome, ds in bench.subscription.outcomes if outcome is Outcome.SETTLED]


def taken(*messages: Message) -> list[Leased]:
    entry: Any = None
    return [Leased(message, None, 0, entry, number) for number, message in enumerate(messages)]


async def shape(*messages: Message, size: int = 10) -> list[int]:
    async def inflate(message: Message) -> Message:
        return message._replace(body=message.body * 100)

    return [len(batch) async for batch in split(taken(*messages), size, inflate)]


async def test_a_post_has_at_most_its_size_and_256_kib() -> None:
    plain = Message("orders", b"x", delivery_count=1)
    half = plain._replace(body=bytes(BYTES_MAX // 2 - len("orders")))
    large = plain._replace(properties={"p": "x" * (BYTES_MAX // 2)})
    assert await shape() == []
    assert await shape(*[plain] * 25) == [10, 10, 5]
    assert await shape(half, half, plain, size=10) == [2, 1]
    assert await shape(large, large, plain, size=10) == [1, 2], "headers count"
    assert await shape(plain, plain._replace(body=bytes(BYTES_MAX + 1)), plain) == [1, 1, 1]
    assert await shape(*[plain] * 3, size=1) == [1, 1, 1]


async def test_inflated_bodies_count() -> None:
    """100 small gzip bodies may inflate to gigabytes."""
    packed = Message("orders", bytes(BYTES_MAX // 200), compression="gzip", delivery_count=1)
    assert await shape(*[packed] * 5) == [2, 2, 1]


async def test_a_message_that_is_delivered_again_is_alone() -> None:
    fresh, again = Message("orders", delivery_count=1), Message("orders", delivery_count=2)
    assert await shape(fresh, again, fresh, again) == [1, 1, 2]


async def test_one_post_has_what_is_ready_and_a_2xx_settles_it_in_one_call(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(25)), batch=TEN, credit=4) as bench:
        await until(lambda: bench.engine.counters.settled == 25)
        assert [len(batch) for batch in bench.endpoint.batches] == [10, 10, 5]
        assert len(settle_calls(bench)) <= 3
        assert (bench.history.delivered, bench.history.failed) == (25, 0)
        assert bench.counters.callbacks_delivered == 25
        await until(lambda: bench.worker.in_flight == 0)


async def test_single_messages_are_settled_in_runs(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(40)), credit=40) as bench:
        await until(lambda: bench.engine.counters.settled == 40)
        assert sorted(bench.subscription.reported(Outcome.SETTLED)) == list(range(40))
        assert len(settle_calls(bench)) <= 2


async def test_a_run_is_acknowledged_again_as_a_whole(clock: LoopClock) -> None:
    async with Bench(clock, batch=TEN) as bench:
        await until(lambda: ("orders", "app") in bench.adapter.subscriptions)
        bench.subscription.settle_failures = [BackendUnavailable("away")]
        bench.subscription.give(*(delivery(n) for n in range(5)))
        await until(lambda: bench.worker.last_error is not None)
        assert bench.worker.in_flight == 1
        await until(lambda: bench.engine.counters.settled == 5, 0.5)
        assert sum(map(len, bench.endpoint.batches)) == 5


async def test_posts_in_flight_are_limited_not_messages(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(100)), batch=TEN, credit=3) as bench:
        bench.endpoint.seconds = 1
        await until(lambda: len(bench.endpoint.taken) == 100, 0.1)
        assert bench.endpoint.most_in_flight == 3
        assert len(bench.endpoint.batches) == 10


async def test_while_a_post_is_in_flight_few_messages_wait_a_moment(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0), batch=TEN) as bench:
        bench.endpoint.seconds = 5
        await until(lambda: bench.endpoint.batches)
        for number in range(1, 6):
            bench.subscription.give(delivery(number))
        await bench.passes(0.015)
        assert bench.endpoint.batches == [["m0"]]
        await bench.passes(0.01)
        assert bench.endpoint.batches == [["m0"], ["m1", "m2", "m3", "m4", "m5"]]


async def test_the_end_of_any_post_ends_the_wait(clock: LoopClock) -> None:
    async with Bench(clock, delivery(0), batch=TEN) as bench:
        bench.endpoint.seconds = 5
        await until(lambda: bench.endpoint.batches)
        bench.endpoint.seconds = 0.005
        bench.subscription.give(delivery(1))
        await until(lambda: len(bench.endpoint.batches) == 2, 0.001)
        bench.subscription.give(delivery(2))
        before = clock.mono()
        await until(lambda: len(bench.endpoint.batches) == 3, 0.001)
        assert clock.mono() - before <= 10


async def test_a_batch_has_one_message_of_a_key_and_the_order_holds(clock: LoopClock) -> None:
    backlog = [delivery(n, message_key=f"k{n % 3}") for n in range(30)]
    async with Bench(clock, *backlog, batch=TEN) as bench:
        await until(lambda: len(bench.endpoint.taken) == 30)
        for batch in bench.endpoint.batches:
            assert len({int(name[1:]) % 3 for name in batch}) == len(batch)
        for key in range(3):
            of_key = [int(name[1:]) for name in bench.endpoint.taken if int(name[1:]) % 3 == key]
            assert of_key == sorted(of_key)


async def test_results_settle_or_give_back_each(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(4)), batch=TEN) as bench:
        answers = [
            results({"status": 200}, {"status": 422}, {"status": 503, "retryAfter": 30}, {"status": 204, "why": "x"})
        ]
        bench.endpoint.batch_script = lambda _: answers.pop(0) if answers else OK
        start = clock.mono()
        await until(lambda: bench.engine.counters.settled == 4, 0.1)
        assert bench.endpoint.batches == [["m0", "m1", "m2", "m3"], ["m1"], ["m2"]]
        assert bench.endpoint.attempts("m1") == [1, 2]
        assert bench.endpoint.attempts("m2") == [1, 1], "a message that was put off is not counted"
        times = {name: at - start for name, _, at in bench.endpoint.posts}
        assert 500 <= times["m1"] <= 1100
        assert times["m2"] >= 30_000
        assert (bench.history.delivered, bench.history.failed) == (4, 1)
        assert [(f.message_id, f.status) for f in bench.history.failures] == [("m1", 422)]
        assert bench.counters.callbacks_failed == 1
        assert settle_calls(bench)[0] == [0, 3]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (each(200, 200), "answered 200 with 2 results for 3 messages"),
        (results(1, 2, 3), "answered 200 with a result that is not an object with a status"),
        (EndpointResponse(200, None, b'[{"status": 2'), "answered 200 with a body that is not JSON"),
        (EndpointResponse(207, None, None), "answered 207 without an array of results"),
        (EndpointResponse(500, None, b"[]"), "answered 500"),
        (NoResponse("no connection to shop.example"), "no connection to shop.example"),
    ],
)
async def test_a_post_that_fails_as_a_whole(
    clock: LoopClock, response: EndpointResponse | Exception, reason: str
) -> None:
    async with Bench(clock, *(delivery(n) for n in range(3)), batch=TEN) as bench:
        answers = [response]
        bench.endpoint.batch_script = lambda _: answers.pop(0) if answers else OK
        await until(lambda: bench.engine.counters.settled == 3, 0.1)
        assert bench.endpoint.batches[0] == ["m0", "m1", "m2"]
        assert sorted(bench.endpoint.batches[1:]) == [["m0"], ["m1"], ["m2"]], "each is delivered again alone"
        assert [bench.endpoint.attempts(f"m{n}") for n in range(3)] == [[1, 2]] * 3
        assert bench.history.failed == 3
        assert reason in bench.history.failures[0].reason


@pytest.mark.parametrize(
    "response",
    [EndpointResponse(200, None, b'{"ok": true}'), EndpointResponse(204, None)],
)
async def test_another_body_is_no_results(clock: LoopClock, response: EndpointResponse) -> None:
    async with Bench(clock, delivery(0), batch=TEN) as bench:
        bench.endpoint.batch_script = lambda _: response
        await until(lambda: bench.engine.counters.settled == 1)


async def test_a_poison_message_takes_no_other_with_it(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(10)), batch=TEN, max_deliveries=4) as bench:
        bench.endpoint.batch_script = lambda ms: NoResponse("it broke") if "m3" in {m.message_id for m in ms} else OK
        await until(lambda: bench.engine.counters.dead_letters, 0.5)
        assert [letter.message_id for letter in bench.adapter.published] == ["m3"]
        assert sorted(bench.endpoint.taken) == sorted(f"m{n}" for n in range(10) if n != 3)


@pytest.mark.parametrize("stopping", [EndpointResponse(410, None), EndpointResponse(503, "60")])
async def test_410_and_retry_after_give_back_the_whole_batch(clock: LoopClock, stopping: EndpointResponse) -> None:
    async with Bench(clock, *(delivery(n) for n in range(5)), batch=TEN) as bench:
        bench.endpoint.batch_script = lambda _: stopping
        await until(lambda: bench.worker.gone or bench.worker.paused_until)
        await bench.passes(30)
        assert len(bench.endpoint.batches) == 1
        bench.endpoint.batch_script = lambda _: OK
        if not bench.worker.gone:
            await until(lambda: len(bench.endpoint.taken) == 5, 0.5)
            assert {attempt for _, attempt, _ in bench.endpoint.posts} == {1}
    released = [d for outcome, ds in bench.subscription.outcomes if outcome is Outcome.RELEASED for d in ds]
    assert {d.attempts for d in released} <= {0}


async def test_ten_batches_in_a_row_open_the_circuit_and_one_message_probes(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(200)), batch=TEN, credit=2) as bench:
        bench.endpoint.batch_script = lambda ms: each(*[500] * len(ms))
        await until(lambda: not bench.worker.breaker.closed and not bench.worker.in_flight)
        assert FAILURE_THRESHOLD <= len(bench.endpoint.batches) <= FAILURE_THRESHOLD + 2
        before = len(bench.endpoint.batches)
        bench.subscription.give(*(delivery(n, priority=10) for n in range(200, 220)))  # the next probes take these
        await bench.passes(20)
        assert {len(batch) for batch in bench.endpoint.batches[before:]} == {1}
        bench.endpoint.batch_script = lambda _: OK
        await until(lambda: len(set(bench.endpoint.taken)) == 220, 1)
        assert bench.worker.breaker.closed
        assert max(map(len, bench.endpoint.batches[before:])) == 10


async def test_one_accepted_message_keeps_the_circuit_closed(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(200)), batch=TEN, credit=1) as bench:

        def first_only(messages: Sequence[Message]) -> EndpointResponse:
            return each(200, *[500] * (len(messages) - 1))

        bench.endpoint.batch_script = first_only
        await until(lambda: len(bench.endpoint.batches) > 2 * FAILURE_THRESHOLD, 0.1)
        assert bench.worker.breaker.closed


async def test_a_batch_with_an_accepted_message_is_no_failure(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(200)), batch=TEN, credit=1) as bench:
        answers = [each(200, *[500] * 9), *[each(*[500] * 10)] * (FAILURE_THRESHOLD - 1)]
        opened: list[int] = []

        def script(_: Sequence[Message]) -> EndpointResponse:
            opened.append(bench.counters.callback_circuits_open)
            return answers.pop(0) if answers else OK

        bench.endpoint.batch_script = script
        await until(lambda: len(opened) > FAILURE_THRESHOLD, 0.01)
        assert opened == [0] * len(opened)


async def test_a_drain_counts_no_failed_result(clock: LoopClock) -> None:
    bench = Bench(clock, *(delivery(n) for n in range(3)), batch=TEN)
    async with bench:
        bench.endpoint.seconds = 2
        bench.endpoint.batch_script = lambda _: each(200, 500, 500)
        await until(lambda: bench.worker.in_flight == 1)
    assert bench.subscription.reported(Outcome.SETTLED) == [0]
    assert bench.history.failed == 0
    released = [d for outcome, ds in bench.subscription.outcomes if outcome is Outcome.RELEASED for d in ds]
    assert {d.position: d.attempts for d in released} == {1: 0, 2: 0}


async def test_messages_that_wait_for_a_post_go_back_when_the_worker_ends(clock: LoopClock) -> None:
    again = [delivery(n, attempts=1) for n in range(6)]  # each is alone, so two of them are posted and four wait
    async with Bench(clock, *again, batch=TEN, credit=2) as bench:
        bench.endpoint.seconds = 2
        await until(lambda: bench.worker.in_flight == 2)
        bench.worker.end()
        assert bench.running is not None
        await bench.running
        assert len(bench.endpoint.batches) == 2
    released = [d for outcome, ds in bench.subscription.outcomes if outcome is Outcome.RELEASED for d in ds]
    assert {d.attempts for d in released} == {1}
    assert len(released) == 4


async def test_pauses_of_messages_that_failed_together_differ(clock: LoopClock) -> None:
    async with Bench(clock, *(delivery(n) for n in range(10)), batch=TEN) as bench:
        answers: list[EndpointResponse] = [EndpointResponse(500, None)]
        bench.endpoint.batch_script = lambda _: answers.pop(0) if answers else OK
        await until(lambda: len(bench.endpoint.batches) == 11, 0.01)
        times = sorted(at for _, attempt, at in bench.endpoint.posts if attempt == 2)
        assert any(later > earlier for earlier, later in pairwise(times))
