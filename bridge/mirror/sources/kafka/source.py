"""Kafka as a source: all topics of a cluster but for Kafka's own and the bridge's own."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadLimit

from adapters.kafka.options import parse
from adapters.kafka.security import connection_settings
from bridge.errors import CannotStart
from bridge.mirror.offsets import Ranges
from bridge.mirror.sources import Options, ranges
from bridge.mirror.sources.kafka.client import Bounds, read_bounds
from bridge.mirror.sources.kafka.range_reader import BACKEND, Lost, SplitReader, destination_of, log_of, part_of
from bridge.mirror.sources.range_source import RangeDataSource, RangeReader, RangeSource, ReaderOptions
from bridge.mirror.sources.ranges import Offset, Split

_TASKS: Final = 32
"""Tasks of a batch on a cluster, if there are rows enough: the query starts before all executors are there."""


class KafkaReader(RangeReader):
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
        found = read_bounds(self._kafka)
        recreated = self._recreated(found)
        return {log: pair for log, pair in to_ranges(found).items() if log not in recreated}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """See `RangeReader`."""
        self._before = ranges.existing(ranges.from_json(start))
        return super().latestOffset(start, limit)

    def read_splits(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """See `RangeReader`. All at once: a fetch for each of many partitions would cost milliseconds."""
        for step in SplitReader(self._kafka, splits).read():
            if isinstance(step, Lost):
                yield from self.lost(step.log, destination_of(part_of(step.log).topic), step.start, step.end)
            else:
                yield step

    def stop(self) -> None:
        """Nothing is held."""

    def _recreated(self, found: Bounds) -> set[str]:
        """Return the logs of the last plan that are of a deleted topic, although there is one of the same name.

        Its offsets have gone back, or its id has changed while this planner runs.
        """
        removed: set[str] = set()
        for topic in found.topics:
            logs = {log_of(part): found.nexts[part] for part in topic.parts()}
            planned = {log for log in logs if log in self._before}
            is_other = self._topic_ids.setdefault(topic.name, topic.id) != topic.id
            if planned and (is_other or any(logs[log] < self._before[log].next for log in planned)):
                removed |= planned
            else:
                self._topic_ids[topic.name] = topic.id
        return removed


class _KafkaData(RangeDataSource):
    reads = KafkaReader


class KafkaSource(RangeSource):
    """See `Source`."""

    data = _KafkaData

    def __init__(self, options: Options) -> None:
        """Raises `CannotStart` for a URL, a login or files with which Kafka cannot be read."""
        super().__init__(options)
        try:
            self._kafka = parse(options.backend)
        except ValueError as error:
            raise CannotStart(str(error)) from None
        connection_settings(self._kafka)  # a bad file ends the start, and not a batch

    def bounds(self) -> Ranges:
        """Return the first offset and the last stable one of every partition.

        Raises `BackendUnavailable`, `CannotStart`.
        """
        return to_ranges(read_bounds(self._kafka))

    def tasks(self, spark: SparkSession) -> int:
        """See `RangeSource`."""
        is_cluster = not spark.conf.get("spark.master").startswith("local[")  # type: ignore[union-attr] # it is set
        return max(super().tasks(spark), _TASKS if is_cluster else 1)


def to_ranges(found: Bounds) -> Ranges:
    """Return bounds by log."""
    return {log_of(part): (first, found.nexts[part]) for part, first in found.firsts.items()}
