"""What a `GroupMember` promises to its subclasses."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest
from kafka import KafkaProducer, TopicPartition

from adapters.kafka.consume.commit_metadata import CHARACTERS_MAX
from adapters.kafka.mapping import Commit, Part, Record
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, NotStored, OutcomeUnknown
from tests.brokers.kafka import Kafka
from tests.kafka.driven import SECONDS, Listener, consuming, leaving_nothing, lively, new_group, options_of
from tests.kafka.members import committed, fill, make, throw_out, until

pytestmark = pytest.mark.usefixtures("patient_join")


@pytest.fixture
def own(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


async def test_a_record_arrives_as_it_was_stored(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as producer:
        headers = [("b", b"1"), ("a", b""), ("b", bytes(range(256))), ("", b"unnamed"), ("ünï", b"\xff")]
        producer.send(topic, b"\0\xff", b"", headers, timestamp_ms=1)
        producer.send(topic, None, b"gone", [], timestamp_ms=2)
        producer.send(topic, b"", None, [], timestamp_ms=3)
    async with consuming(kafka_servers, topic) as seen:
        await until(lambda: seen.count == 3)
    [[full, gone, empty]] = seen.records.values()
    assert full[:6] == (topic, 0, 0, 1, b"", b"\0\xff")
    assert list(full.headers) == headers
    assert gone[:6] == (topic, 0, 1, 2, b"gone", None)
    assert not gone.headers
    assert empty[:6] == (topic, 0, 2, 3, None, b"")


async def test_joining_misses_nothing_that_lay_there(kafka_servers: str) -> None:
    topic = make(kafka_servers, 8)
    fill(kafka_servers, topic, 4000, 7)
    async with leaving_nothing(), lively(), consuming(kafka_servers, topic) as seen:
        assert seen.held == {Part(topic, n): None for n in range(8)}
        assert [len(seen.records[Part(topic, n)]) > 0 for n in range(8)] == [True] * 7 + [False]
        await until(lambda: seen.count == 4000)
    for part, records in seen.records.items():
        assert [int(each.value or b"") for each in records] == list(range(part.partition, 4000, 7))[: len(records)]


async def test_what_was_rolled_back_and_markers_are_not_seen_and_not_waited_for(kafka_servers: str) -> None:
    topic, group = make(kafka_servers, 2), new_group()
    with closing(KafkaProducer(bootstrap_servers=kafka_servers, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"kept", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"rolled back", partition=1).get(60)  # one that was not sent would leave no trace
        producer.abort_transaction()
    async with consuming(kafka_servers, topic, group) as seen:
        assert [each.value for records in seen.records.values() for each in records] == [b"kept"]
        await seen.commit({Part(topic, 0): Commit(1, "")})
    # At a marker now, with nothing behind it: a first record would be waited for ten minutes.
    async with asyncio.timeout(SECONDS), consuming(kafka_servers, topic, group) as seen:
        assert not seen.count


async def test_commits_are_found_by_whoever_comes_next(kafka_servers: str) -> None:
    topic, group = make(kafka_servers, 3), new_group()
    fill(kafka_servers, topic, 30, 3)
    text = "".join(chr(33 + n % 94) for n in range(CHARACTERS_MAX))
    async with consuming(kafka_servers, topic, group) as consumer:
        for offset in range(1, 6):
            await asyncio.wait_for(consumer.commit({Part(topic, 0): Commit(offset, text)}), SECONDS)
        await consumer.commit({})
        await consumer.close({Part(topic, 1): Commit(7, "")})
    # A NUL is behind it: confluent-kafka reads up to one, and without it reads on into what lies behind.
    assert committed(kafka_servers, group)[TopicPartition(topic, 0)].metadata == f"{text}\0"
    async with consuming(kafka_servers, topic, group) as seen:
        assert seen.held == {
            Part(topic, 0): Commit(5, text),
            Part(topic, 1): Commit(7, ""),
            Part(topic, 2): None,
        }
        await until(lambda: seen.count == 5 + 3 + 10)
        assert [seen.records[Part(topic, n)][0].offset for n in range(3)] == [5, 7, 0]


async def test_a_commit_that_cannot_be_written_says_so(kafka_servers: str) -> None:
    topic = make(kafka_servers)
    async with consuming(kafka_servers, topic) as consumer:
        with pytest.raises((NotStored, OutcomeUnknown)):
            await consumer.commit({Part(topic, 0): Commit(1, "x" * 5000)})
        await consumer.commit({Part(topic, 0): Commit(1, "x")})
    with pytest.raises(BackendUnavailable):
        await consumer.commit({Part(topic, 0): Commit(2, "x")})


async def test_what_is_revoked_is_committed_before_the_next_owner_begins(kafka_servers: str) -> None:
    topic, group = make(kafka_servers, 4), new_group()
    fill(kafka_servers, topic, 80, 4)
    patient = {"session": 60_000}  # above what is waited for here: who leaves has to say so
    async with lively(), consuming(kafka_servers, topic, group, **patient) as first:
        first.parting = {Part(topic, n): Commit(10 + n, f"from the first {n}") for n in range(4)}
        async with consuming(kafka_servers, topic, group, **patient) as second:
            await until(lambda: len(second.held) == 2)
            assert sorted(first.went) == sorted(second.held)
            assert not first.losses
            assert second.held == {part: first.parting[part] for part in first.went}
            await until(lambda: second.count == sum(20 - first.parting[part].offset for part in first.went))
            assert {part: records[0].offset for part, records in second.records.items()} == {
                part: first.parting[part].offset for part in first.went
            }
        await until(lambda: len(first.held) == 4)
        assert not second.went  # leaving is not being revoked


async def test_a_member_may_have_nothing(kafka_servers: str) -> None:
    topic, group = make(kafka_servers), new_group()
    async with consuming(kafka_servers, topic, group) as first:
        async with consuming(kafka_servers, topic, group) as second:
            await until(lambda: len(first.held) + len(second.held) == 1)
        await until(lambda: len(first.held) == 1)


@pytest.mark.extended
async def test_what_others_have_already_is_lost_and_comes_back(kafka_servers: str) -> None:
    topic, group = make(kafka_servers), new_group()
    fill(kafka_servers, topic, 3)
    async with consuming(kafka_servers, topic, group, session=3000) as seen:
        seen.parting = {Part(topic, 0): Commit(2, "too late")}
        await asyncio.to_thread(throw_out, kafka_servers, group)
        await until(lambda: seen.losses == [Part(topic, 0)])
        await until(lambda: seen.held == {Part(topic, 0): None})
        await until(lambda: seen.count == 3)  # from the beginning again
        assert not seen.went
        await seen.commit({Part(topic, 0): Commit(1, "")})


async def test_a_paused_partition_goes_on_where_it_stopped(kafka_servers: str) -> None:
    topic, count = make(kafka_servers, 2), 4000
    one, other = (Part(topic, n) for n in range(2))
    fill(kafka_servers, topic, 2, 2)
    async with lively(), consuming(kafka_servers, topic) as seen:
        await until(lambda: seen.count == 2)
        seen.set_paused([one, Part(topic, 77), Part("nonesuch", 0)], paused=True)
        await asyncio.to_thread(fill, kafka_servers, topic, count, 2)
        await until(lambda: len(seen.records[other]) == 1 + count // 2)
        stopped_at = len(seen.records[one])
        assert stopped_at < 1 + count // 2
        await asyncio.to_thread(fill, kafka_servers, topic, 2, 2)
        await until(lambda: len(seen.records[other]) == 2 + count // 2)
        assert len(seen.records[one]) == stopped_at
        seen.set_paused([one], paused=False)
        await until(lambda: len(seen.records[one]) == 2 + count // 2)
        assert [each.offset for each in seen.records[one]] == list(range(2 + count // 2))


async def test_what_is_paused_before_the_first_join_is_complete_goes_on_later(kafka_servers: str) -> None:
    topic, count = make(kafka_servers, 4), 12_000
    fill(kafka_servers, topic, count, 4)
    listener = _Full(options_of(kafka_servers), topic)
    async with leaving_nothing(), lively():
        await listener.join()
        running, *full = sorted(listener.held)
        assert listener.paused == set(full), "each has had a record"
        await until(lambda: len(listener.records[running]) == count // 4)
        assert all(len(listener.records[part]) < count // 4 for part in full)
        listener.set_paused(full, paused=False)
        await until(lambda: listener.count == count)
        await listener.close({})
    for part, records in listener.records.items():
        assert [int(each.value or b"") for each in records] == list(range(part.partition, count, 4))


class _Full(Listener):
    """Pauses each partition but one with its first records, as a full buffer does."""

    def __init__(self, options: Options, topic: str) -> None:
        super().__init__(options, topic)
        self.paused: set[Part] = set()

    def arrived(self, records: Sequence[Record]) -> None:
        super().arrived(records)
        new = {Part(each.topic, each.partition) for each in records if each.partition} - self.paused
        self.paused |= new
        self.set_paused(new, paused=True)


@pytest.mark.extended
async def test_pausing_again_and_again_loses_and_doubles_nothing(kafka_servers: str) -> None:
    topic, count = make(kafka_servers), 30_000
    fill(kafka_servers, topic, count)
    part = Part(topic, 0)
    async with lively(), consuming(kafka_servers, topic) as seen:
        while seen.count < count:
            seen.set_paused([part], paused=True)
            await asyncio.sleep(0.01)
            before = seen.count
            seen.set_paused([part], paused=False)
            await until(lambda: seen.count > before or seen.count == count)  # noqa: B023 - as above
    assert [int(each.value or b"") for each in seen.records[part]] == list(range(count))


async def test_a_pause_ends_with_the_stay(kafka_servers: str) -> None:
    topic, group = make(kafka_servers, 2), new_group()
    async with consuming(kafka_servers, topic, group) as first:
        first.set_paused(list(first.held), paused=True)
        async with consuming(kafka_servers, topic, group):
            await until(lambda: len(first.held) == 1)
        await until(lambda: len(first.held) == 2)
        await asyncio.to_thread(fill, kafka_servers, topic, 2, 2)
        await until(lambda: first.records[first.went[0]])


async def test_nothing_is_left_at_the_end(kafka_servers: str) -> None:
    topic = make(kafka_servers, 4)
    fill(kafka_servers, topic, 4000, 4)
    async with leaving_nothing(), lively(), consuming(kafka_servers, topic) as seen:
        await asyncio.gather(seen.close({}), seen.close({}))
        count = seen.count
        await seen.close({})
    assert seen.count == count
    assert not seen.went
    assert not seen.losses


async def test_without_a_broker_nobody_joins(unused_tcp_port: int) -> None:
    async with leaving_nothing(), lively():
        listener = Listener(options_of(f"127.0.0.1:{unused_tcp_port}"), "topic")
        with pytest.raises(BackendUnavailable, match="refused"):
            await asyncio.wait_for(listener.join(), SECONDS)
        await listener.close({})


@pytest.mark.extended
async def test_a_broker_that_is_killed_is_waited_for(own: Kafka) -> None:
    topic, group = make(own.bootstrap, 2), new_group()
    fill(own.bootstrap, topic, 10, 2)
    async with leaving_nothing(), lively():
        async with consuming(own.bootstrap, topic, group) as seen:
            await until(lambda: seen.count == 10)
            await seen.commit({part: Commit(5, "") for part in seen.held})
            await asyncio.to_thread(own.kill)
            with pytest.raises((BackendUnavailable, OutcomeUnknown)):
                await asyncio.wait_for(seen.commit({part: Commit(4, "") for part in seen.held}), 30)
            await until(lambda: seen.troubles)
            await asyncio.to_thread(own.start)
            await asyncio.to_thread(fill, own.bootstrap, topic, 10, 2, first=10)
            await until(
                lambda: {int(records[-1].value or b"") for records in seen.records.values() if records} == {18, 19}
            )
            assert len(seen.troubles) == 1
            await seen.commit({part: Commit(6, "") for part in seen.held})
        async with consuming(own.bootstrap, topic, group) as again:
            assert again.held == {Part(topic, n): Commit(6, "") for n in range(2)}


@pytest.mark.extended
async def test_leaving_brokers_that_are_away_says_so_and_leaves_nothing(own: Kafka) -> None:
    topic = make(own.bootstrap)
    fill(own.bootstrap, topic, 1)
    async with leaving_nothing(), lively(), consuming(own.bootstrap, topic) as seen:
        await until(lambda: seen.count == 1)
        await asyncio.to_thread(own.kill)
        try:
            with pytest.raises((BackendUnavailable, OutcomeUnknown)):
                await asyncio.wait_for(seen.close({Part(topic, 0): Commit(1, "")}), 20)
        finally:
            await asyncio.to_thread(own.start)
