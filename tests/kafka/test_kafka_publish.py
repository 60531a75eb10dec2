"""Producing with kafka-python to a real Kafka: each record is stored, not stored, refused or unknown."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.producer.record_accumulator import RecordAccumulator

from adapters.base import Stored
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import Client, Options
from adapters.kafka.produce import batch_sender
from adapters.kafka.produce.kafka_python_producer import KafkaPythonProducer
from adapters.kafka.produce.publisher import Publisher
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    NotStored,
    Refused,
)
from tests.brokers.ports import held_port
from tests.kafka.clients import consume, new_topic
from tests.kafka.each_client import BOTH_CLIENTS
from tests.kafka.natives import COMPRESSIONS
from tests.trouble import until

_number = count()


async def test_a_message_is_stored_where_the_reply_says(kafka_servers: str) -> None:
    topic = _topic(kafka_servers, partitions=3)
    record = Outgoing(topic, 2, 1_700_000_000_123, b"key", b"body", [("a", b"1"), ("b", b"\xff"), ("a", b"")])
    async with _publisher(kafka_servers) as publisher:
        assert await publisher.send(record) == Stored(2, 0)
        assert await publisher.send(record._replace(key=None, headers=[])) == Stored(2, 1)
    with closing(KafkaConsumer(bootstrap_servers=kafka_servers, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 2)])
        first, second = _read(consumer, 2)
    assert (first.timestamp, first.key, first.value) == record[2:5]
    assert [tuple(header) for header in first.headers] == list(record.headers)
    assert (second.key, list(second.headers)) == (None, [])


async def test_concurrent_messages_keep_their_order(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _publisher(kafka_servers) as publisher:
        sent = [publisher.send(_record(topic, b"%d" % each)) for each in range(5000)]
        stored = await asyncio.gather(*sent)
    assert [where.offset for where in stored] == list(range(5000))
    assert consume(kafka_servers, topic, 5000) == [b"%d" % each for each in range(5000)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_batches_are_compressed(kafka_servers: str, compression: str) -> None:
    topic = new_topic(kafka_servers)
    async with _publisher(kafka_servers, compression=compression) as publisher:
        await asyncio.gather(*(publisher.send(_record(topic, b"x" * 1000)) for _ in range(50)))
    assert consume(kafka_servers, topic, 50) == [b"x" * 1000] * 50


@BOTH_CLIENTS
async def test_a_message_that_is_too_large_is_refused_and_its_neighbours_are_stored(
    kafka_servers: str, client: Client
) -> None:
    small, other = _topic(kafka_servers, configs={"max.message.bytes": "2000"}), new_topic(kafka_servers)
    bodies = [b"%d" % each if each % 10 else b"x" * 3000 for each in range(200)]
    async with _publisher(kafka_servers, client=client) as publisher:
        sent = [publisher.send(_record(topic, body)) for body in bodies for topic in (small, other)]
        results = await asyncio.gather(*sent, return_exceptions=True)
        again = await publisher.send(_record(small, b"after"))
    in_small, in_other = results[::2], results[1::2]
    fitting = [body for body in bodies if len(body) < 2000]
    assert all(isinstance(r, BodyTooLarge) == (len(body) > 2000) for r, body in zip(in_small, bodies, strict=True))
    offsets = [r.offset for r in in_small if isinstance(r, Stored)]
    assert (sorted(int(each or 0) for each in offsets) if client == "confluent" else offsets) == list(
        range(len(fitting))
    )
    assert [r.offset for r in in_other if isinstance(r, Stored)] == list(range(len(bodies)))
    assert again == Stored(0, len(fitting))
    found = consume(kafka_servers, small, len(fitting) + 1)
    assert sorted(found) == sorted([*fitting, b"after"])
    assert client == "confluent" or found == [*fitting, b"after"]


@BOTH_CLIENTS
async def test_messages_that_only_together_are_too_large_are_stored(kafka_servers: str, client: Client) -> None:
    topic = _topic(kafka_servers, configs={"max.message.bytes": "5000"})
    async with _publisher(kafka_servers, client=client) as publisher:
        stored = await asyncio.gather(*(publisher.send(_record(topic, bytes(500))) for _ in range(100)))
    assert sorted(int(where.offset or 0) for where in stored) == list(range(100))


async def test_a_message_beyond_any_request_is_not_even_sent(kafka_servers: str) -> None:
    async with _publisher(kafka_servers) as publisher:
        with pytest.raises(BodyTooLarge):
            await publisher.send(_record(new_topic(kafka_servers), bytes(65 << 20)))


@BOTH_CLIENTS
@pytest.mark.parametrize("total", [3, 50])
async def test_a_record_against_the_rules_is_refused_and_its_neighbours_are_stored(
    kafka_servers: str, client: Client, total: int
) -> None:
    topic = _topic(kafka_servers, configs={"cleanup.policy": "compact"})
    keys = [None if each % 7 == 1 else b"%d" % each for each in range(total)]
    async with _publisher(kafka_servers, client=client) as publisher:
        sent = [publisher.send(_record(topic, b"1", key=key)) for key in keys]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert [isinstance(result, Refused) for result in results] == [key is None for key in keys]
        assert [isinstance(result, Stored) for result in results] == [key is not None for key in keys]
        assert (await publisher.send(_record(topic, b"2", key=b"a"))).offset == total - keys.count(None)


async def test_a_time_far_off_is_refused(kafka_servers: str) -> None:
    topic = _topic(kafka_servers, configs={"message.timestamp.before.max.ms": "60000"})
    async with _publisher(kafka_servers) as publisher:
        with pytest.raises(Refused, match="clocks"):
            await publisher.send(_record(topic, b"old")._replace(timestamp=1))
        assert (await publisher.send(_record(topic, b"new"))).offset == 0


async def test_a_topic_that_is_deleted_in_use(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _publisher(kafka_servers) as publisher:
        gone: list[str] = []
        publisher.on_removed = gone.append
        assert (await publisher.send(_record(topic, b"1"))).offset == 0
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.delete_topics([topic])
        with pytest.raises(NotStored, match="just been deleted"):
            await _send_until_refused(publisher, topic)
        assert set(gone) == {topic}
        assert await publisher.partitions(topic) is None
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
        assert await publisher.partitions(topic) == 1
        assert (await publisher.send(_record(topic, b"3"))).offset == 0


async def test_a_topic_that_nobody_may_create_is_unknown(kafka_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "_MISSING", 0.2)
    async with _publisher(kafka_servers, create=False) as publisher:
        with pytest.raises(BackendUnavailable, match="just been deleted"):
            await publisher.send(_record("never-created", b""))
        # and it is not asked for any more, which would be done ten times a second
        assert isinstance(publisher._producer, KafkaPythonProducer)
        wanted = publisher._producer._client.cluster
        await until(lambda: not wanted._topics, lambda: wanted._topics)


async def test_asking_creates_nothing(kafka_servers: str) -> None:
    producer = KafkaPythonProducer(Options((kafka_servers,)))
    await producer.start()
    assert await producer.partitions("only-asked-for") is None
    assert await producer.partitions("only-asked-for") is None
    # the tests' brokers would not, others do by default: requests that the library makes itself must say so as well
    assert not producer._client.cluster.metadata_request().allow_auto_topic_creation
    await producer.close(0)


async def test_a_sender_that_dies_is_replaced(kafka_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(kafka_servers)
    monkeypatch.setattr(batch_sender, "_FAILED_ROUNDS_MAX", 2)
    async with _publisher(kafka_servers) as publisher:
        assert (await publisher.send(_record(topic, b"1"))).offset == 0
        with monkeypatch.context() as broken:
            broken.setattr(RecordAccumulator, "ready", _break)
            with pytest.raises(NotStored):  # it was never sent, and that is certain
                await publisher.send(_record(topic, b"2"))
        assert await _send_until_stored(publisher, topic) == 1
        assert len(_threads()) == 1


async def test_closing_sends_what_was_accepted(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    publisher = Publisher(Options((kafka_servers,), client="kafka-python"))
    await publisher.start()
    sent = [publisher.send(_record(topic, b"%d" % each)) for each in range(1000)]
    await publisher.close()
    assert await asyncio.gather(*sent) == [Stored(0, each) for each in range(1000)]
    with pytest.raises(BackendUnavailable):
        await publisher.send(_record(topic, b"late"))
    with pytest.raises(BackendUnavailable):
        await publisher.partitions(topic)
    await publisher.close()
    assert not _threads()


async def test_a_caller_that_no_longer_waits_withdraws_nothing(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _publisher(kafka_servers) as publisher:
        publisher.send(_record(topic, b"1")).cancel()
        assert await publisher.send(_record(topic, b"2")) == Stored(0, 1)
    assert consume(kafka_servers, topic, 2) == [b"1", b"2"]


@pytest.mark.extended
async def test_nothing_listens_there() -> None:
    before = _files()
    with held_port() as port:
        publisher = Publisher(Options((f"127.0.0.1:{port}",), client="kafka-python"))
        with pytest.raises(BackendUnavailable, match="connection is refused"):
            await publisher.start()
        with pytest.raises(BackendUnavailable):
            await publisher.send(_record("orders", b""))
        await publisher.close()
    await until(lambda: not _threads(), _threads)
    assert _files() <= before


@pytest.mark.extended
async def test_before_the_start_nothing_is_stored() -> None:
    publisher = Publisher(Options(("127.0.0.1:1",), client="kafka-python"))
    with pytest.raises(NotStored):
        await publisher.send(_record("orders", b""))
    await publisher.close()


async def _send_until_refused(publisher: Publisher, topic: str) -> None:
    """A log on its way out may take some."""
    async with asyncio.timeout(30):
        while True:
            await publisher.send(_record(topic, b"2"))


async def _send_until_stored(publisher: Publisher, topic: str) -> int | None:
    async with asyncio.timeout(30):
        while True:
            try:
                return (await publisher.send(_record(topic, b"3"))).offset
            except NotStored:
                await asyncio.sleep(0.05)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "oms-bridge" in thread.name]


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _break(*_: object, **__: object) -> None:
    raise RuntimeError("broken on purpose")


@asynccontextmanager
async def _publisher(servers: str, **options: object) -> AsyncIterator[Publisher]:
    publisher = Publisher(Options((servers,), client="kafka-python")._replace(**options))  # type: ignore[arg-type] # of the options' own types
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.close()


def _record(topic: str, body: bytes, key: bytes | None = None) -> Outgoing:
    return Outgoing(topic, 0, time.time_ns() // 1_000_000, key, body, [])


def _topic(servers: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    name = f"publish-{time.time_ns()}-{next(_number)}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({name: {"num_partitions": partitions, "configs": configs or {}}}, wait_for_metadata=True)
    return name


def _read(consumer: KafkaConsumer, number: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < number:
        for batch in consumer.poll(timeout_ms=500).values():
            records += batch
    return records
