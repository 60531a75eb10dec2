"""A mirror of numbers: the sink with a source that is there at once and the same for ever. Run as a process.

`numbers_job.py OUT TOTAL PER_BATCH [--resume]`. What it refuses is the last line of stderr.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror import layout
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.rows import Rows
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.session import session
from bridge.mirror.sink import sink as room
from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.check import check, start
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.publish import recover
from bridge.mirror.sources import ranges, reader
from bridge.mirror.sources.reader import Ask, RangeReader

LOGS = ("even", "odd")
DESTINATIONS = ("orders", "a long name.with-dots", "orders.dlq")
HOUR = 3_600_000


class NumbersReader(RangeReader):
    backend = "memory"

    def bounds(self) -> Ranges:
        total = int(self._ask.options.backend.removeprefix("numbers:"))
        return {log: (0, total // len(LOGS)) for log in LOGS}

    def read_log(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        rows = Rows(self.backend)
        for offset in range(start, end):
            if offset % 97 == 0:
                rows.add_bad("it is a multiple of 97", b"\x00", "orders", log, offset)
            else:
                rows.add(made(log, offset), log, offset)
            if rows.full:
                yield rows.take()
        if len(rows):
            yield rows.take()

    def stop(self) -> None:
        """Nothing is held."""


def made(log: str, offset: int) -> Message:
    return Message(
        destination=DESTINATIONS[offset % len(DESTINATIONS)],
        body=b"%d" % offset * 50,
        message_id=f"{log}-{offset}",
        store_timestamp=1_790_000_000_000 + offset % 2 * HOUR,
        properties={"n": str(offset)},
    )


class NumbersSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return SOURCE_DDL

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: ARG002, N802 - Spark's signature
        return NumbersReader(Ask.from_options(self.options))


class Numbers:
    """Fulfils `sources.base.Source`."""

    def __init__(self, total: int, per_batch: int) -> None:
        self._options = Options(f"numbers:{total}", "", rows=per_batch)

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        spark.dataSource.register(NumbersSource)
        options = Ask(self._options, start, 2).to_options()
        return spark.readStream.format("numbers").options(**options).load()

    def moved(self, before: str | None, after: str) -> Ranges:
        return ranges.moved(ranges.read(before), ranges.read(after))

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        return ranges.gaps(ranges.read(before), ranges.read(after))

    def bounds(self) -> Ranges:
        return {}

    def instead(self, _spark: SparkSession, _before: str | None, _after: str, _error: BaseException) -> None:
        pass

    def outage(self, error: BaseException) -> bool:
        return reader.outage(error)

    def explain(self, error: BaseException) -> str | None:
        return reader.explain(error)


def mirror(spark: SparkSession, out: str, source: Numbers, *, resume: bool = False) -> room.Sink:
    """Mirror all numbers: the job's own steps, in the job's order."""
    files, checkpoint = Files(spark, out), Files(spark, f"{out}/{layout.CHECKPOINT}")
    recover(files)
    catalogue = load(files)
    check(files, checkpoint, catalogue, resume=resume)
    sink = room.Sink(files, checkpoint, catalogue, source, lambda _: None)
    writer = source.rows(spark, start(catalogue)).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", checkpoint.out).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception:
        if sink.failed:
            raise sink.failed from None
        raise
    return sink


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("total", type=int)
    parser.add_argument("per_batch", type=int)
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    with session("numbers") as spark:
        try:
            mirror(spark, str(asked.out), Numbers(asked.total, asked.per_batch), resume=asked.resume)
        except CannotStart as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
