"""The in-memory backend as a source: the logs of one bridge, read again over HTTP."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.errors import CannotStart
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sources import ranges, reader
from bridge.mirror.sources.memory.log import MemoryLog
from bridge.mirror.sources.memory.rows import BACKEND, destination_of, to_batch
from bridge.mirror.sources.reader import Ask, RangeReader


class MemorySource:
    """Fulfils `sources.base.Source`.

    A bridge without a journal begins a new epoch with each start: what the mirror had not read of the old one is lost.
    """

    def __init__(self, options: Options) -> None:
        """Take the options; nothing is connected yet. Raises `CannotStart`."""
        self._options = options
        self._log = MemoryLog(options.bridge)

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """Return the stream of rows; see `Source`."""
        spark.dataSource.register(_MemoryDataSource)
        ask = Ask(self._options, start, spark.sparkContext.defaultParallelism)
        return spark.readStream.format(_MemoryDataSource.name()).options(**ask.to_options()).load()

    def moved(self, before: str | None, after: str) -> Ranges:
        """Return what lies between two offsets."""
        return ranges.moved(ranges.read(before), ranges.read(after))

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return what of that was gone when it was planned; what went later is a row in quarantine."""
        return ranges.gaps(ranges.read(before), ranges.read(after))

    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log. Raises `BackendUnavailable`, `CannotStart`."""
        try:
            return self._log.bounds()
        finally:
            self._log.close()

    def instead(self, _spark: SparkSession, _before: str | None, _after: str, _error: BaseException) -> None:
        """See `Source`: there are no other means."""

    def outage(self, error: BaseException) -> bool:
        """Whether a query ended because the bridge could not be reached."""
        return reader.outage(error)

    def explain(self, error: BaseException) -> str | None:
        """Say why a query ended; None for what is not known here."""
        return reader.explain(error)


class _MemoryDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "oms-memory"

    def schema(self) -> str:
        return SOURCE_DDL

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: ARG002, N802 - Spark's signature
        return _MemoryReader(Ask.from_options(self.options))


class _MemoryReader(RangeReader):
    backend = BACKEND

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self._log = MemoryLog(ask.options.bridge)

    def bounds(self) -> Ranges:
        return self._log.bounds()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        after = super().latestOffset(start, limit)
        for log, place in ranges.from_json(start).items():
            _, end = self.seen.get(log, (0, place.next))
            if end < place.next:
                raise CannotStart(
                    f"The bridge's journal was set back: {log} ends at {end} and was mirrored up to {place.next}, so"
                    " its offsets no longer mean what they did. Begin a mirror in another folder, or use a later copy."
                )
        return after

    def stop(self) -> None:
        self._log.close()

    def read_log(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        destination, at = destination_of(log), start
        while at < end:
            block = self._log.read(log, at, end - at)
            if block is None or block.next <= at:
                yield from self.lost(log, destination, at, end)
                return
            for first, stop in block.dropped:
                if first < end:
                    yield from self.lost(log, destination, first, min(stop, end))
            if block.offsets and block.offsets[0] < end:
                yield to_batch(block, log, end)
            at = block.next
