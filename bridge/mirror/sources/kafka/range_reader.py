"""Reads the ranges of one task, with one consumer for all of its partitions.

Offsets have holes: the marks of transactions, messages that were rolled back, and what compaction took. So offsets are
dropped only if the broker says that it no longer has the next one, or if the partition is gone.

Records become the columns of every source by the mapping with which the bridge hands messages out. For bodies of 1 KiB
with a key and 7 headers that takes 8 us a record, of which `Rows` are 2.5 us (CPython 3.11).
"""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka

from adapters.kafka.connections import reading
from adapters.kafka.mapping import Part, Record, fetched, from_record
from adapters.kafka.names import HIGH, LOW
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from bridge.errors import BackendUnavailable, BridgeError
from bridge.mirror.rows import BATCH_BYTES, BATCH_ROWS, Rows
from bridge.mirror.sources.kafka.client import described, read_bounds
from bridge.mirror.sources.ranges import Split

BACKEND: Final = "kafka"


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


class Lost(NamedTuple):
    """Offsets that are gone."""

    log: str
    start: int
    end: int


class SplitReader:
    """Reads the splits of one task."""

    def __init__(self, options: Options, splits: Sequence[Split]) -> None:
        self._options = options
        self._left = {TopicPartition(*part_of(split.log)): split for split in splits}
        """By partition what is still to be read."""
        self._rows = Rows(BACKEND)
        self._progress = 0.0
        """When something was read last."""

    def read(self) -> Iterator[pa.RecordBatch | Lost]:
        """Yield rows and losses. Raises `BackendUnavailable` after a minute without any, and `CannotStart`."""
        try:
            with _without_gc(), reading(self._options, **_SETTINGS) as consumer:
                consumer.assign([*self._left])
                for part, split in self._left.items():
                    consumer.seek(part, split.start)
                yield from self._read(consumer)
        except (kafka.KafkaError, OSError) as error:
            raise described(error) from error
        if len(self._rows):
            yield self._rows.take()

    def _read(self, consumer: KafkaConsumer) -> Iterator[pa.RecordBatch | Lost]:
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

    def _poll(self, consumer: KafkaConsumer) -> Iterator[pa.RecordBatch | Lost]:
        try:
            found = consumer.poll(timeout_ms=_POLL)
        except kafka.OffsetOutOfRangeError as error:
            for part in error.args[0]:
                yield from self._out_of_range(consumer, part)
            return
        except kafka.LogTruncationError as error:  # a new leader lacks records: read on if it has the next offset
            for part in error.divergent_offsets:
                consumer.seek(part, self._left[part].start)
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

    def _out_of_range(self, consumer: KafkaConsumer, part: TopicPartition) -> Iterator[Lost]:
        """The next offset was dropped, or the partition ends before it."""
        if part in self._left:
            split = self._left[part]
            first = consumer.beginning_offsets([part], timeout_ms=REQUEST_TIMEOUT)[part]
            yield from self._lost(consumer, part, min(first, split.end) if first > split.start else split.end)

    def _lost(self, consumer: KafkaConsumer, part: TopicPartition, end: int) -> Iterator[Lost]:
        split = self._left[part]
        yield Lost(split.log, split.start, end)
        consumer.seek(part, end)
        self._move(consumer, part, end)

    def _deleted(self, consumer: KafkaConsumer) -> Iterator[Lost]:
        try:
            there = read_bounds(self._options).firsts
        except BridgeError:
            return
        for part, split in [*self._left.items()]:
            if part_of(split.log) not in there:
                yield from self._lost(consumer, part, split.end)


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
