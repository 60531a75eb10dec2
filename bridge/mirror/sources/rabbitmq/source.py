"""The mirror's source for RabbitMQ: the streams that the bridges keep as logs of their destinations.

It only reads, and needs no more permission than that, on the streams and on the bridges' book.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from adapters.rabbitmq.options import parse
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.offsets import Ranges
from bridge.mirror.options import Options
from bridge.mirror.sources.rabbitmq.end_offsets import EndOffsets
from bridge.mirror.sources.rabbitmq.line import Line, is_refusal
from bridge.mirror.sources.rabbitmq.stream_reader import RabbitMQReader
from bridge.mirror.sources.ranged import RangeData, RangeSource

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
