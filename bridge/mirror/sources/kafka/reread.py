"""Ranges of Kafka by kafka-python on Spark's workers: slower than the connector, for what that cannot read."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from adapters.kafka.connections import reading
from adapters.kafka.options import Options
from adapters.kafka.record import Record
from bridge.mirror.offsets import Ranges
from bridge.mirror.rows import Rows
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sources.kafka.rows import BACKEND, add

_RANGES: Final = "log string, start bigint, end bigint"
_POLL: Final = 500
"""Milliseconds."""
_PATIENCE: Final = 60.0
"""Seconds in which the next record must come."""


def reread(spark: SparkSession, options: Options, ranges: Ranges) -> DataFrame:
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
    """Yield what lies there; what is gone is left out, as the connector does. Raises `TimeoutError`."""
    consumer.assign([part])
    consumer.seek(part, start)
    until = time.monotonic() + _PATIENCE
    while (at := consumer.position(part)) < end:
        for found in consumer.poll(timeout_ms=_POLL).get(part, ()):
            if found.offset >= end:
                return
            yield Record(
                part.topic, part.partition, found.offset, found.timestamp, found.key, found.value, found.headers
            )
        if consumer.position(part) > at:
            until = time.monotonic() + _PATIENCE
        elif time.monotonic() > until:
            raise TimeoutError(f"{part.topic}, partition {part.partition}: no record came after offset {at}")
