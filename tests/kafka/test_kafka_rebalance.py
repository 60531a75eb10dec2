"""Several members of one group, and brokers that go away: what moves, what is kept, what is never answered wrongly."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from adapters.base import Delivery, Outcome
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown
from tests.brokers.kafka import Kafka
from tests.kafka.members import LARGE, Reader, client_threads, committed, fill, make, numbers, reader, until

pytestmark = pytest.mark.usefixtures("patient_join")


@pytest.fixture
def own(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


async def test_partitions_go_to_a_second_member_with_all_that_is_known_of_them(kafka_servers: str) -> None:
    topic = make(kafka_servers, 4)
    fill(kafka_servers, topic, 80, 4)
    async with reader(kafka_servers, topic) as first:
        out = await first.take(80)
        first.out = {key: each._replace(attempts=2) for key, each in first.out.items()}
        acknowledged = [each for each in out if int(each.message.body) // 4 % 2]
        await first.ack(acknowledged)
        async with reader(kafka_servers, topic) as second:
            await until(lambda: second.gauge("held_partitions") == 2)
            assert sorted(first.revoked) == sorted(set(range(4)) - {key[0] for key in first.out})
            assert first.gauge("held_partitions") == 2
            again = await second.take(20)
            assert {each.partition for each in again} == set(first.revoked)
            assert {each.attempts for each in again} == {2}
            assert numbers(again) == [n for n in range(80) if n % 4 in first.revoked and not n // 4 % 2]
            assert not second.now()
            assert not first.now()  # what stays is not disturbed
            await first.ack(list(first.out.values()))
            await second.ack(again)
        await until(lambda: first.gauge("held_partitions") == 4)
        assert not first.now()
    assert {place.partition: at.offset for place, at in committed(kafka_servers, topic).items()} == dict.fromkeys(
        range(4), 20
    )


@pytest.mark.extended
async def test_members_that_come_and_go_lose_nothing_and_confirm_nothing_twice(kafka_servers: str) -> None:
    topic, count = make(kafka_servers, 6), 3000
    confirmed: Counter[int] = Counter()
    doubtful: set[int] = set()
    done = asyncio.Event()

    async def work(one: Reader) -> None:
        while not done.is_set():
            future = one.subscription.fetch(20, LARGE)
            await asyncio.wait((future, asyncio.ensure_future(done.wait())), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                future.cancel()
                return
            if future.exception() is None:
                await one_batch(one, one._lease(future.result()))

    async def one_batch(one: Reader, out: list[Delivery]) -> None:
        await asyncio.sleep(0.005)
        mine = [each for each in out if (each.partition, each.position) in one.out]  # the leases of others have ended
        try:
            await one.ack(mine)
        except BridgeError:
            doubtful.update(numbers(mine))
        else:
            confirmed.update(numbers(mine))

    async with AsyncExitStack() as stack:
        tasks = []
        for at in range(3):
            one = await stack.enter_async_context(reader(kafka_servers, topic))
            tasks.append(asyncio.create_task(work(one)))
            await asyncio.to_thread(fill, kafka_servers, topic, 1000, 6, first=at * 1000)
        async with reader(kafka_servers, topic) as passing:
            await until(partial(passing.gauge, "held_partitions"))
        await until(lambda: len(confirmed | Counter(doubtful)) == count)
        done.set()
        await asyncio.gather(*tasks)
    twice = {number for number, times in confirmed.items() if times > 1}
    assert twice <= doubtful
    async with reader(kafka_servers, topic) as last:
        assert set(numbers(last.now())) <= doubtful - set(confirmed)


@pytest.mark.extended
async def test_an_acknowledgement_of_a_partition_that_goes_is_never_confirmed_wrongly(kafka_servers: str) -> None:
    topic = make(kafka_servers, 2)
    fill(kafka_servers, topic, 2000, 2)
    async with reader(kafka_servers, topic) as first:
        out = await first.take(2000)
        answers: dict[int, str] = {}
        moved = asyncio.Event()

        async def acknowledge() -> None:
            for each in sorted(out, key=lambda each: each.position):
                try:
                    await asyncio.wait_for(first.ack([each]), 60)
                except (OutcomeUnknown, BackendUnavailable) as error:
                    answers[int(each.message.body)] = type(error).__name__
                else:
                    answers[int(each.message.body)] = "confirmed"
                await asyncio.sleep(0.002 if moved.is_set() else 0.02)  # some are left when the partition moves

        task = asyncio.create_task(acknowledge())
        await until(lambda: len(answers) > 50)
        async with reader(kafka_servers, topic) as second:
            await until(lambda: second.gauge("held_partitions") == 1)
            again = set(numbers(await second.take(1) + second.now()))
            moved.set()
            await until(task.done, 60)
            await task
            gone = {n for n in range(2000) if n % 2 in first.revoked}
            assert again <= gone
            assert not {n for n in again if answers[n] == "confirmed"}
            assert {n for n in range(2000) if answers[n] == "confirmed"} >= set(range(2000)) - gone


@pytest.mark.extended
async def test_the_partitions_of_a_member_that_leaves_go_to_the_others(kafka_servers: str) -> None:
    topic = make(kafka_servers, 2)
    async with reader(kafka_servers, topic) as first:
        async with reader(kafka_servers, topic) as second:
            await until(lambda: second.gauge("held_partitions") == 1)
            await asyncio.to_thread(fill, kafka_servers, topic, 10, 2)
            mine = await second.take(5)
            await second.ack(mine[:2])
        rest = await first.take(8)
        assert len(rest) == 8
        assert not {(d.partition, d.position) for d in rest} & {(d.partition, d.position) for d in mine[:2]}
        assert {each.attempts for each in rest} == {0}


@pytest.mark.extended
async def test_a_restart_under_the_same_instance_disturbs_nobody(kafka_servers: str) -> None:
    topic = make(kafka_servers, 2)
    async with reader(kafka_servers, topic, instance="one") as first:
        async with reader(kafka_servers, topic, instance="two") as second:
            await until(lambda: second.gauge("held_partitions") == 1)
            before = sorted(second.subscription._buffer.held)
        first.revoked.clear()
        async with reader(kafka_servers, topic, instance="two") as second:
            await until(lambda: second.gauge("held_partitions") == 1)
            assert sorted(second.subscription._buffer.held) == before
            assert first.gauge("held_partitions") == 1
            assert not first.revoked


@pytest.mark.extended
async def test_a_broker_that_restarts_is_waited_for(own: Kafka) -> None:
    topic = make(own.bootstrap, 2)
    fill(own.bootstrap, topic, 10, 2)
    async with reader(own.bootstrap, topic) as one:
        out = await one.take(10)
        await one.ack(out[:3])
        await asyncio.to_thread(own.kill)
        settling = one.subscription.settle(out[3:6], Outcome.SETTLED)
        await asyncio.wait((settling,), timeout=20)
        assert isinstance(settling.exception(), (BackendUnavailable, OutcomeUnknown))
        await asyncio.to_thread(own.start)
        await asyncio.to_thread(fill, own.bootstrap, topic, 4, 2)
        came = await one.take(4, 60)
        while len(seen := [each for each in came if each.position >= 5]) < 4:
            came += await one.take(1, 60)  # leases may have been lost with the membership: what was out comes again
        await until(lambda: sum(at.offset for at in committed(own.bootstrap, topic).values()) > 0)
        await one.ack(seen)
    async with reader(own.bootstrap, topic) as one:
        # of what nobody knew whether it was settled, what came again is open still
        settled = {*_places(out[:3]), *(_places(out[3:6]) - _places(came)), *_places(seen)}
        again = await one.take(14 - len(settled))
        assert _places(again).isdisjoint(settled)
        assert not one.now()


def _places(deliveries: Iterable[Delivery]) -> set[tuple[int, int]]:
    return {(each.partition, each.position) for each in deliveries}


@pytest.mark.extended
async def test_leaving_a_broker_that_is_gone_takes_a_moment(own: Kafka) -> None:
    topic = make(own.bootstrap)
    fill(own.bootstrap, topic, 2)
    before = client_threads()
    async with reader(own.bootstrap, topic) as one:
        [first, _] = await one.take(2)
        await asyncio.to_thread(own.kill)
        one.subscription.settle([first], Outcome.SETTLED)
        await asyncio.wait_for(one.close(), 10)
        await until(lambda: client_threads() <= before, 90)
    await asyncio.to_thread(own.start)
