"""One member of a group: what it is handed, what is remembered, what holds it up and what does not."""

import asyncio
import socket
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import TopicAlreadyExistsError

from adapters.base import Delivery, Outcome
from adapters.kafka.admin import Admin
from adapters.kafka.consume import group_member, poller
from adapters.kafka.consume.poller import Session
from adapters.kafka.names import HIGH, LOW, handle
from bridge.errors import BackendUnavailable, OutcomeUnknown
from bridge.message import Message
from tests.kafka.members import (
    LARGE,
    SECONDS,
    Reader,
    client_threads,
    committed,
    fill,
    make,
    numbers,
    reader,
    throw_out,
    until,
)

pytestmark = pytest.mark.usefixtures("patient_join")


async def test_what_is_acknowledged_out_of_order_does_not_come_again(kafka_servers: str) -> None:
    topic = make(kafka_servers, 2)
    fill(kafka_servers, topic, 40, 2)
    async with reader(kafka_servers, topic) as first:
        out = await first.take(40)
        assert first.subscription.lag == 40
        await first.ack([each for each in out if int(each.message.body) % 3])
        assert first.subscription.lag == 14
    async with reader(kafka_servers, topic) as second:
        again = await second.take(14)
        assert numbers(again) == list(range(0, 40, 3))
        assert not second.now()
        assert second.subscription.lag == 14


async def test_what_is_given_back_does_not_count_and_what_was_leased_does(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    fill(kafka_servers, topic, 3)
    async with reader(kafka_servers, topic) as one:
        out = await one.take(3)
        assert [each.attempts for each in out] == [0, 0, 0]
        one.out[0, 1] = one.out[0, 1]._replace(attempts=4)  # a lease that ended four times
    async with reader(kafka_servers, topic) as one:
        assert [each.attempts for each in await one.take(3)] == [0, 4, 0]


async def test_the_kill_of_the_process_forgets_nothing(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    fill(kafka_servers, topic, 10)
    script = f"""
import asyncio
import socket
from tests.kafka.members import Reader
async def main():
    one = Reader({kafka_servers!r}, {topic!r})
    await one.subscription.join()
    out = await one.take(8)
    await one.ack(out[1::2])
    print("acknowledged", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"acknowledged\n"
    finally:
        child.kill()
        await child.wait()
    await asyncio.to_thread(throw_out, kafka_servers, topic)  # as its session does when it ends, 10 s later
    async with reader(kafka_servers, topic) as one:
        again = await one.take(6)
        assert [(int(each.message.body), each.attempts) for each in again] == [
            (0, 1), (2, 1), (4, 1), (6, 1), (8, 0), (9, 0),
        ]  # fmt: skip


async def test_a_lease_is_counted_though_nothing_is_ever_settled(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    fill(kafka_servers, topic, 1)
    async with reader(kafka_servers, topic) as one:
        await one.take(1)
        await until(lambda: committed(kafka_servers, topic))


async def test_the_first_fetch_misses_nothing(kafka_servers: str) -> None:
    topic = make(kafka_servers, 8)
    fill(kafka_servers, topic, 64, 8)
    async with reader(kafka_servers, topic) as one:
        assert {each.partition for each in one.now()} == set(range(8))


async def test_a_log_that_ends_with_markers_and_gaps_is_not_waited_for(kafka_servers: str) -> None:
    topic = make(kafka_servers, 3)
    with closing(KafkaProducer(bootstrap_servers=kafka_servers, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"0", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=1)
        producer.abort_transaction()
    async with reader(kafka_servers, topic) as one:
        [only] = one.now()
        await one.ack([only])
    # A first record would be waited for ten minutes.
    async with asyncio.timeout(SECONDS), reader(kafka_servers, topic) as one:
        assert not one.now()
        with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as producer:
            for partition in range(3):
                producer.send(topic, b"%d" % partition, partition=partition)
        assert numbers(await one.take(3)) == [0, 1, 2]


async def test_what_is_not_due_is_never_early_and_holds_nothing_up(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    born = time.time_ns() // 1_000_000
    with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as producer:
        for number, delay in enumerate((3000, 1500, 0, 0)):
            headers = [("oms_h_bornTimestamp", b"%d" % born), ("oms_h_delayTime", b"%d" % delay)]
            producer.send(topic, b"%d" % number, headers=headers if delay else [])
    async with reader(kafka_servers, topic) as one:
        assert numbers(await one.take(2)) == [2, 3]
        assert one.gauge("delayed_held") == 2
        for number, delay in ((1, 1500), (0, 3000)):
            while not (found := one.now()):  # noqa: ASYNC110 - each look could find it early
                await asyncio.sleep(0.001)
            [late] = found
            assert time.time_ns() // 1_000_000 >= born + delay
            assert numbers([late]) == [number]
            await one.ack([late])
        assert one.gauge("delayed_held") == 0
        assert one.gauge("buffered_bytes") == 0


async def test_whoever_waits_for_what_is_not_due_gets_it_when_it_is(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    born = time.time_ns() // 1_000_000
    with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as producer:
        producer.send(topic, b"0", headers=[("oms_h_bornTimestamp", b"%d" % born), ("oms_h_delayTime", b"2000")])
    async with reader(kafka_servers, topic) as one:
        assert numbers(await one.take(1)) == [0]
        assert time.time_ns() // 1_000_000 >= born + 2000


async def test_what_is_not_due_yet_comes_again_after_a_restart(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as producer:
        producer.send(topic, b"0", headers=[("oms_h_delayTime", b"4000")])
        producer.send(topic, b"1")
    async with reader(kafka_servers, topic) as one:
        [now] = await one.take(1)
        await one.ack([now])
    async with reader(kafka_servers, topic) as one:
        assert numbers(await one.take(1)) == [0]


async def test_a_full_buffer_is_bounded_and_loses_nothing(kafka_servers: str) -> None:
    topic = make(kafka_servers, 2)
    fill(kafka_servers, topic, 12_000, 2)
    async with reader(kafka_servers, topic) as one:
        await until(lambda: one.gauge("buffered_records") > 1000)
        await asyncio.sleep(0.5)  # for what is on its way
        # Each partition is paused for itself: what it has then, and the five batches that may be under way.
        assert one.gauge("buffered_records") <= 2 * (500 + 5 * 500)
        out = await one.take(12_000)
        for partition in range(2):
            assert [int(d.message.body) for d in out if d.partition == partition] == list(range(partition, 12_000, 2))
        assert not one.now()


@pytest.mark.extended
async def test_fetching_pauses_where_the_commit_could_hold_no_more(kafka_servers: str) -> None:
    topic, count = make(kafka_servers), 30_000
    fill(kafka_servers, topic, count)
    async with reader(kafka_servers, topic) as one:
        got: list[Delivery] = []
        while not one.gauge("paused_partitions"):
            got += await one.take(100)
            await one.ack([each for each in got[-100:] if int(each.message.body) % 4])
        await asyncio.sleep(0.5)  # for what is on its way
        got += one.now()
        assert 20_000 <= len(got) <= 20_000 + 6 * 500
        assert not one.now()
        assert len(committed(kafka_servers, topic)[TopicPartition(topic, 0)].metadata) <= 4096
        await one.ack(list(one.out.values()))
        got += await one.take(count - len(got))
        assert numbers(got) == list(range(count))
        assert one.gauge("paused_partitions") == 0


async def test_the_high_lane_goes_first_and_the_low_one_last(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    for suffix in (HIGH, LOW):
        make(kafka_servers, name=topic + suffix)
    for suffix in (LOW, "", HIGH):
        fill(kafka_servers, topic + suffix, 3)
    async with reader(kafka_servers, topic, lanes=3) as one:
        out = one.now()
        assert [each.partition for each in out] == [handle(lane, 0) for lane in (1, 1, 1, 0, 0, 0, 2, 2, 2)]
        assert {each.message.destination for each in out} == {topic}
        await one.ack(out)
    async with reader(kafka_servers, topic, lanes=3) as one:
        assert not one.now()


async def test_a_fetch_keeps_to_its_limits_and_loses_nothing_when_cancelled(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    fill(kafka_servers, topic, 10, first=10**99)  # 100 bytes each
    async with reader(kafka_servers, topic) as one:
        fetch = one.subscription.fetch
        first = fetch(2, LARGE).result()
        assert len(first) == 2
        few = fetch(10, 5 * first[0].message.size // 2).result()
        assert 1 <= len(few) <= 2, "the size that Kafka keeps of a message is a little larger"
        assert len(fetch(10, 1).result()) == 1
        assert len(fetch(10, LARGE).result()) == 7 - len(few)
        pending = fetch(10, LARGE)
        assert not pending.done()
        pending.cancel()
        fill(kafka_servers, topic, 1)
        assert len(await one.take(1)) == 1


async def test_a_topic_made_anew_begins_anew(kafka_servers: str) -> None:
    await _made_anew(kafka_servers, 7)


async def test_a_topic_made_anew_with_more_records_begins_anew(kafka_servers: str) -> None:
    """Not by its offsets but by the topic's id: the new log is longer than the old one."""
    await _made_anew(kafka_servers, 40)


async def test_partitions_that_are_added_are_consumed(kafka_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "METADATA_AGE", 1_000)
    topic = make(kafka_servers)
    async with reader(kafka_servers, topic) as one:
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.create_partitions({topic: 3})
        await asyncio.to_thread(fill, kafka_servers, topic, 6, 3)
        assert numbers(await one.take(6)) == list(range(6))
        assert not one.revoked


async def test_a_partition_that_is_not_held_is_not_acknowledged(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    fill(kafka_servers, topic, 1)
    async with reader(kafka_servers, topic) as one:
        [only] = await one.take(1)
        strange = only._replace(partition=7)
        with pytest.raises(BackendUnavailable):
            await one.subscription.settle([strange], Outcome.SETTLED)
        await one.subscription.settle([strange], Outcome.LEASED)


@pytest.mark.extended
async def test_another_bridge_with_the_same_instance_takes_over_until_it_leaves(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(kafka_servers)
    monkeypatch.setattr(group_member, "_PAUSES", (0.2,))
    asked, ask = [0], Admin.instances

    async def counted(admin: Admin, group: str) -> set[str]:
        instances = await ask(admin, group)
        asked[0] += 1
        return instances

    monkeypatch.setattr(Admin, "instances", counted)
    async with reader(kafka_servers, topic, instance="same", session=3000) as first:
        pending = first.subscription.fetch(1, LARGE)
        async with reader(kafka_servers, topic, instance="same", session=3000) as second:
            with pytest.raises(BackendUnavailable, match="instance"):
                await asyncio.wait_for(pending, 60)
            assert "instance" in (first.subscription.not_ready_reason or "")
            with pytest.raises(BackendUnavailable, match="instance"):
                await first.subscription.fetch(1, LARGE)
            assert first.gauge("held_partitions") == 0
            fill(kafka_servers, topic, 5)
            await second.ack(await second.take(5))
            await until(lambda: asked[0] > 3)  # attempts to join again: none may remove the other bridge
            fill(kafka_servers, topic, 5, first=5)
            await second.ack(await second.take(5))
            assert second.revoked == []
        fill(kafka_servers, topic, 5, first=10)
        assert numbers(await first.take(5)) == list(range(10, 15))
        assert first.subscription.not_ready_reason is None


async def test_a_member_whose_thread_fails_joins_again(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any defect of a library may end the thread: here its next poll fails once."""
    topic = make(kafka_servers, 2)
    fill(kafka_servers, topic, 10, 2)
    poll = Session.poll

    def fail(*_: object, **__: object) -> None:
        monkeypatch.setattr(Session, "poll", poll)
        raise RuntimeError("a defect")

    async with reader(kafka_servers, topic) as one:
        before = await one.take(10)
        await one.ack(before[:4])
        monkeypatch.setattr(Session, "poll", fail)
        await until(lambda: one.subscription.not_ready_reason)
        with pytest.raises(BackendUnavailable, match="a defect"):
            await one.subscription.fetch(1, LARGE)
        assert sorted(set(one.revoked)) == [0, 1]
        again = await one.take(6)
        assert numbers(again) == numbers(before[4:])
        await one.ack(again)
        assert one.subscription.not_ready_reason is None
    said = [record.message for record in caplog.records if record.name == "bridge.kafka"]
    assert sum("is not a member of the group" in each and "joins again" in each for each in said) == 1
    assert sum("is a member of the group" in each and "again, after" in each for each in said) == 1


async def test_nothing_is_left_of_a_reader(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    before, files = client_threads(), open_files()
    async with reader(kafka_servers, topic) as one:
        pending = one.subscription.fetch(1, LARGE)
    with pytest.raises(BackendUnavailable):
        await pending
    await until(lambda: client_threads() <= before and open_files() <= files)


@pytest.mark.extended
async def test_without_a_broker_joining_says_so_and_leaves_nothing(unused_tcp_port: int) -> None:
    before, files = client_threads(), open_files()
    one = Reader(f"127.0.0.1:{unused_tcp_port}", "topic")
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(one.subscription.join(), 60)
    await until(lambda: client_threads() <= before and open_files() <= files)


async def test_joining_can_be_given_up() -> None:
    before = client_threads()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = Reader(f"127.0.0.1:{silent.getsockname()[1]}", "topic")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.subscription.join(), 0.3)
        await until(lambda: client_threads() <= before)


async def _made_anew(servers: str, count: int) -> None:
    """Delete a topic of 20 records under a reader, make it again with `count` records, and read those."""
    topic = make(servers)
    fill(servers, topic, 20)
    async with reader(servers, topic) as one:
        out = await one.take(20)
        await one.ack(out[5:])
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            admin.delete_topics([topic])
        await asyncio.to_thread(made_again, servers, topic)
        fill(servers, topic, count)
        await until(lambda: 0 in one.revoked)
        again: list[Delivery] = []
        while not again:
            # The new log is noticed by its offsets and by the topic's id: what came in between is revoked once more.
            while {position for _, position in one.out} != set(range(count)):
                await one.take(1)
            again = sorted(one.out.values(), key=lambda each: each.position)
            try:
                await one.ack(again[:3])
            except (BackendUnavailable, OutcomeUnknown):
                again = []
        assert [(each.position, int(each.message.body), each.attempts) for each in again] == [
            (n, n, 0) for n in range(count)
        ]
    async with reader(servers, topic) as one:
        assert numbers(await one.take(count - 3)) == list(range(3, count))


def made_again(servers: str, topic: str) -> None:
    """Create a topic that was just deleted, once its name is free."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            make(servers, name=topic)
        except TopicAlreadyExistsError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def open_files() -> int:
    """Number of files and sockets of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_parked_messages_that_retention_has_removed_are_not_fetched_again(kafka_servers: str) -> None:
    """In one partition some of them, in the other all."""
    topic = make(kafka_servers, 2)
    fill(kafka_servers, topic, 3000, 2)
    async with reader(kafka_servers, topic) as one:
        out = await one.take(3000)
        parked = [each._replace(message=Message("")) for each in out if each.position in {0, 1, 700, 701, 1400, 1499}]
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.delete_records({TopicPartition(topic, 0): 701, TopicPartition(topic, 1): 1500})
        async with asyncio.timeout(SECONDS):
            again = await one.subscription.fetch_again(parked)
        kept = {each.position: each.message for each in out if each.message.partition == 0}
        assert {each.position: each.message for each in again} == {n: kept[n] for n in (701, 1400, 1499)}
        await one.close()
        with pytest.raises(BackendUnavailable):
            await asyncio.wait_for(one.subscription.fetch_again(parked), SECONDS)
