"""What the job asks of the sources that are written in Python: the same of all, but for where their logs end."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sources import ranges, reader
from bridge.mirror.sources.reader import Ask, RangeReader


class RangeData(DataSource):
    """Gives Spark a reader. Spark finds the class by its name, so each kind is a class at module level."""

    reads: ClassVar[type[RangeReader]]

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return f"oms-{cls.reads.backend}"

    def schema(self) -> str:
        """Return the columns of every source."""
        return SOURCE_DDL

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: ARG002, N802 - Spark's signature
        """Return a reader for what the options ask."""
        return self.reads(Ask.from_options(self.options))


class RangeSource:
    """All of `Source` but `bounds`."""

    data: ClassVar[type[RangeData]]

    def __init__(self, options: Options) -> None:
        self._options = options

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """See `Source`."""
        spark.dataSource.register(self.data)
        ask = Ask(self._options, start, spark.sparkContext.defaultParallelism)
        return spark.readStream.format(self.data.name()).options(**ask.to_options()).load()

    def moved(self, before: str | None, after: str) -> Ranges:
        """See `Source`."""
        return ranges.moved(ranges.read(before), ranges.read(after))

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return what was gone when the range was planned; what went later is a row in quarantine."""
        return ranges.gaps(ranges.read(before), ranges.read(after))

    def fallback_read(self, _spark: SparkSession, _before: str | None, _after: str, _error: BaseException) -> None:
        """See `Source`: there are no other means."""

    def outage(self, error: BaseException) -> bool:
        """See `Source`."""
        return reader.outage(error)

    def explain(self, error: BaseException) -> str | None:
        """See `Source`."""
        return reader.explain(error)
