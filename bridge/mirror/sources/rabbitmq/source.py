"""The mirror's source for RabbitMQ: the streams that the bridges keep as logs of their destinations.

It only reads, and needs no more permission than that, on the streams and on the bridges' book.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from adapters.rabbitmq.url import parse
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sources import ranges, reader
from bridge.mirror.sources.rabbitmq.line import Line, is_refusal
from bridge.mirror.sources.rabbitmq.stream_reader import RabbitMQReader
from bridge.mirror.sources.rabbitmq.streams import without_ended
from bridge.mirror.sources.rabbitmq.tails import Tails
from bridge.mirror.sources.ranges import Place
from bridge.mirror.sources.reader import Ask

_PURPOSE: Final = "mirror"


class RabbitMQSource:
    """See `Source`."""

    def __init__(self, options: Options) -> None:
        """Read the URL. Raises `ValueError` with what is allowed."""
        self._options = options
        self._url = parse(options.backend)

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """See `Source`. Raises `CannotStart` where RabbitMQ does not let the mirror in."""
        self._knock()
        spark.dataSource.register(_RabbitMQDataSource)
        ask = Ask(self._options, start, spark.sparkContext.defaultParallelism)
        return spark.readStream.format(_RabbitMQDataSource.name()).options(**ask.to_options()).load()

    def moved(self, before: str | None, after: str) -> Ranges:
        """See `Source`."""
        return ranges.moved(*_living(before, after))

    def gaps(self, before: str | None, after: str) -> Sequence[Gap]:
        """See `Source`."""
        return ranges.gaps(*_living(before, after))

    def bounds(self) -> Ranges:
        """See `Source`; a stream that was made anew is called as if it were the first."""
        with Line(self._url, _PURPOSE) as line:
            return line.run(Tails(self._url, line).bounds())

    def unmirrored(self) -> Mapping[str, str]:
        """Return destinations that cannot be mirrored, and why. Raises `BackendUnavailable`."""
        with Line(self._url, _PURPOSE) as line:
            tails = Tails(self._url, line)
            line.run(tails.bounds())
            return tails.unmirrored

    def instead(self, _spark: SparkSession, _before: str | None, _after: str, _error: BaseException) -> None:
        """See `Source`: there are no other means."""

    def outage(self, error: BaseException) -> bool:
        """See `Source`."""
        return reader.outage(error)

    def explain(self, error: BaseException) -> str | None:
        """See `Source`."""
        return reader.explain(error)

    def _knock(self) -> None:
        with Line(self._url, _PURPOSE) as line:
            try:
                line.run(Tails(self._url, line).look())
            except BackendUnavailable as error:
                if is_refusal(error):
                    raise CannotStart(error.detail) from error


def _living(before: str | None, after: str) -> tuple[Mapping[str, Place], Mapping[str, Place]]:
    start = ranges.read(before)
    return start, without_ended(start, ranges.read(after))


class _RabbitMQDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "oms-rabbitmq"

    def schema(self) -> str:
        return SOURCE_DDL

    def streamReader(self, schema: StructType) -> RabbitMQReader:  # noqa: ARG002, N802 - Spark's
        return RabbitMQReader(Ask.from_options(self.options))
