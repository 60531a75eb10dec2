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
from bridge.mirror.sources.rabbitmq.connection import Line, is_refusal
from bridge.mirror.sources.rabbitmq.end_offsets import EndOffsets
from bridge.mirror.sources.rabbitmq.range_reader import BACKEND, Lost, RangeReading
from bridge.mirror.sources.range_source import Ask, Pieces, RangeData, RangeReader, RangeSource
from bridge.mirror.sources.ranges import Piece, Place

DOUBT: Final = 10.0
"""Seconds for which a stream must end before its place until it is taken for another: a replica may be behind."""


class Streams(Pieces):
    """What one task reads, and whose streams these are: a task does not read the book."""

    def __init__(self, pieces: tuple[Piece, ...], streams: Mapping[str, Stream]) -> None:
        super().__init__(pieces)
        self.streams = {stream_of(piece.log): streams[stream_of(piece.log)] for piece in pieces}


class RabbitMQReader(RangeReader):
    """See `RangeReader`. The connection to plan with stays; a task has one for all that it reads."""

    backend = BACKEND

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self._url = parse(ask.options.backend)
        self._line: Line | None = None
        self._ends: EndOffsets | None = None
        self._before: Mapping[str, Place] = {}
        self._doubted: dict[str, float] = {}
        """Since when a stream ends before its place."""
        self._streams: Mapping[str, Stream] = {}
        self._all: Ranges | None = None
        """How far to read where the query is to end."""

    def bounds(self) -> Ranges:
        """See `RangeReader`."""
        self._line = self._line or Line(self._url, "mirror plans")
        ends = self._ends = self._ends or EndOffsets(self._url, self._line)
        try:
            found = self._line.run(ends.bounds())
        except (BackendUnavailable, CannotStart):
            self.stop()
            raise
        now = time.monotonic()
        self._doubted = {stream: self._doubted.get(stream, now) for stream in behind(found, self._before)}
        return logs(found, ends.missing, self._before, self._anew())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """See `RangeReader`."""
        super().prepareForTriggerAvailableNow()
        self._all = self._target

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's
        """See `RangeReader`. A log that has ended stays in the offset, so that another of its name is another."""
        self._before = before = ranges.from_json(start)
        if self._all is not None:
            self._target = logs(self._all, (), before, self._anew())
        latest = super().latestOffset(start, limit)
        over = {log: place for log, place in before.items() if ended(place)}
        return ranges.to_json(over | ranges.from_json(latest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `RangeReader`. Raises `BackendUnavailable`; `CannotStart` if the owner of the streams is unknown."""
        found = super().partitions(start, end)
        if self._ends is None and found:
            self.bounds()  # an unfinished batch of an earlier process: nothing was asked yet
        streams = self._ends.streams if self._ends is not None else {}
        try:
            return [Streams(each.pieces, streams) for each in found if isinstance(each, Pieces)]
        except KeyError as error:
            raise CannotStart(
                f"RabbitMQ: {error.args[0]} is planned, but the bridges' catalogue stream no longer names its"
                " destination: start a bridge, or use the options that it was planned with."
            ) from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `RangeReader`."""
        assert isinstance(partition, Streams)  # noqa: S101 - only the mirror makes them
        self._streams = partition.streams
        self._line = Line(self._url, "mirror reads")
        yield from super().read(partition)

    def read_log(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """See `RangeReader`."""
        assert self._line is not None  # noqa: S101 - `read` has made it
        stream = self._streams[stream_of(log)]
        reading = RangeReading(self._line, Piece(log, start, end), stream)
        while (step := self._line.run(reading.step())) is not None:
            if isinstance(step, Lost):
                yield from self.lost(log, stream.destination, step.start, step.end)
            else:
                yield step

    def stop(self) -> None:
        """Close the connection."""
        line, self._line, self._ends = self._line, None, None
        if line is not None:
            line.close()

    def _anew(self) -> set[str]:
        return {stream for stream, since in self._doubted.items() if time.monotonic() - since >= DOUBT}


_PURPOSE: Final = "mirror"

T = TypeVar("T")


class _RabbitMQData(RangeData):
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
        self._ask(lambda line: line.run(EndOffsets(self._url, line).look()))
        return super().rows(spark, start)

    def bounds(self) -> Ranges:
        """See `Source`; a stream that was recreated has the name of the first. Raises `CannotStart` as `rows` does."""
        return self._ask(lambda line: line.run(EndOffsets(self._url, line).bounds()))

    def unmirrored(self) -> Mapping[str, str]:
        """Return destinations that cannot be mirrored, and why. Raises `BackendUnavailable`."""
        with Line(self._url, _PURPOSE) as line:
            ends = EndOffsets(self._url, line)
            line.run(ends.bounds())
            return ends.unmirrored

    def _ask(self, question: Callable[[Line], T]) -> T:
        with Line(self._url, _PURPOSE) as line:
            try:
                return question(line)
            except BackendUnavailable as error:
                if is_refusal(error):
                    raise CannotStart(error.detail) from error
                raise
