"""Kafka's records to the columns of every source, by the mapping with which the bridge hands messages out.

For bodies of 1 KiB with a key and 7 headers 8 us a record, of which `Rows` are 2.5 us (CPython 3.11).
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from adapters.kafka.connections import reading
from adapters.kafka.mapping import from_record
from adapters.kafka.names import HIGH, LOW
from adapters.kafka.options import Options
from adapters.kafka.record import Headers, Record
from bridge.mirror.offsets import Ranges
from bridge.mirror.rows import Rows
from bridge.mirror.schema import SOURCE_DDL

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Of the connector, in the order of `Record`."""
BACKEND: Final = "kafka"
_MICROS: Final = 1000


def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn batches of `COLUMNS` into batches of `schema.SOURCE`."""
    rows = Rows(BACKEND)
    with _without_gc():
        for batch in batches:
            for record in zip(*_columns(batch), strict=True):
                add(rows, record)
                if rows.full:
                    yield rows.take()
        if len(rows):
            yield rows.take()


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


def destination_of(topic: str) -> str:
    """Return the destination of a topic: its own name, but for a lane."""
    for suffix in (HIGH, LOW):
        if topic.endswith(suffix) and topic != suffix:
            return topic.removesuffix(suffix)
    return topic


def log_of(topic: str, partition: int) -> str:
    """Return the log that is a partition of a topic."""
    return f"{topic}/{partition}"


def add(rows: Rows, record: tuple[Any, ...]) -> None:
    """Add a `Record`; one that cannot be mapped is a row in quarantine."""
    topic, partition, offset, _, _, value, _ = record
    destination, log = destination_of(topic), log_of(topic, partition)
    try:
        message = from_record(Record._make(record), destination)
    except Exception as error:  # noqa: BLE001 - whatever a record holds, it does not stop the job
        rows.add_bad(f"{type(error).__name__}: {error}", value or b"", destination, log, offset)
    else:
        rows.add(message, log, offset)


def _columns(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    topics, partitions, offsets, timestamps, keys, values, headers = (batch.column(name) for name in COLUMNS)
    micros: list[int] = timestamps.cast(pa.int64()).to_numpy().tolist()
    return [
        _repeated(topics),
        partitions.to_numpy().tolist(),
        offsets.to_numpy().tolist(),
        [time // _MICROS for time in micros],
        _cells(keys),
        _cells(values),
        _headers(headers),
    ]


def _cells(column: pa.Array) -> list[Any]:
    # to_pylist makes a scalar of each cell on the way: four times as slow.
    cells: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return cells


def _repeated(column: pa.Array) -> list[str]:
    """Return text of which there are few kinds: one object for each, whose hash is known after the first use."""
    encoded = column.dictionary_encode()
    kinds = _cells(encoded.dictionary)
    return [kinds[at] for at in encoded.indices.to_numpy().tolist()]


def _headers(column: pa.ListArray) -> list[Headers]:
    """Return the headers of each record; none are null in Spark, and a value that is null is empty."""
    pairs = column.values
    names, raws = _repeated(pairs.field("key")), _cells(pairs.field("value"))
    if pairs.field("value").null_count:
        raws = [raw or b"" for raw in raws]
    flat = list(zip(names, raws, strict=True))
    return [flat[start:end] for start, end in pairwise(column.offsets.to_numpy().tolist())]


_RANGES: Final = "log string, start bigint, end bigint"
_POLL: Final = 500
"""Milliseconds."""
_NEXT_RECORD: Final = 60.0
"""Seconds in which the next record must come."""


def read_again(spark: SparkSession, options: Options, ranges: Ranges) -> DataFrame:
    """Return the rows of the ranges, of the columns `schema.SOURCE_DDL`; a range is read by one worker."""
    plan = spark.createDataFrame([(log, start, end) for log, (start, end) in ranges.items()], _RANGES)
    return plan.repartition(max(1, len(ranges)), "log").mapInArrow(partial(_read, options), SOURCE_DDL)


def _read(options: Options, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = Rows(BACKEND)
    for batch in batches:
        for log, start, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            topic, _, partition = log.rpartition("/")
            with reading(options, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
                for record in _records(consumer, TopicPartition(topic, int(partition)), start, end):
                    add(rows, record)
                    if rows.full:
                        yield rows.take()
    if len(rows):
        yield rows.take()


def _records(consumer: KafkaConsumer, part: TopicPartition, start: int, end: int) -> Iterator[Record]:
    """Yield the records that the broker still has, as the connector does. Raises `TimeoutError`."""
    consumer.assign([part])
    consumer.seek(part, start)
    until = time.monotonic() + _NEXT_RECORD
    while (at := consumer.position(part)) < end:
        for found in consumer.poll(timeout_ms=_POLL).get(part, ()):
            if found.offset >= end:
                return
            yield Record(
                part.topic, part.partition, found.offset, found.timestamp, found.key, found.value, found.headers
            )
        if consumer.position(part) > at:
            until = time.monotonic() + _NEXT_RECORD
        elif time.monotonic() > until:
            raise TimeoutError(f"{part.topic}, partition {part.partition}: no record came after offset {at}")
