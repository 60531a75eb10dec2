"""The in-memory backend as a source: the logs of one bridge, read again over HTTP."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from bridge.errors import CannotStart
from bridge.mirror.offsets import Ranges
from bridge.mirror.options import Options
from bridge.mirror.sources import ranges
from bridge.mirror.sources.memory.log import MemoryLog
from bridge.mirror.sources.memory.rows import BACKEND, destination_of, to_batch
from bridge.mirror.sources.ranged import RangeData, RangeSource
from bridge.mirror.sources.reader import Ask, RangeReader


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
                    f"The bridge runs on an older copy of its journal: {log} ends at {end} and was mirrored up to"
                    f" {place.next}, so offsets are assigned twice. Use a newer copy, or another folder for the mirror."
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


class _MemoryData(RangeData):
    reads = _MemoryReader


class MemorySource(RangeSource):
    """Fulfils `sources.base.Source`.

    A bridge without a journal begins a new epoch with each start: what the mirror had not read of the old one is lost.
    """

    data = _MemoryData

    def __init__(self, options: Options) -> None:
        """Take the options; nothing is connected yet. Raises `CannotStart`."""
        super().__init__(options)
        self._log = MemoryLog(options.bridge)

    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log. Raises `BackendUnavailable`, `CannotStart`."""
        try:
            return self._log.bounds()
        finally:
            self._log.close()
