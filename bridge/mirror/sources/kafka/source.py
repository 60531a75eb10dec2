"""Kafka as a source. A plan asks for the offsets of all partitions; `reader.py` reads the planned ranges."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadLimit

from adapters.kafka.options import parse
from adapters.kafka.security import connection_settings
from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.sources import ranges
from bridge.mirror.sources.kafka.reader import BACKEND, SplitReader
from bridge.mirror.sources.kafka.topics import destination_of, part_of, read_bounds
from bridge.mirror.sources.range_source import Options, RangeDataSource, RangeReader, ReaderOptions, Source, Splits

_TASKS: Final = 32
"""Tasks of a batch on a cluster, if there are rows enough: the query starts before all executors are there."""


class _KafkaReader(RangeReader):
    """See `RangeReader`. It connects for each plan; a task has one client for all that it reads."""

    backend = BACKEND

    def __init__(self, ask: ReaderOptions) -> None:
        super().__init__(ask)
        self._kafka = parse(ask.options.backend)
        self._planned: set[str] = set()
        """Topics that were planned, and were not gone then."""

    def bounds(self) -> Ranges:
        """See `RangeReader`."""
        return read_bounds(self._kafka, self._planned)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._planned = {part_of(log).topic for log in ranges.existing(ranges.from_json(start))}
        return super().latestOffset(start, limit)

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        """See `RangeReader`. All at once: a fetch for each of many partitions would cost milliseconds."""
        return SplitReader(self._kafka, given.splits).read()

    def destination_of(self, log: str, given: Splits) -> str:  # noqa: ARG002 - the name says it
        return destination_of(part_of(log).topic)

    def stop(self) -> None:
        """Nothing is held."""


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
