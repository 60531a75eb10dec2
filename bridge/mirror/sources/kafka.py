"""Kafka as a source: all topics of a cluster but for Kafka's own and the bridge's own.

A plan asks the brokers for the offsets of all partitions. A task reads its ranges with one consumer for all of its
partitions. Offsets have holes: the marks of transactions, messages that were rolled back, and what compaction took. So
offsets are dropped only if the broker says that it no longer has the next one, or if the partition is gone.

Records become the columns of every source by the mapping with which the bridge hands messages out. For bodies of 1 KiB
with a key and 7 headers that takes 8 us a record, of which `Rows` are 2.5 us (CPython 3.11).
"""

import gc
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadLimit

from adapters.kafka import connections, errors
from adapters.kafka.mapping import Part, Record, fetched, from_record
from adapters.kafka.names import HIGH, LOW, Own
from adapters.kafka.options import REQUEST_TIMEOUT, parse
from adapters.kafka.options import Options as KafkaOptions
from adapters.kafka.security import connection_settings
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.schema import BATCH_BYTES, BATCH_ROWS, Rows
from bridge.mirror.sources import ranges
from bridge.mirror.sources.range_source import Options, RangeDataSource, RangeReader, ReaderOptions, Source, Splits
from bridge.mirror.sources.ranges import Offset, Split

BACKEND: Final = "kafka"
_TASKS: Final = 32
"""Tasks of a batch on a cluster, if there are rows enough: the query starts before all executors are there."""


class Topic(NamedTuple):
    """One topic that is mirrored."""

    name: str
    id: str
    """Its id: another one when it is deleted and made again."""
    partitions: int

    def parts(self) -> Iterator[Part]:
        """Its partitions."""
        return (Part(self.name, number) for number in range(self.partitions))


class Bounds(NamedTuple):
    """What the brokers keep now."""

    topics: tuple[Topic, ...]
    ranges: Ranges
    """By log, the first offset and the last stable one."""


def read_bounds(options: KafkaOptions, known: Collection[str] = ()) -> Bounds:
    """Ask for everything that is mirrored; `known` are topics that were there before, and may be gone.

    Raises `BackendUnavailable`; `CannotStart` if Kafka refuses.
    """
    is_mirrored = re.compile(pattern(Own(options.prefix))).fullmatch
    try:
        with closing(connections.connect(KafkaAdminClient, options)) as client:
            topics = tuple(
                Topic(topic["name"], str(topic["topic_id"]), len(topic["partitions"]))
                for topic in client.describe_topics()
                if is_mirrored(topic["name"])
            )
            if missing := sorted({*known} - {topic.name for topic in topics}):
                _check_deleted(client.describe_topics(missing))
            parts = [part for topic in topics for part in topic.parts()]
            firsts, nexts = (_offsets(client, parts, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    except (BridgeError, kafka.KafkaError, OSError) as error:
        raise described(error) from error
    return Bounds(topics, {log_of(part): (first, nexts[part]) for part, first in firsts.items()})


def _check_deleted(topics: Sequence[Mapping[str, Any]]) -> None:
    """Raise `CannotStart` or `BackendUnavailable` if one of these topics was not deleted.

    Among all topics Kafka lists none that the login may not describe: it would be taken for deleted, and be mirrored
    again from its beginning once the permission is back.
    """
    for topic in topics:
        if topic["error_code"] == kafka.TopicAuthorizationFailedError.errno:
            raise CannotStart(
                f"Kafka: this login may no longer describe the topic {topic['name']}, which is mirrored. Permit it, "
                "also if the topic was deleted."
            )
        if topic["error_code"] != kafka.UnknownTopicOrPartitionError.errno:
            raise BackendUnavailable(f"Kafka does not list the topic {topic['name']} now.")


def described(error: BaseException) -> BackendUnavailable | CannotStart:
    """Return the job's error for one of Kafka's: an outage, or something that an operator must change."""
    found = errors.of_exception(error, "topics of the mirror")
    if isinstance(found, Refused | errors.LoginRefused):
        return CannotStart(found.detail)
    return found if isinstance(found, BackendUnavailable) else BackendUnavailable(found.detail)


def pattern(own: Own) -> str:
    """Return which topics are mirrored: all but Kafka's own and the bridge's own."""
    ours = "|".join((re.escape(own.notes), f"{re.escape(own.delay(''))}.*"))
    return rf"(?!__|oms\.|(?:{ours})$).+"


def _offsets(client: KafkaAdminClient, parts: Collection[Part], spec: OffsetSpec) -> dict[Part, int]:
    if not parts:
        return {}
    specs = {TopicPartition(*part): spec for part in parts}
    found = client.list_partition_offsets(
        specs, isolation_level=IsolationLevel.READ_COMMITTED, timeout_ms=REQUEST_TIMEOUT
    )
    return {Part(*part): at.offset for part, at in found.items()}


def destination_of(topic: str) -> str:
    """Return the destination of a topic: its own name, but for a lane."""
    for suffix in (HIGH, LOW):
        if topic.endswith(suffix) and topic != suffix:
            return topic.removesuffix(suffix)
    return topic


def log_of(part: Part) -> str:
    """Return the log that is a partition of a topic."""
    return f"{part.topic}/{part.partition}"


def part_of(log: str) -> Part:
    """Return the partition of a log."""
    topic, _, partition = log.rpartition("/")
    return Part(topic, int(partition))


def add(rows: Rows, record: Record, destination: str, log: str) -> None:
    """Add a record; one that cannot be mapped is a row in quarantine."""
    try:
        message = from_record(record, destination)
    except Exception as error:  # noqa: BLE001 - whatever a record holds, it does not stop the job
        rows.add_bad(f"{type(error).__name__}: {error}", record.value or b"", destination, log, record.offset)
    else:
        rows.add(message, log, record.offset)


_SETTINGS: Final[Mapping[str, object]] = {
    "isolation_level": "read_committed",
    "auto_offset_reset": "none",  # an offset that is gone is an error, by which a loss is known
    "fetch_max_wait_ms": 10,  # all that is asked for is there; a fetch of a partition that has ended would wait
    "fetch_max_bytes": BATCH_BYTES,
    "max_poll_records": BATCH_ROWS,
}
_POLL: Final = 100
"""Milliseconds without a record after which positions are looked at: a range may end with marks of transactions."""
_IDLE: Final = 5.0
"""Seconds without progress after which it is asked whether the partitions are still there."""
_PATIENCE: Final = 60.0
"""Seconds without progress after which reading is given up."""
_NUMBERED: Final = 2
"""The format of batches whose header says how many records there are, since Kafka 0.11."""


class SplitReader:
    """Reads the splits of one task."""

    def __init__(self, options: KafkaOptions, splits: Sequence[Split]) -> None:
        self._options = options
        self._left = {TopicPartition(*part_of(split.log)): split for split in splits}
        """By partition what is still to be read."""
        self._rows = Rows(BACKEND)
        self._progress = 0.0
        """When something was read last."""

    def read(self) -> Iterator[pa.RecordBatch | Gap]:
        """Yield rows and losses. Raises `BackendUnavailable` after a minute without any, and `CannotStart`."""
        try:
            with _without_gc(), connections.reading(self._options, **_SETTINGS) as consumer:
                _decode_only(consumer, {part: split.end for part, split in self._left.items()})
                consumer.assign([*self._left])
                for part, split in self._left.items():
                    consumer.seek(part, split.start)
                yield from self._read(consumer)
        except (kafka.KafkaError, OSError) as error:
            raise described(error) from error
        if len(self._rows):
            yield self._rows.take()

    def _read(self, consumer: KafkaConsumer) -> Iterator[pa.RecordBatch | Gap]:
        last_check = self._progress = time.monotonic()
        while self._left:
            yield from self._poll(consumer)
            now = time.monotonic()
            if now > self._progress + _PATIENCE:
                log, start, _ = next(iter(self._left.values()))
                raise BackendUnavailable(f"{log}, offset {start}: Kafka has sent nothing for {_PATIENCE:.0f} s.")
            if now > max(self._progress, last_check) + _IDLE:
                last_check = now
                yield from self._deleted(consumer)

    def _poll(self, consumer: KafkaConsumer) -> Iterator[pa.RecordBatch | Gap]:
        try:
            found = consumer.poll(timeout_ms=_POLL)
        except kafka.OffsetOutOfRangeError as error:
            for part in error.args[0]:
                yield from self._out_of_range(consumer, part)
            return
        except kafka.LogTruncationError as error:  # a new leader lacks records: read on if it has the next offset
            for part in error.divergent_offsets:  # also one that is read: else the error comes again
                consumer.seek(part, self._left[part].start if part in self._left else _position(consumer, part))
            return
        for part in found or [*self._left]:
            if part in self._left:
                yield from self._add(part, found.get(part, ()))
                self._move(consumer, part, _position(consumer, part))

    def _add(self, part: TopicPartition, records: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        log, _, end = self._left[part]
        rows, destination = self._rows, destination_of(part.topic)
        for record in records:
            if record.offset >= end:
                return
            add(rows, fetched(record), destination, log)
            if rows.full:
                yield rows.take()

    def _move(self, consumer: KafkaConsumer, part: TopicPartition, at: int) -> None:
        split = self._left[part]
        if at > split.start:
            self._left[part] = split._replace(start=at)
            self._progress = time.monotonic()
        if at >= split.end:
            consumer.pause(part)
            del self._left[part]

    def _out_of_range(self, consumer: KafkaConsumer, part: TopicPartition) -> Iterator[Gap]:
        """The next offset was dropped, or the partition ends before it."""
        if part in self._left:
            split = self._left[part]
            first = consumer.beginning_offsets([part], timeout_ms=REQUEST_TIMEOUT)[part]
            yield from self._lost(consumer, part, min(first, split.end) if first > split.start else split.end)

    def _lost(self, consumer: KafkaConsumer, part: TopicPartition, end: int) -> Iterator[Gap]:
        split = self._left[part]
        yield Gap(split.log, split.start, end)
        consumer.seek(part, end)
        self._move(consumer, part, end)

    def _deleted(self, consumer: KafkaConsumer) -> Iterator[Gap]:
        try:
            there = read_bounds(self._options, {part.topic for part in self._left}).ranges
        except BridgeError:
            return
        for part, split in [*self._left.items()]:
            if split.log not in there:
                yield from self._lost(consumer, part, split.end)


def _decode_only(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> None:
    """Decode no record before or behind the range of its partition, and pause the partition at the end.

    The library decodes all that a fetch has brought of a partition, from the start of a batch. Where a batch was 200
    records, and each range 50, reading took 1.6 times the CPU.
    """
    fetcher = consumer._fetcher  # noqa: SLF001 - the library knows no end of an assignment
    records_of = fetcher.PartitionRecords

    def bounded(offset: int, part: TopicPartition, records: Any, *given: object, **settings: object) -> Any:  # noqa: ANN401 - the library's
        batches = SimpleNamespace(next_batch=lambda: _from_offset(records.next_batch(), offset))
        fetched = records_of(offset, part, batches, *given, **settings)
        decoded = fetched.record_iterator

        def up_to_end() -> Iterator[Any]:
            for record in decoded:
                yield record
                if record.offset >= ends[part] - 1:
                    consumer.pause(part)
                    fetched.drain()
                    return

        fetched.record_iterator = up_to_end()
        return fetched

    fetcher.PartitionRecords = bounded


def _from_offset(batch: Any, offset: int) -> Any:  # noqa: ANN401 - the library's
    """Return a batch from the record at an offset on; whole, if not all of its records are there any more."""
    if batch is None or batch.magic != _NUMBERED or not batch.base_offset < offset <= batch.last_offset:
        return batch
    has_holes = batch.records_count <= batch.last_offset_delta
    return batch if has_holes else _Remainder(batch, offset - batch.base_offset)


class _Remainder:
    """A batch whose first records are passed over by their lengths."""

    def __init__(self, batch: DefaultRecordBatch, passed: int) -> None:
        self._batch = batch
        self._passed = passed

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the batch
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        batch = self._batch
        records: Iterator[Any] = iter(batch)  # decompresses it
        at = batch._pos  # noqa: SLF001 - the library decodes each
        for _ in range(self._passed):
            length, start = decode_varint(batch._buffer, at)  # noqa: SLF001 - as above
            at = start + length
        batch._pos, batch._next_record_index = at, self._passed  # noqa: SLF001 - as above
        return records


def _position(consumer: KafkaConsumer, part: TopicPartition) -> int:
    """Return the next offset; the consumer's own method looks at all partitions: 2 ms of CPU if there are 500."""
    position = consumer._subscription.assignment[part].position  # noqa: SLF001 - as above
    return 0 if position is None else int(position.offset)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Keep the collector of cycles from searching: a record makes 30 objects and no cycle. It took half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _KafkaReader(RangeReader):
    """See `RangeReader`. It connects for each plan; a task has one consumer for all that it reads."""

    backend = BACKEND

    def __init__(self, ask: ReaderOptions) -> None:
        super().__init__(ask)
        self._kafka = parse(ask.options.backend)
        self._before: Offset = {}
        self._topic_ids: dict[str, str] = {}
        """The id of each topic when it was first looked at, or last planned to be gone."""

    def bounds(self) -> Ranges:
        """See `RangeReader`. A topic that was recreated is left out once, and so begins anew with the next plan."""
        found = read_bounds(self._kafka, {part_of(log).topic for log in self._before})
        recreated = self._recreated(found)
        return {log: pair for log, pair in found.ranges.items() if log not in recreated}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._before = ranges.existing(ranges.from_json(start))
        return super().latestOffset(start, limit)

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        """See `RangeReader`. All at once: a fetch for each of many partitions would cost milliseconds."""
        return SplitReader(self._kafka, given.splits).read()

    def destination_of(self, log: str, given: Splits) -> str:  # noqa: ARG002 - the name says it
        return destination_of(part_of(log).topic)

    def stop(self) -> None:
        """Nothing is held."""

    def _recreated(self, found: Bounds) -> set[str]:
        """Return the planned logs of topics that were recreated: their offsets went back, or their ids changed."""
        removed: set[str] = set()
        for topic in found.topics:
            planned = {log for log in map(log_of, topic.parts()) if log in self._before}
            is_other = self._topic_ids.setdefault(topic.name, topic.id) != topic.id
            if planned and (is_other or any(found.ranges[log][1] < self._before[log].next for log in planned)):
                removed |= planned
            else:
                self._topic_ids[topic.name] = topic.id
        return removed


class _KafkaData(RangeDataSource):
    reads = _KafkaReader


class KafkaSource(Source):
    """See `Source`."""

    data = _KafkaData

    def __init__(self, options: Options) -> None:
        """Raises `CannotStart` for a URL, a login or files with which Kafka cannot be read."""
        try:
            super().__init__(options)
        except ValueError as error:
            raise CannotStart(str(error)) from None
        connection_settings(parse(options.backend))  # a bad file ends the start, and not a batch

    def tasks(self, spark: SparkSession) -> int:
        """See `Source`."""
        is_cluster = not spark.conf.get("spark.master").startswith("local[")  # type: ignore[union-attr] # it is set
        return max(super().tasks(spark), _TASKS if is_cluster else 1)
