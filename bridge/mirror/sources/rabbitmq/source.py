"""The mirror's source for RabbitMQ: the streams that the bridges keep as logs of their destinations.

It only reads, and needs no more permission than that, on the streams and on the bridges' catalogue.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from adapters.rabbitmq.options import parse
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.offsets import Ranges
from bridge.mirror.sources import Options, ranges
from bridge.mirror.sources.rabbitmq.catalogue import Stream, behind, ended, logs, stream_of
from bridge.mirror.sources.rabbitmq.connection import BlockingConnection, is_refusal
from bridge.mirror.sources.rabbitmq.end_offsets import EndOffsets
from bridge.mirror.sources.rabbitmq.range_reader import BACKEND, Lost, StreamRangeReader
from bridge.mirror.sources.range_source import RangeDataSource, RangeReader, RangeSource, ReaderOptions, Splits
from bridge.mirror.sources.ranges import Position, Split

RECREATED_AFTER: Final = 10.0
"""Seconds for which a stream must end before its place until it is taken for another: a replica may be behind."""


class StreamSplits(Splits):
    """Splits of one task, and their streams: a task does not read the catalogue."""

    def __init__(self, splits: tuple[Split, ...], streams: Mapping[str, Stream]) -> None:
        super().__init__(splits)
        self.streams = {stream_of(split.log): streams[stream_of(split.log)] for split in splits}


class RabbitMQReader(RangeReader):
    """See `RangeReader`. The connection to plan with stays; a task has one for all that it reads."""

    backend = BACKEND

    def __init__(self, ask: ReaderOptions) -> None:
        super().__init__(ask)
        self._url = parse(ask.options.backend)
        self._connection: BlockingConnection | None = None
        self._ends: EndOffsets | None = None
        self._before: Mapping[str, Position] = {}
        self._short_since: dict[str, float] = {}
        """Since when a stream ends before its place."""
        self._streams: Mapping[str, Stream] = {}
        self._all: Ranges | None = None
        """How far to read where the query is to end."""

    def bounds(self) -> Ranges:
        """See `RangeReader`."""
        self._connection = self._connection or BlockingConnection(self._url, "mirror plans")
        ends = self._ends = self._ends or EndOffsets(self._url, self._connection)
        try:
            found = self._connection.run(ends.bounds())
        except (BackendUnavailable, CannotStart):
            self.stop()
            raise
        now = time.monotonic()
        self._short_since = {stream: self._short_since.get(stream, now) for stream in behind(found, self._before)}
        return logs(found, ends.missing, self._before, self._recreated())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """See `RangeReader`."""
        super().prepareForTriggerAvailableNow()
        self._all = self._target

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's
        """See `RangeReader`. A log that has ended stays in the offset, so that another of its name is another."""
        self._before = before = ranges.from_json(start)
        if self._all is not None:
            self._target = logs(self._all, (), before, self._recreated())
        latest = super().latestOffset(start, limit)
        over = {log: position for log, position in before.items() if ended(position)}
        return ranges.to_json(over | ranges.from_json(latest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `RangeReader`. Raises `BackendUnavailable`; `CannotStart` if the owner of the streams is unknown."""
        found = super().partitions(start, end)
        if self._ends is None and found:
            self.bounds()  # an unfinished batch of an earlier process: nothing was asked yet
        streams = self._ends.streams if self._ends is not None else {}
        try:
            return [StreamSplits(each.splits, streams) for each in found if isinstance(each, Splits)]
        except KeyError as error:
            raise CannotStart(
                f"RabbitMQ: {error.args[0]} is planned, but the bridges' catalogue stream no longer names its"
                " destination: start a bridge, or use the options that it was planned with."
            ) from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `RangeReader`."""
        assert isinstance(partition, StreamSplits)  # noqa: S101 - only the mirror makes them
        self._streams = partition.streams
        self._connection = BlockingConnection(self._url, "mirror reads")
        yield from super().read(partition)

    def read_log(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """See `RangeReader`."""
        assert self._connection is not None  # noqa: S101 - `read` has made it
        stream = self._streams[stream_of(log)]
        reading = StreamRangeReader(self._connection, Split(log, start, end), stream)
        while (step := self._connection.run(reading.step())) is not None:
            if isinstance(step, Lost):
                yield from self.lost(log, stream.destination, step.start, step.end)
            else:
                yield step

    def stop(self) -> None:
        """Close the connection."""
        connection, self._connection, self._ends = self._connection, None, None
        if connection is not None:
            connection.close()

    def _recreated(self) -> set[str]:
        return {stream for stream, since in self._short_since.items() if time.monotonic() - since >= RECREATED_AFTER}


_PURPOSE: Final = "mirror"

T = TypeVar("T")


class _RabbitMQData(RangeDataSource):
    reads = RabbitMQReader


class RabbitMQSource(RangeSource):
    """See `Source`."""

    data = _RabbitMQData

    def __init__(self, options: Options) -> None:
        """Read the URL. Raises `ValueError` with what is allowed."""
        super().__init__(options)
        self._url = parse(options.backend)

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """See `Source`. Raises `CannotStart` if RabbitMQ refuses the login or the permission."""
        self._call(lambda connection: connection.run(EndOffsets(self._url, connection).read_catalogue()))
        return super().rows(spark, start)

    def bounds(self) -> Ranges:
        """See `Source`; a stream that was recreated has the name of the first. Raises `CannotStart` as `rows` does."""
        return self._call(lambda connection: connection.run(EndOffsets(self._url, connection).bounds()))

    def unmirrored(self) -> Mapping[str, str]:
        """Return destinations that cannot be mirrored, and why. Raises `BackendUnavailable`."""
        with BlockingConnection(self._url, _PURPOSE) as connection:
            ends = EndOffsets(self._url, connection)
            connection.run(ends.bounds())
            return ends.unmirrored

    def _call(self, call: Callable[[BlockingConnection], T]) -> T:
        with BlockingConnection(self._url, _PURPOSE) as connection:
            try:
                return call(connection)
            except BackendUnavailable as error:
                if is_refusal(error):
                    raise CannotStart(error.detail) from error
                raise
