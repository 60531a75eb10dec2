"""A task's reader over brokers that are played: what it yields, what is lost, and when it gives up."""

import gc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from kafka import errors as kafka
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from adapters.kafka import connections
from adapters.kafka.mapping import Part
from adapters.kafka.options import parse
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.offsets import Gap
from bridge.mirror.schema import Rows
from bridge.mirror.sources.kafka import reader
from bridge.mirror.sources.kafka.reader import SplitReader
from bridge.mirror.sources.kafka.topics import topic_of
from bridge.mirror.sources.ranges import Split

OPTIONS = parse("kafka://127.0.0.1:9092")
TIME = 1_700_000_000_000
LEADER = 7


def described(name: str, key: int = 1, error: int = 0) -> dict[str, Any]:
    """A topic of one partition as Kafka describes it."""
    partitions = [{"partition_index": 0, "leader_id": LEADER}]
    return {"name": name, "topic_id": str(UUID(int=key)), "error_code": error, "partitions": partitions}


def log(name: str) -> str:
    """Return the only log of a topic."""
    [only] = topic_of(described(name)).logs()
    return only


def stored(*offsets: int, compression: int = 0, **batch: Any) -> bytes:  # noqa: ANN401 - the library's
    """One batch as a broker keeps it: the first offset is that of its first record."""
    builder = MemoryRecordsBuilder(2, compression, 1 << 20, **batch)
    for offset, before in zip(offsets, (offsets[0] - 1, *offsets), strict=False):
        builder.skip(offset - before - 1)
        builder.append(TIME, None, b"%d" % offset * 100, [("x", b"y")])
    builder.close()
    return offsets[0].to_bytes(8) + bytes(builder.buffer())[8:]  # the checksum leaves it out


Partitions = dict[str, tuple[int, bytes]]
"""By topic, an error code and what is fetched."""


class Brokers:
    """Answers fetches from a list: by topic, or an error; at its end nothing comes. Also the administrator."""

    def __init__(self, *answers: Partitions | Exception) -> None:
        self._answers = list(answers)
        self.topics = {"a": described("a"), "b": described("b")}
        self.firsts: dict[str, int] = {}
        self.asked: list[dict[str, int]] = []
        """The offsets of each fetch."""
        self.aborted: list[Any] = []

    def run(self, work: Callable[..., Coroutine[Any, Any, Any]], *given: object) -> Any:  # noqa: ANN401 - the library's
        try:
            work(*given).send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waited")

    def send(self, request: Any, node_id: int) -> Any:  # noqa: ANN401 - the library's
        assert node_id == LEADER
        self.asked.append({topic.topic: topic.partitions[0].fetch_offset for topic in request.topics})
        answer = self._answers.pop(0) if self._answers else {}

        async def response() -> Any:  # noqa: ANN401 - the library's
            if isinstance(answer, Exception):
                raise answer
            topics = [
                SimpleNamespace(
                    topic=topic,
                    partitions=[
                        SimpleNamespace(
                            partition_index=0, error_code=code, records=records, aborted_transactions=self.aborted
                        )
                    ],
                )
                for topic, (code, records) in answer.items()
                if topic in {each.topic for each in request.topics}
            ]
            return SimpleNamespace(responses=topics)

        return response()

    def describe_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [self.topics[name] for name in names]

    def list_partition_offsets(self, specs: dict[Any, Any], **_: object) -> dict[Any, Any]:
        return {part: SimpleNamespace(offset=self.firsts[part.topic]) for part in specs}

    def close(self) -> None:
        """As an administrator."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Read splits of these topics; rows as (topic, offset), losses with the topic, reasons of quarantine as text."""
    monkeypatch.setattr(reader, "_PAUSE", 0)

    def reading(brokers: Brokers, *splits: tuple[str, int, int]) -> list[Any]:
        def connect(_kind: object, _options: object, clients: list[Any]) -> Brokers:
            clients.append(SimpleNamespace(connections=brokers))
            return brokers

        monkeypatch.setattr(connections, "connect", connect)
        steps: list[Any] = []
        for step in SplitReader(OPTIONS, [Split(log(topic), *given) for topic, *given in splits]).read():
            if isinstance(step, Gap):
                steps.append(step._replace(log=step.log.split("/")[1]))
            else:
                steps += [(row["destination"], row["offset"], *_error(row["error"])) for row in step.to_pylist()]
        return steps

    return reading


def _error(text: str | None) -> list[str]:
    return [] if text is None else [text]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two seconds pass with each look at the clock."""
    ticks = iter(range(0, 10_000, 2))
    monkeypatch.setattr("bridge.mirror.sources.kafka.reader.time.monotonic", lambda: next(ticks))


def test_partitions_are_read_together_and_no_further_than_planned(read: Callable[..., list[Any]]) -> None:
    brokers = Brokers(
        {"a": (0, stored(2, 3, 4)), "b": (0, stored(0))},
        {"a": (0, stored(5, 6, 7)), "b": (0, stored(1, 2))},
    )
    assert read(brokers, ("a", 3, 6), ("b", 0, 2)) == [("a", 3), ("a", 4), ("b", 0), ("a", 5), ("b", 1)]
    assert brokers.asked == [{"a": 3, "b": 0}, {"a": 5, "b": 1}]


def test_holes_are_no_losses_and_a_range_may_end_with_one(read: Callable[..., list[Any]]) -> None:
    emptied = bytearray(stored(5, 8))  # compaction has taken the records of a batch
    emptied[57:61] = bytes(4)
    del emptied[61:]
    emptied[8:12] = (49).to_bytes(4)
    emptied[17:21] = calc_crc32c(memoryview(emptied)[21:]).to_bytes(4)
    assert read(Brokers({"a": (0, stored(4) + bytes(emptied))}), ("a", 1, 9)) == [("a", 4)]


def test_what_was_dropped_is_lost_and_the_rest_is_read(read: Callable[..., list[Any]]) -> None:
    brokers = Brokers({"a": (1, b"")}, {"a": (0, stored(5))})
    brokers.firsts["a"] = 5
    assert read(brokers, ("a", 3, 6)) == [Gap("a", 3, 5), ("a", 5)]


def test_all_is_lost_if_the_log_begins_later_or_ends_before(read: Callable[..., list[Any]]) -> None:
    for first in (9, 6, 0):
        brokers = Brokers({"a": (1, b"")})
        brokers.firsts["a"] = first
        assert read(brokers, ("a", 3, 6)) == [Gap("a", 3, 6)]


def test_a_new_leader_is_looked_for(read: Callable[..., list[Any]]) -> None:
    for answer in ({"a": (6, b"")}, {"a": (3, b"")}, kafka.KafkaConnectionError("lost"), kafka.NodeNotReadyError()):
        assert read(Brokers(answer, {"a": (0, stored(3, 4))}), ("a", 3, 5)) == [("a", 3), ("a", 4)]


def test_a_topic_that_is_gone_or_another_one_is_lost(read: Callable[..., list[Any]]) -> None:
    for found in (described("a", error=3), described("a", key=2)):
        brokers = Brokers({"b": (0, stored(0, 1))})
        brokers.topics["a"] = found
        assert read(brokers, ("a", 3, 6), ("b", 0, 2)) == [Gap("a", 3, 6), ("b", 0), ("b", 1)]


@pytest.mark.usefixtures("clock")
def test_a_topic_that_goes_meanwhile_is_lost(read: Callable[..., list[Any]]) -> None:
    brokers = Brokers({"a": (0, stored(3))})

    class Deleting(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as above
            return described(name, error=3 if brokers.asked else 0)

    brokers.topics = Deleting()
    assert read(brokers, ("a", 3, 6)) == [Gap("a", 4, 6), ("a", 3)]


@pytest.mark.usefixtures("clock")
def test_it_gives_up_after_a_minute(read: Callable[..., list[Any]]) -> None:
    with pytest.raises(BackendUnavailable, match="/a/0, offset 4: Kafka has sent nothing for 60 s"):
        read(Brokers({"a": (0, stored(3))}), ("a", 3, 6))


def test_a_missing_permission_ends_the_job(read: Callable[..., list[Any]]) -> None:
    with pytest.raises(CannotStart, match="permission for the topic"):
        read(Brokers({"a": (29, b"")}), ("a", 3, 6))
    brokers = Brokers()
    brokers.topics["a"] = described("a", error=29)
    with pytest.raises(CannotStart, match="may no longer describe the topic a"):
        read(brokers, ("a", 3, 6))


def test_batches_are_not_too_large(monkeypatch: pytest.MonkeyPatch, read: Callable[..., list[Any]]) -> None:
    sizes: list[int] = []
    take = Rows.take

    def taking(rows: Rows) -> pa.RecordBatch:
        sizes.append(len(rows))
        return take(rows)

    monkeypatch.setattr(Rows, "take", taking)
    read(Brokers({"a": (0, stored(*range(1400)))}), ("a", 0, 1400))
    assert sizes == [1000, 400]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all records that were decoded."""
    offsets: list[int] = []
    decode = DefaultRecordBatch._read_msg

    def counting(batch: DefaultRecordBatch) -> Any:  # noqa: ANN401 - the library's
        record = decode(batch)
        offsets.append(record.offset)
        return record

    monkeypatch.setattr(DefaultRecordBatch, "_read_msg", counting)
    return offsets


@pytest.mark.parametrize("compression", range(5))
def test_only_the_range_is_decoded(decoded: list[int], read: Callable[..., list[Any]], compression: int) -> None:
    batches = stored(*range(10, 20), compression=compression) + stored(*range(20, 30), compression=compression)
    assert read(Brokers({"a": (0, batches)}), ("a", 13, 22)) == [("a", offset) for offset in range(13, 22)]
    assert decoded == list(range(13, 22))


def test_a_batch_with_holes_is_decoded_from_its_start(decoded: list[int], read: Callable[..., list[Any]]) -> None:
    assert read(Brokers({"a": (0, stored(10, 12, 15, 17))}), ("a", 13, 18)) == [("a", 15), ("a", 17)]
    assert decoded == [10, 12, 15, 17]


def test_records_of_kafka_0_10_are_read(read: Callable[..., list[Any]]) -> None:
    for compression in (0, 1):
        builder = LegacyRecordBatchBuilder(1, compression, 1 << 20)
        for offset in range(4):
            builder.append(offset, TIME, None, b"%d" % offset)
        built = bytes(builder.build())
        if compression:
            built = (3).to_bytes(8) + built[8:]  # brokers give such a batch the offset of its last record
        assert read(Brokers({"a": (0, built)}), ("a", 1, 4)) == [("a", 1), ("a", 2), ("a", 3)]


def test_what_was_rolled_back_is_left_out(read: Callable[..., list[Any]]) -> None:
    def of_producer(number: int, *offsets: int) -> bytes:
        return stored(*offsets, transactional=True, producer_id=number, producer_epoch=0, base_sequence=0)

    brokers = Brokers({"a": (0, of_producer(1, 0, 1) + of_producer(2, 2) + of_producer(1, 3) + stored(4))})
    brokers.aborted = [SimpleNamespace(producer_id=1, first_offset=0)]
    assert read(brokers, ("a", 0, 5)) == [("a", 2), ("a", 4)]


def test_a_batch_that_cannot_be_decoded_is_a_row_in_quarantine(read: Callable[..., list[Any]]) -> None:
    damaged = bytearray(stored(3, 4))
    damaged[-1] ^= 0xFF
    unknown = bytearray(stored(3, 4))
    unknown[16] = 9
    for batch, reason in ((damaged, "CorruptRecordError"), (unknown, "the batch cannot be decoded")):
        first, bad, last = read(Brokers({"a": (0, stored(2) + bytes(batch) + stored(5))}), ("a", 2, 6))
        assert (first, last) == (("a", 2), ("a", 5))
        assert bad[:2] == ("a", 3)
        assert reason in bad[2]


def test_the_collector_of_cycles_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({"a": (0, stored(*range(2000)))})

    def connect(_kind: object, _options: object, clients: list[Any]) -> Brokers:
        clients.append(SimpleNamespace(connections=brokers))
        return brokers

    monkeypatch.setattr(connections, "connect", connect)
    for enabled in True, False:
        (gc.enable if enabled else gc.disable)()
        try:
            steps: Iterator[Any] = SplitReader(OPTIONS, [Split(log("a"), 0, 2000)]).read()
            brokers._answers = [{"a": (0, stored(*range(2000)))}]
            next(steps)
            assert not gc.isenabled()
            steps.close()  # type: ignore[attr-defined] # a generator
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_parts_are_those_of_the_logs() -> None:
    assert [*SplitReader(OPTIONS, [Split(log("a"), 0, 1)])._left] == [Part("a", 0)]
