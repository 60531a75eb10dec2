"""A mirror of numbers: the sink with a source that is there at once and never changes. Run as a process.

`numbers_job.py OUT TOTAL PER_BATCH [--resume] [--checkpoint URI]`. What it refuses is the last line of stderr.
"""

import logging
import sys
from argparse import ArgumentParser
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror.jars import spark_jars
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.schema import Rows
from bridge.mirror.session import s3_settings, session
from bridge.mirror.sink import Sink
from bridge.mirror.sources import Options
from bridge.mirror.sources.range_source import RangeDataSource, RangeReader, Source, Splits
from bridge.mirror.sources.ranges import Split
from bridge.mirror.spark_checkpoint import Checkpoint, check_start
from bridge.mirror.table import Table, create, spark_path

LOGS = ("even", "odd")
DESTINATIONS = ("orders", "a long name.with-dots", "orders.dlq")
HOUR = 3_600_000


class NumbersReader(RangeReader):
    backend = "memory"

    def bounds(self) -> Ranges:
        total = int(self._ask.options.backend.removeprefix("numbers:"))
        return {log: (0, total // len(LOGS)) for log in LOGS}

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        rows = Rows(self.backend)
        for log, start, end in given.splits:
            for offset in range(start, end):
                if offset % 97 == 0:
                    rows.add_bad("it is a multiple of 97", b"\x00", "orders", log, offset)
                else:
                    rows.add(made(log, offset), log, offset)
                if rows.full:
                    yield rows.take()
        if len(rows):
            yield rows.take()

    def destination_of(self, log: str, given: Splits) -> str:  # noqa: ARG002 - all is of one destination
        return DESTINATIONS[0]

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


class NumbersData(RangeDataSource):
    reads = NumbersReader

    @classmethod
    def name(cls) -> str:
        return "numbers"


class DroppingReader(NumbersReader):
    """Loses two offsets of a log between the plan and the reading."""

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        splits = []
        for log, start, end in given.splits:
            if log == "even" and start <= 10 and end >= 12:
                yield Gap(log, 10, 12)
                splits += [Split(log, start, 10), Split(log, 12, end)]
            else:
                splits.append(Split(log, start, end))
        yield from super().read_splits(Splits(tuple(splits)))


class DroppingData(NumbersData):
    reads = DroppingReader

    @classmethod
    def name(cls) -> str:
        return "dropping"


class Numbers(Source):
    """See `Source`."""

    data = NumbersData

    def __init__(self, total: int, per_batch: int) -> None:
        super().__init__(Options(f"numbers:{total}", "", rows=per_batch))

    def bounds(self) -> Ranges:
        return {}


class Dropping(Numbers):
    """See `DroppingReader`."""

    data = DroppingData

    def __init__(self, total: int, per_batch: int) -> None:
        super().__init__(total, per_batch)
        self._options = self._options._replace(on_data_loss="record")


def mirror(spark: SparkSession, out: str, source: Numbers, *, resume: bool = False, place: str | None = None) -> Sink:
    """Mirror all numbers: the job's own steps, in the job's order. `place`: of the checkpoint."""
    create(out)
    checkpoint = Checkpoint(spark, place or spark_path(out, "checkpoint"))
    record = check_start(out, checkpoint, Table.require(out), resume=resume)
    sink = Sink(out, checkpoint, source, lambda _: None)
    writer = source.rows(spark, {} if record is None else record.next).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", checkpoint.place).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception:
        if sink.failed:
            raise sink.failed from None
        raise
    return sink


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("total", type=int)
    parser.add_argument("per_batch", type=int)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checkpoint")
    asked = parser.parse_args()
    logging.basicConfig(level="INFO")
    place = asked.checkpoint or spark_path(asked.out, "checkpoint")
    with session("numbers", spark_jars(), s3_settings(place)) as spark:
        try:
            mirror(spark, asked.out, Numbers(asked.total, asked.per_batch), resume=asked.resume, place=place)
        except CannotStart as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
