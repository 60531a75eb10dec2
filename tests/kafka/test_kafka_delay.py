"""Delays that outlast the bridge's own window: through delay topics, never early, over deaths of all kinds."""

import asyncio
from contextlib import AsyncExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from adapters.kafka.delay.dispatch import IN_FLIGHT_MAX
from tests.brokers.provide import own_kafka
from tests.conformance.conversation import Conversation, Taken
from tests.kafka.bridged import backend, bridged
from tests.kafka.delays import Watch, committed, due_of, gauge, members, number, value_of, waiting, wall
from tests.kafka.natives import everything, read, topic_of
from tests.launch import Bridge
from tests.trouble import until

HOLD = 200
YEAR = 365 * 24 * 3600 * 1000


def due(message: Taken) -> int:
    return int(message.headers["x-oms-h-borntimestamp"]) + int(message.headers["x-oms-h-delaytime"])


async def produce_many(talk: Conversation, count: int, delay: int, spread: int) -> set[bytes]:
    """Store messages that become due over `spread` ms, in another order than that in which they are stored."""
    bodies = [b"%d" % at for at in range(count)]
    for start in range(0, count, 50):
        await asyncio.gather(
            *(
                talk.produce(body, delaytime=delay + spread * (at * 7919 % count) // count, messagekey=f"key-{at % 7}")
                for at, body in enumerate(bodies[start : start + 50], start)
            )
        )
    return set(bodies)


@pytest.mark.extended
@pytest.mark.parametrize("strict", [pytest.param("true", marks=pytest.mark.extended), "false"])
async def test_it_comes_when_it_is_due_and_once(kafka_servers: str, tmp_path: Path, strict: str) -> None:
    url = backend(kafka_servers, hold=HOLD, strict_delay=strict)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.nothing()
        for delay in 10_000, 3_300, 1_500, 300:
            await talk.produce(b"%d" % delay, (("x-oms-p-colour", "blue"),), delaytime=delay, messagekey="key")
        for delay in 300, 1_500, 3_300, 10_000:
            message = await talk.take()
            assert message.body == b"%d" % delay
            assert wall() >= due(message)
            assert (message.count, message.headers["x-oms-p-colour"]) == (1, "blue")
            assert message.headers["x-oms-h-messagekey"] == "key"
            await talk.ack(message.receipt)
        await talk.nothing()
        assert len(everything(kafka_servers, talk.destination)) == 4


@pytest.mark.parametrize("strict", ["true", pytest.param("false", marks=pytest.mark.extended)])
async def test_messages_of_a_key_that_are_due_together_keep_their_order(
    kafka_servers: str, tmp_path: Path, strict: str
) -> None:
    async with bridged(tmp_path, backend(kafka_servers, hold=1_000, strict_delay=strict)) as (_, talk):
        await talk.produce(b"", delaytime=YEAR)
        for delay in (3_000, 30_000):  # the second only for a machine that takes longer than the first to send them all
            born = wall()
            for at in range(60):  # by ways that part: at first over 1s and 1s, later over 1s only, the last over none
                await talk.produce(b"%d" % at, borntimestamp=born, delaytime=delay, messagekey="key")
                await asyncio.sleep(max(0, born + 30 * at - wall()) / 1000)
            all_waited = wall() < born + delay - 1_000  # sent before the first are moved on, which later ones overtake
            await asyncio.sleep(max(0, born + delay - wall()) / 1000)
            bodies = [int(each.body) for each in await talk.take_all(60)]
            if all_waited:
                break
        assert all_waited
        assert bodies == list(range(60))


async def test_strict_hides_it_from_native_consumers_until_it_is_due(kafka_servers: str, tmp_path: Path) -> None:
    url = backend(kafka_servers, hold=3_000, strict_delay="true")
    async with AsyncExitStack() as stack:
        _, talk = await stack.enter_async_context(bridged(tmp_path, url))
        await talk.produce(b"first")
        watches = [
            stack.enter_context(Watch(kafka_servers, talk.destination, isolation).looking())
            for isolation in ("read_committed", "read_uncommitted")
        ]
        for delay in 500, 1_200, 2_600:
            await talk.produce(b"%d" % delay, delaytime=delay)
        seen = [(await asyncio.to_thread(watch.wait_for, 4))[1:] for watch in watches]
        moments = {record.value: due_of(record) for record in everything(kafka_servers, talk.destination)[1:]}
        assert [{value for _, value in each} for each in seen] == [moments.keys()] * 2
        assert all(moment >= moments[value] for each in seen for moment, value in each)


@pytest.mark.extended
async def test_without_strict_the_window_waits_out_the_rest(kafka_servers: str, tmp_path: Path) -> None:
    async with bridged(tmp_path, backend(kafka_servers, hold=6_000)) as (_, talk):
        await talk.nothing()
        await talk.produce(b"body", delaytime=7_500)
        [record] = await asyncio.to_thread(read, kafka_servers, talk.destination, 1)
        assert wall() < due_of(record), "the record is in its topic ahead of time"
        message = await talk.take()
        assert wall() >= due(message)


@pytest.mark.extended
@pytest.mark.parametrize("instance", [{}, {"instance": "one"}], ids=["nameless", "named"])
async def test_kill_9_while_messages_wait_and_are_moved(
    kafka_servers: str, tmp_path: Path, instance: dict[str, str]
) -> None:
    url = backend(kafka_servers, hold=HOLD, **instance)
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        bodies = await produce_many(talk, 400, 2_000, 2_000)
        with Watch(kafka_servers, talk.destination, "read_uncommitted").looking() as watch:
            await asyncio.to_thread(watch.wait_for, 100)
            bridge.kill()
        assert len(watch.seen) < 400, "it was killed in the middle"
    async with bridged(tmp_path / "second", url) as (bridge, _):
        await _all_moved(bridge, kafka_servers, talk, bodies)


@pytest.mark.extended
async def test_kill_9_of_the_broker(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka") as kafka:
        async with bridged(tmp_path / "bridge", backend(kafka.bootstrap, hold=HOLD)) as (bridge, talk):
            bodies = await produce_many(talk, 200, 2_000, 3_000)
            with Watch(kafka.bootstrap, talk.destination, "read_committed").looking() as watch:
                await asyncio.to_thread(watch.wait_for, 50)
                kafka.kill()
            assert len(watch.seen) < 200, "it was killed in the middle"
            await asyncio.to_thread(kafka.start)
            await _all_moved(bridge, kafka.bootstrap, talk, bodies)


@pytest.mark.extended
async def test_two_bridges_share_the_work_and_one_takes_over(kafka_servers: str, tmp_path: Path) -> None:
    prefix = _prefix()
    url = backend(kafka_servers, hold=HOLD, prefix=prefix)
    async with bridged(tmp_path / "first", url) as (first, talk):
        await talk.produce(b"for long", delaytime=YEAR)
        bodies = await produce_many(talk, 200, 15_000, 1_000)
        await until(lambda: gauge(first, "delayed_held") == 201, lambda: "one bridge holds all")
        async with bridged(tmp_path / "second", url) as (second, _):
            await until(lambda: members(kafka_servers, prefix) == [18, 18], lambda: members(kafka_servers, prefix))
            assert not everything(kafka_servers, talk.destination), "half of them were handed over on their way"
            await asyncio.to_thread(read, kafka_servers, talk.destination, 200, isolation="read_committed")
            assert gauge(first, "delayed_moved_total") > 0
            assert gauge(second, "delayed_moved_total") > 0
            bodies |= {b"left behind %d" % at for at in range(8)}
            await asyncio.gather(*(talk.produce(body, delaytime=1_500) for body in bodies if b"left" in body))
            second.kill()
        await _all_moved(first, kafka_servers, talk, bodies)


async def test_a_year_waits_over_a_restart_where_it_began(kafka_servers: str, tmp_path: Path) -> None:
    prefix = _prefix()
    url = backend(kafka_servers, hold=HOLD, prefix=prefix)
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        await talk.produce(b"next year", delaytime=YEAR, messagekey="key")
        await until(lambda: gauge(bridge, "delayed_held") == 1, lambda: "it is held")
        assert bridge.terminate() == 0
    async with bridged(tmp_path / "second", url) as (bridge, talk):
        await until(lambda: gauge(bridge, "delayed_held") == 1, lambda: "it is held again")
        await talk.produce(b"soon", delaytime=1_200, messagekey="key")
        assert (await talk.take()).body == b"soon"
        assert gauge(bridge, "delayed_held") == 1
    top = f"{prefix}delay.2097152s"
    [record] = everything(kafka_servers, top)
    assert (record.value, record.key) == (b"next year", b"key")
    assert number(record, "oms_d_due") == due_of(record)
    assert {at.offset for part, at in committed(kafka_servers, prefix).items() if part.topic == top} <= {0}


@pytest.mark.extended
async def test_what_has_expired_when_a_bridge_comes_back_is_dropped(kafka_servers: str, tmp_path: Path) -> None:
    url = backend(kafka_servers, hold=HOLD, prefix=_prefix())
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        born = wall()
        await talk.produce(b"gone", borntimestamp=born, delaytime=2_000, expiretime=born + 2_001)
        await talk.produce(b"kept", borntimestamp=born, delaytime=2_000, expiretime=born + 60_000)
        await talk.produce(b"never expires", borntimestamp=born, delaytime=2_100, expiretime=born - 1)
        assert bridge.terminate() == 0
    await asyncio.sleep(max(0, born + 2_001 - wall()) / 1000)
    async with bridged(tmp_path / "second", url) as (bridge, _):
        records = await asyncio.to_thread(read, kafka_servers, talk.destination, 2, isolation="read_committed")
        assert sorted(map(value_of, records)) == [b"kept", b"never expires"]
        await until(lambda: gauge(bridge, "delayed_expired_total") == 1, lambda: "one is counted")
        assert gauge(bridge, "delayed_held") == 0
    assert len(everything(kafka_servers, talk.destination)) == 2


@pytest.mark.extended
async def test_a_destination_that_has_gone_holds_up_no_other(kafka_servers: str, tmp_path: Path) -> None:
    gone, there = (topic_of(kafka_servers, 1) for _ in range(2))
    async with bridged(tmp_path, backend(kafka_servers, hold=HOLD, create="false")) as (bridge, talk):
        await asyncio.gather(
            *(talk.produce(b"body", destination=topic, delaytime=4_000) for topic in (gone, there) * 5),
        )
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.delete_topics([gone])
        await asyncio.to_thread(read, kafka_servers, there, 5)
        await until(lambda: gauge(bridge, "delayed_put_off") == 1, lambda: bridge.log)
        await talk.produce(b"later", destination=there, delaytime=1_000)
        await asyncio.to_thread(read, kafka_servers, there, 6)
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.create_topics({gone: {"num_partitions": 1}})
        await asyncio.to_thread(read, kafka_servers, gone, 5)
        await until(lambda: gauge(bridge, "delayed_put_off") == 0, lambda: bridge.log)
        assert bridge.log.count("cannot be forwarded now") == 1


@pytest.mark.extended
async def test_a_destination_that_has_gone_is_made_again(kafka_servers: str, tmp_path: Path) -> None:
    topic = topic_of(kafka_servers, 3)
    async with bridged(tmp_path, backend(kafka_servers, hold=HOLD)) as (_, talk):
        await talk.produce(b"body", destination=topic, delaytime=2_000)
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.delete_topics([topic])
        await until(lambda: bool(_count(kafka_servers, topic)), lambda: "the message has come")


@pytest.mark.extended
async def test_a_record_that_is_too_large_holds_up_no_other(kafka_servers: str, tmp_path: Path) -> None:
    narrow = topic_of(kafka_servers, 1, **{"max.message.bytes": "2000"})
    async with bridged(tmp_path, backend(kafka_servers, hold=HOLD)) as (bridge, talk):
        bodies = [b"small %d" % at for at in range(6)]
        await asyncio.gather(
            *(
                talk.produce(body, destination=narrow, delaytime=2_000)
                for body in (*bodies[:3], b"large" * 1000, *bodies[3:])
            )
        )
        records = await asyncio.to_thread(read, kafka_servers, narrow, 6, isolation="read_committed")
        assert sorted(map(value_of, records)) == bodies
        await until(lambda: gauge(bridge, "delayed_put_off") == 1, lambda: bridge.log)
        await talk.produce(b"more", destination=narrow, delaytime=1_000)
        await asyncio.to_thread(read, kafka_servers, narrow, 7, isolation="read_committed")


@pytest.mark.extended
async def test_what_was_forwarded_is_deleted(kafka_servers: str, tmp_path: Path) -> None:
    prefix = _prefix()
    async with bridged(tmp_path, backend(kafka_servers, hold=HOLD, prefix=prefix)) as (bridge, talk):
        await talk.produce(b"next year", delaytime=YEAR)
        await produce_many(talk, 20, 2_500, 200)
        await talk.take_all(20)
        assert waiting(kafka_servers, prefix)["1s"] == 20
        assert bridge.terminate() == 0
    assert +waiting(kafka_servers, prefix) == {"2097152s": 1}


async def _all_moved(bridge: Bridge, servers: str, talk: Conversation, bodies: set[bytes]) -> None:
    """Everything comes, and of what was in flight at a kill some twice."""

    def there() -> list[bytes]:
        return list(map(value_of, everything(servers, talk.destination, isolation="read_committed")))

    await until(lambda: set(there()) == bodies, lambda: len(there()))
    await until(lambda: gauge(bridge, "delayed_held") in {0, 1}, lambda: "nothing is held but for a year")
    found = there()
    doubled = len(found) - len(bodies)
    print(f"\n{doubled} of {len(bodies)} delayed messages are doubled")  # noqa: T201 - a measurement
    assert set(found) == bodies
    assert doubled <= IN_FLIGHT_MAX


def _count(servers: str, topic: str) -> int:
    try:
        return len(everything(servers, topic))
    except (KafkaError, ValueError):  # there is none, or it is just being made
        return 0


def _prefix() -> str:
    return f"t{uuid4().hex[:8]}."
