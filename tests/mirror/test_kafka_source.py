"""The Kafka source on a real Kafka and a real Spark: everything once, nothing of the plumbing, no loss unsaid."""

import gzip
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.record.default_records import DefaultRecordBatch

from adapters.kafka.options import parse
from bridge.mirror.offsets import Gap
from bridge.mirror.sources import OnDataLoss, Options
from bridge.mirror.sources.kafka.reader import SplitReader
from bridge.mirror.sources.kafka.topics import read_bounds
from bridge.mirror.sources.ranges import Split
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.kafka.bridged import backend, bridged
from tests.kafka.clients import produce
from tests.kafka.delays import waiting
from tests.kafka.natives import topic_of, write
from tests.mirror.kafka_job import Done, Job

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka") as started:
        yield started


@pytest.fixture(scope="module")
def servers(kafka: Kafka) -> str:
    return kafka.bootstrap


def options(servers: str, loss: OnDataLoss = "fail") -> Options:
    return Options(f"kafka://{servers}", "unused", on_data_loss=loss)


def of(done: Done, destination: str) -> Rows:
    rows = [row for row in done.rows if row["destination"] == destination]
    return sorted(rows, key=lambda row: (row["log"], row["offset"]))


def bodies(done: Done, destination: str) -> list[bytes]:
    return [bytes(row["body"]) for row in of(done, destination)]


def log_of(servers: str, topic: str, partition: int = 0) -> str:
    """Return the name of the log that a partition is now."""
    [log] = [log for log in read_bounds(parse(f"kafka://{servers}")) if log.endswith(f"/{topic}/{partition}")]
    return log


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % at for at in range(start, start + count)]


def test_what_natives_write(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    headers = [("colour", b"red"), ("colour", b"blue"), ("odd", b"\xff\x00"), ("empty", b""), ("x", None)]
    _write_raw(servers, topic, [(b"key", b"body", headers), (None, None, []), (b"\xff", b"\xff\x00", [])])
    produce(servers, topic, b"compressed" * 100, compression_type="gzip")
    first, tombstone, binary, compressed = of(kafka_job.once(options(servers), tmp_path), topic)
    assert dict(first["properties"]) == {
        "colour#1": "red",
        "colour": "blue",
        "odd": "data:;base64,/wA=",
        "empty": "",
        "x": None,
    }
    assert (first["message_id"], first["message_key"], first["body_size"]) == (f"{topic}-0-0", "key", 4)
    assert (first["backend"], first["log"], first["offset"], first["area"]) == (
        "kafka",
        log_of(servers, topic),
        0,
        "data",
    )
    assert (tombstone["message_key"], tombstone["body"], tombstone["body_size"]) == (None, None, 0)
    assert (binary["message_key"], binary["body"]) == ("data:;base64,/w==", b"\xff\x00")
    assert (compressed["body"], compressed["compression"]) == (b"compressed" * 100, None)


def test_a_task_decodes_only_its_range(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topic_of(servers, 1)
    write(servers, topic, [(None, body, ()) for body in numbered(100)])
    decoded = []
    read_msg = DefaultRecordBatch._read_msg

    def counting(self: Any, *given: Any) -> Any:  # noqa: ANN401 - the library's
        record = read_msg(self, *given)
        decoded.append(record.offset)
        return record

    monkeypatch.setattr(DefaultRecordBatch, "_read_msg", counting)
    (batch,) = SplitReader(parse(f"kafka://{servers}"), [Split(log_of(servers, topic), 20, 50)]).read()
    assert isinstance(batch, pa.RecordBatch)
    assert [row["offset"] for row in batch.to_pylist()] == list(range(20, 50))
    assert decoded == list(range(20, 50))


async def test_what_a_bridge_stores(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    """Lanes, delays, dead letters, gzip: each message once, under its destination, and no topic of the bridge's own."""
    url = backend(servers, lanes="true", hold=200, strict_delay="true")
    prefix = url.partition("prefix=")[2].partition("&")[0]
    async with bridged(tmp_path / "bridge", url) as (_, talk):
        for priority in 1, 5, 10:
            await talk.produce(b"%d" % priority, priority=priority, pairs=(("x-oms-p-region", "eu"),))
        await talk.produce(gzip.compress(b"packed"), compression="gzip")
        await talk.produce(b"delayed", delaytime=1_500)
        assert waiting(servers, prefix), "it lies in a topic of its own"
        taken = await talk.take_all(5)
    done = kafka_job.once(options(servers)._replace(backend=url), tmp_path / "checkpoint")
    rows = of(done, talk.destination)
    assert sorted(row["message_id"] for row in rows) == sorted(each.headers["x-oms-h-messageid"] for each in taken)
    found = {bytes(row["body"]): row for row in rows}
    [packed] = (body for body, row in found.items() if row["compression"] == "gzip")
    assert gzip.decompress(packed) == b"packed"
    assert found.keys() == {b"1", b"5", b"10", b"delayed", packed}
    lanes = {body: found[body]["log"].split("/")[1].removeprefix(talk.destination) for body in (b"1", b"5", b"10")}
    assert lanes == {b"1": ".oms-lo", b"5": "", b"10": ".oms-hi"}
    assert found[b"delayed"]["delay_time"] == 1_500
    assert (found[b"10"]["priority"], dict(found[b"10"]["properties"])) == (10, {"region": "eu"})
    assert not [row for row in done.rows if row["destination"].startswith((prefix, "__", "oms."))]


@pytest.mark.extended
def test_dead_letters_are_told_apart(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = f"buried-{uuid4().hex[:12]}.dlq"
    _make(servers, topic)
    produce(servers, topic, b"dead")
    [row] = of(kafka_job.once(options(servers), tmp_path), topic)
    assert row["area"] == "dead-letters"


@pytest.mark.extended
def test_what_was_rolled_back_is_not_mirrored(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    with closing(KafkaProducer(bootstrap_servers=servers, transactional_id=uuid4().hex)) as producer:
        producer.init_transactions()
        for body, end in ((b"kept", producer.commit_transaction), (b"not", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, body).get(60)
            end()
    done = kafka_job.once(options(servers), tmp_path)
    assert bodies(done, topic) == [b"kept"]
    assert done.moved[-1][log_of(servers, topic)] == (0, 4), "with the marks of both ends"
    assert not [gap for gap in done.gaps if gap.log == log_of(servers, topic)]


@pytest.mark.extended
def test_new_topics_and_new_partitions_while_it_runs(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    produce(servers, topic, *numbered(10))
    kafka_job.begin(options(servers), tmp_path)
    try:
        _wait(kafka_job, topic, 10)
        later = topic_of(servers, 1)
        produce(servers, later, *numbered(10))
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            admin.create_partitions({topic: 2})
        write(servers, topic, [(None, b"new", [])], partition=1)
        _wait(kafka_job, later, 10)
        _wait(kafka_job, topic, 11)
    finally:
        done = kafka_job.end()
    assert [row["log"] for row in of(done, topic) if row["body"] == b"new"] == [log_of(servers, topic, 1)]
    assert bodies(done, later) == numbered(10)
    assert _covered(done, log_of(servers, later)) == [(0, 10)]


@pytest.mark.extended
def test_a_restart_goes_on(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 2)
    produce(servers, topic, *numbered(100))
    few = options(servers)._replace(rows=40)
    first = kafka_job.once(few, tmp_path)
    produce(servers, topic, *numbered(50, 100))
    second = kafka_job.once(few, tmp_path)
    assert {*bodies(first, topic)} == {*numbered(100)}
    assert sorted(bodies(second, topic)) == sorted(numbered(50, 100))
    assert len(second.moved) > 1, "at most so many rows a batch"
    ranges = [
        pair
        for done in (first, second)
        for log in (log_of(servers, topic), log_of(servers, topic, 1))
        for pair in _covered(done, log)
    ]
    assert sum(end - start for start, end in ranges) == 150


@pytest.mark.extended
def test_it_begins_where_it_is_told(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic, other = topic_of(servers, 2), topic_of(servers, 1)
    write(servers, topic, [(None, body, []) for body in numbered(10)], partition=0)
    write(servers, topic, [(None, body, []) for body in numbered(5)], partition=1)
    produce(servers, other, b"other")
    done = kafka_job.once(options(servers), tmp_path, {log_of(servers, topic): 7, "gone/0": 5})
    assert bodies(done, topic) == [*numbered(3, 7), *numbered(5)]
    assert bodies(done, other) == [b"other"]
    assert _covered(done, log_of(servers, topic)) == [(7, 10)]


@pytest.mark.extended
def test_a_truncated_log(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    produce(servers, topic, *numbered(10))
    assert len(of(kafka_job.once(options(servers), tmp_path), topic)) == 10
    produce(servers, topic, *numbered(20, 10))
    _truncate(servers, topic, 15)
    failed = kafka_job.once(options(servers), tmp_path)
    assert failed.said is not None, failed.error
    assert f"{topic}/0 from 10 to 14" in failed.said
    assert not failed.outage
    recorded = kafka_job.once(options(servers, "record"), tmp_path)
    assert bodies(recorded, topic) == numbered(15, 15)
    assert recorded.gaps == [Gap(log_of(servers, topic), 10, 15)]
    assert _covered(recorded, log_of(servers, topic)) == [(10, 30)]


@pytest.mark.extended
def test_a_new_log_that_begins_late(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    kafka_job.once(options(servers), tmp_path)
    topic = topic_of(servers, 1)
    produce(servers, topic, *numbered(10))
    _truncate(servers, topic, 4)
    failed = kafka_job.once(options(servers), tmp_path)
    assert failed.said is not None, failed.error
    assert f"{topic}/0 from 0 to 3" in failed.said
    recorded = kafka_job.once(options(servers, "record"), tmp_path)
    assert bodies(recorded, topic) == numbered(6, 4)
    assert recorded.gaps == [Gap(log_of(servers, topic), 0, 4)]


@pytest.mark.extended
def test_a_topic_made_anew_and_one_that_is_gone(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    """A topic that was read to its end before it was deleted is no gap, and does not stop the others."""
    topic = topic_of(servers, 1)
    produce(servers, topic, *numbered(10))
    kafka_job.once(options(servers), tmp_path)
    _delete(servers, topic)
    _make(servers, topic)
    produce(servers, topic, *numbered(30, 100))
    again = kafka_job.once(options(servers), tmp_path)
    assert not again.error
    assert bodies(again, topic) == numbered(30, 100)
    assert _covered(again, log_of(servers, topic)) == [(0, 30)]
    assert again.gaps == []
    _delete(servers, topic)
    other = topic_of(servers, 1)
    produce(servers, other, b"so that there is a batch")
    done = kafka_job.once(options(servers), tmp_path)
    assert not done.error
    assert (bodies(done, other), done.gaps) == ([b"so that there is a batch"], [])


@pytest.mark.extended
def test_a_deleted_topic_with_unread_messages_is_a_gap(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    produce(servers, topic, *numbered(5000))
    log = log_of(servers, topic)
    kafka_job.begin(options(servers)._replace(rows=10), tmp_path)  # 500 batches: most are still to come
    try:
        _wait(kafka_job, topic, 10)
    finally:
        kafka_job.end()
    _delete(servers, topic)
    failed = kafka_job.once(options(servers), tmp_path)
    assert failed.said is not None, failed.error
    assert f"{log} from" in failed.said
    recorded = kafka_job.once(options(servers, "record"), tmp_path)
    assert [(gap.log, gap.end) for gap in recorded.gaps] == [(log, None)]


def test_a_log_that_was_empty_at_the_start_has_no_gap(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    """Retention may have dropped all that a topic held before the mirror first looks at it."""
    topic, other = topic_of(servers, 1), topic_of(servers, 1)
    produce(servers, topic, *numbered(100))
    _truncate(servers, topic, 100)
    produce(servers, other, b"one")
    for number in range(2, 4):
        done = kafka_job.once(options(servers), tmp_path)
        assert (done.error, done.gaps) == ("", [])
        produce(servers, other, b"%d" % number)
    produce(servers, topic, *numbered(2, 100))
    done = kafka_job.once(options(servers), tmp_path)
    assert (bodies(done, topic), done.gaps) == (numbered(2, 100), [])
    assert _covered(done, log_of(servers, topic)) == [(100, 102)]


class RawName(str):
    """A header name that is no text on the wire."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return self.removesuffix("?").encode("latin-1") + b"\xff\xfe"


def test_a_header_name_that_is_no_text(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1)
    headers = [("before", b"1"), (RawName("odd?"), b"2"), ("after", b"3")]
    write(servers, topic, [(b"k", b"first", []), (b"k", b"odd", headers), (b"k", b"last", [])])
    done = kafka_job.once(options(servers), tmp_path)
    assert not done.error
    assert bodies(done, topic) == [b"first", b"odd", b"last"]
    assert dict(of(done, topic)[1]["properties"]) == {"before": "1", "odd\ufffd\ufffd": "2", "after": "3"}


@pytest.mark.extended
def test_a_time_that_no_reader_can_show(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    topic = topic_of(servers, 1, **_ANY_TIME)
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        for time in (1_700_000_000_000, 9 * 10**15, 0):
            producer.send(topic, b"%d" % time, timestamp_ms=time).get(60)
    good, forged, old = of(kafka_job.once(options(servers), tmp_path), topic)
    assert (good["area"], good["error"], dict(good["properties"])) == ("data", None, {})
    assert (forged["area"], forged["offset"], forged["body"]) == ("data", 1, b"9000000000000000")
    assert (forged["store_timestamp"], forged["born_timestamp"]) == (None, None)
    number = "9000000000000000"
    assert dict(forged["properties"]) == {"oms_store_timestamp": number, "oms_born_timestamp": number}
    assert (old["area"], old["store_timestamp"].timestamp()) == ("data", 0)


@pytest.mark.extended
def test_a_time_in_nanoseconds(servers: str, kafka_job: Job, tmp_path: Path) -> None:
    """As some producers write it, between transactions: no batch is stopped by it."""
    topic = topic_of(servers, 1, **_ANY_TIME)
    write(servers, topic, [(b"key", b"before", [("a", b"1"), ("a", b"2")])])
    with closing(KafkaProducer(bootstrap_servers=servers, transactional_id=uuid4().hex)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"not", timestamp_ms=time.time_ns()).get(60)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"forged", timestamp_ms=time.time_ns()).get(60)
        producer.commit_transaction()
    write(servers, topic, [(None, b"after", [])])
    done = kafka_job.once(options(servers), tmp_path)
    assert not done.error
    before, forged, after = of(done, topic)
    assert [(row["area"], row["offset"], bytes(row["body"])) for row in (before, forged, after)] == [
        ("data", 0, b"before"),
        ("data", 3, b"forged"),
        ("data", 5, b"after"),
    ]
    assert (dict(before["properties"]), before["message_key"]) == ({"a#1": "1", "a": "2"}, "key")
    produce(servers, topic, b"more")
    assert bodies(kafka_job.once(options(servers), tmp_path), topic) == [b"more"]


@pytest.mark.extended
def test_an_outage_is_told_as_one(kafka_job: Job, tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka") as kafka:
        topic = topic_of(kafka.bootstrap, 1)
        produce(kafka.bootstrap, topic, *numbered(10))
        assert len(of(kafka_job.once(options(kafka.bootstrap), tmp_path / "checkpoint"), topic)) == 10
        produce(kafka.bootstrap, topic, *numbered(10, 10))
        kafka.kill()
        away = kafka_job.once(options(kafka.bootstrap), tmp_path / "checkpoint")
        assert (away.outage, away.said, away.rows) == (True, None, [])
        kafka.start()
        assert bodies(kafka_job.once(options(kafka.bootstrap), tmp_path / "checkpoint"), topic) == numbered(10, 10)


_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}


def _wait(job: Job, topic: str, count: int) -> None:
    def there() -> bool:
        done = job.so_far()
        assert not done.error, done.error
        return len(of(done, topic)) >= count

    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline, f"{count} rows of {topic} have not come"


def _covered(done: Done, log: str) -> list[tuple[int, int]]:
    return [ranges[log] for ranges in done.moved if log in ranges]


def _truncate(servers: str, topic: str, first: int) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_records({TopicPartition(topic, 0): first})


def _write_raw(servers: str, topic: str, rows: list[tuple[bytes | None, bytes | None, list[Any]]]) -> None:
    """By a library that writes nulls wherever Kafka has them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for key, value, headers in rows:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0


def _make(servers: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)


def _delete(servers: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_topics([topic])
        deadline = time.monotonic() + 60
        while topic in admin.list_topics():
            assert time.monotonic() < deadline
