"""A task's reader over a consumer that is played: what it yields, what is lost, and when it gives up."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition
from kafka import errors as kafka
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from adapters.kafka import connections
from adapters.kafka.options import parse
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.offsets import Gap
from bridge.mirror.sources import kafka as source
from bridge.mirror.sources.kafka import Bounds, SplitReader
from bridge.mirror.sources.ranges import Split

OPTIONS = parse("kafka://127.0.0.1:9092")
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Found(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"body"
    headers: Sequence[tuple[str, bytes | None]] = ()


def found(part: TopicPartition, *offsets: int) -> dict[TopicPartition, list[Found]]:
    return {part: [Found(part.topic, part.partition, offset) for offset in offsets]}


class Consumer:
    """Answers polls from a list: records, an error, or a call that moves positions; at its end nothing comes."""

    def __init__(self, *polls: Any) -> None:  # noqa: ANN401 - as above
        self._polls = list(polls)
        self.firsts: dict[TopicPartition, int] = {}
        self.assignment: dict[TopicPartition, Any] = {}
        self._subscription = self
        self._fetcher = SimpleNamespace(PartitionRecords=None)  # decodes nothing
        self.paused: list[TopicPartition] = []

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        self.assignment = {part: type("State", (), {"position": None})() for part in parts}

    def seek(self, part: TopicPartition, offset: int) -> None:
        self.assignment[part].position = type("Position", (), {"offset": offset})()

    def pause(self, part: TopicPartition) -> None:
        self.paused.append(part)

    def beginning_offsets(self, parts: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        assert timeout_ms
        return {part: self.firsts[part] for part in parts}

    def poll(self, timeout_ms: int) -> Any:  # noqa: ANN401 - as above
        assert timeout_ms
        answer = self._polls.pop(0) if self._polls else {}
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer(self)
            return {}
        for part, records in answer.items():
            self.seek(part, records[-1].offset + 1)
        return answer


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Read splits by a consumer; rows as (log, offset), losses as they are."""

    def reading(consumer: Consumer, *splits: Split) -> list[Any]:
        @contextmanager
        def opened(*_: object, **__: object) -> Iterator[Consumer]:
            yield consumer

        monkeypatch.setattr(connections, "reading", opened)
        steps: list[Any] = []
        for step in SplitReader(OPTIONS, splits).read():
            if isinstance(step, Gap):
                steps.append(step)
            else:
                steps += [(row["log"], row["offset"]) for row in step.to_pylist()]
        return steps

    return reading


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two seconds pass with each look at the clock."""
    ticks = iter(range(0, 10_000, 2))
    monkeypatch.setattr("bridge.mirror.sources.kafka.time.monotonic", lambda: next(ticks))


def test_partitions_are_read_together_and_no_further_than_planned(read: Callable[..., list[Any]]) -> None:
    consumer = Consumer(found(A, 3, 4) | found(B, 0), found(A, 5, 6, 7), found(A, 8) | found(B, 1))
    steps = read(consumer, Split("a/0", 3, 6), Split("b/0", 0, 2))
    assert steps == [("a/0", 3), ("a/0", 4), ("b/0", 0), ("a/0", 5), ("b/0", 1)]
    assert consumer.paused == [A, B]


def test_holes_are_no_losses_and_a_range_may_end_with_one(read: Callable[..., list[Any]]) -> None:
    consumer = Consumer(found(A, 4), lambda each: each.seek(A, 9))
    assert read(consumer, Split("a/0", 1, 9)) == [("a/0", 4)]


def test_a_header_without_a_value_and_a_bad_record(read: Callable[..., list[Any]]) -> None:
    records = [Found("a", 0, 0, headers=[("x", None)]), Found("a", 0, 1, timestamp=9 * 10**15)]
    assert read(Consumer({A: records}), Split("a/0", 0, 2)) == [("a/0", 0), ("a/0", 1)]


def test_what_was_dropped_is_lost_and_the_rest_is_read(read: Callable[..., list[Any]]) -> None:
    consumer = Consumer(kafka.OffsetOutOfRangeError({A: 3}), found(A, 5))
    consumer.firsts[A] = 5
    assert read(consumer, Split("a/0", 3, 6)) == [Gap("a/0", 3, 5), ("a/0", 5)]


def test_all_is_lost_if_the_log_begins_later_or_ends_before(read: Callable[..., list[Any]]) -> None:
    for first in (9, 6, 0):
        consumer = Consumer(kafka.OffsetOutOfRangeError({A: 3}))
        consumer.firsts[A] = first
        assert read(consumer, Split("a/0", 3, 6)) == [Gap("a/0", 3, 6)]


def test_a_new_leader_that_lacks_records_is_asked_for_the_next_offset(read: Callable[..., list[Any]]) -> None:
    consumer = Consumer(found(A, 3) | found(B, 0), kafka.LogTruncationError({A: None, B: None}), found(A, 4))
    assert read(consumer, Split("a/0", 3, 5), Split("b/0", 0, 1)) == [("a/0", 3), ("b/0", 0), ("a/0", 4)]


@pytest.mark.usefixtures("clock")
def test_a_topic_that_is_gone_is_lost(read: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "read_bounds", lambda *_: Bounds((), {"b/0": (0, 2)}))
    consumer = Consumer(found(A, 3), *[{}] * 9, found(B, 0, 1))
    assert read(consumer, Split("a/0", 3, 6), Split("b/0", 0, 2)) == [
        Gap("a/0", 4, 6),
        *(("a/0", 3), ("b/0", 0), ("b/0", 1)),
    ]


@pytest.mark.usefixtures("clock")
def test_it_gives_up_after_a_minute(read: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Bounds:
        raise BackendUnavailable("Kafka does not answer.")

    monkeypatch.setattr(source, "read_bounds", away)
    with pytest.raises(BackendUnavailable, match="a/0, offset 4: Kafka has sent nothing for 60 s"):
        read(Consumer(found(A, 3)), Split("a/0", 3, 6))


def test_a_missing_permission_is_told(read: Callable[..., list[Any]]) -> None:
    with pytest.raises(CannotStart, match="permission for the topic"):
        read(Consumer(kafka.TopicAuthorizationFailedError({"a"})), Split("a/0", 3, 6))


def test_batches_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Consumer]:
        yield Consumer(found(A, *range(1400)))

    monkeypatch.setattr(connections, "reading", opened)
    steps = list(SplitReader(OPTIONS, [Split("a/0", 0, 1400)]).read())
    assert [step.num_rows for step in steps if not isinstance(step, Gap)] == [1000, 400]


def stored(*offsets: int, compression: int = 0) -> bytes:
    """One batch as a broker keeps it: the first offset is that of its first record."""
    builder = MemoryRecordsBuilder(2, compression, 1 << 20)
    for offset, before in zip(offsets, (offsets[0] - 1, *offsets), strict=False):
        builder.skip(offset - before - 1)
        builder.append(1_700_000_000_000, None, b"%d" % offset * 100, [("x", b"y")])
    builder.close()
    return offsets[0].to_bytes(8) + bytes(builder.buffer())[8:]  # the checksum leaves it out


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


def taken(start: int, end: int, *batches: bytes) -> list[int]:
    consumer = Consumer()
    consumer._fetcher = SimpleNamespace(PartitionRecords=Fetcher.PartitionRecords)
    source._decode_only(consumer, {A: end})
    fetched = consumer._fetcher.PartitionRecords(start, A, MemoryRecords(b"".join(batches)))
    records = []
    while fetched and (more := fetched.take()):
        records += more
    assert all(record.value == b"%d" % record.offset * 100 for record in records)
    return [record.offset for record in records]


@pytest.mark.parametrize("compression", range(5))
def test_only_the_range_is_decoded(decoded: list[int], compression: int) -> None:
    first, second = (stored(*range(at, at + 10), compression=compression) for at in (100, 110))
    for start, end in (104, 107), (109, 111), (100, 120), (101, 200):
        decoded.clear()
        assert taken(start, end, first, second) == decoded == list(range(start, min(end, 120)))
    assert taken(119, 120, second) == [119]


def test_records_of_kafka_0_10_are_read() -> None:
    builder = MemoryRecordsBuilder(1, 0, 1 << 20, offset=100)
    for offset in range(100, 104):
        builder.append(1_700_000_000_000, None, b"%d" % offset * 100)
    builder.close()
    assert taken(102, 104, bytes(builder.buffer())) == [102, 103]


def test_a_batch_with_holes_is_decoded_from_its_start(decoded: list[int]) -> None:
    assert taken(103, 106, stored(100, 101, 105, 106)) == [105]
    assert decoded == [100, 101, 105]


def test_the_collector_of_cycles_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Consumer]:
        yield Consumer(found(A, *range(2000)))

    monkeypatch.setattr(connections, "reading", opened)
    for enabled in True, False:
        (gc.enable if enabled else gc.disable)()
        try:
            steps = SplitReader(OPTIONS, [Split("a/0", 0, 2000)]).read()
            next(steps)
            assert not gc.isenabled()
            steps.close()  # type: ignore[attr-defined] # a generator
            assert gc.isenabled() is enabled
        finally:
            gc.enable()
