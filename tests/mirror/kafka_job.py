"""Queries of the Kafka source, in the session that all tests of a worker share; they keep what the batches held."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.sources import Options
from bridge.mirror.sources.kafka.source import KafkaSource
from bridge.mirror.sources.range_source import BUSY

GUARD: Final = 300
"""Seconds in which a query must have come to its end."""


class Done(NamedTuple):
    """What came of one run, to the end of what there was."""

    rows: list[dict[str, Any]]
    """What the batches held, by the columns of the source."""
    moved: list[Ranges]
    """The offsets that each batch covered."""
    gaps: list[Gap]
    said: str | None = None
    """The operator's sentence about the error with which it ended."""
    outage: bool = False
    error: str = ""


class Job:
    """One query at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running: tuple[StreamingQuery, Done] | None = None

    def once(self, options: Options, checkpoint: Path, start: Mapping[str, int] | None = None) -> Done:
        """Mirror what there is and stop."""
        source = KafkaSource(options)
        while True:
            query, done = self._start(source, checkpoint, start or {}, {"availableNow": True})
            try:
                assert query.awaitTermination(GUARD)
            except PySparkException as error:
                if BUSY in str(error):  # the job begins again, too
                    continue
                done = done._replace(said=source.explain(error), outage=source.outage(error), error=str(error))
            finally:
                query.stop()
            return done

    def begin(self, options: Options, checkpoint: Path) -> None:
        """Start to mirror until `end`."""
        self._running = self._start(KafkaSource(options), checkpoint, {}, {"processingTime": "200 milliseconds"})

    def so_far(self) -> Done:
        """Return what has come since `begin`."""
        assert self._running is not None
        query, done = self._running
        error = query.exception()
        return done._replace(rows=[*done.rows], error="" if error is None else str(error))

    def end(self) -> Done:
        """Stop what `begin` started."""
        assert self._running is not None
        (query, done), self._running = self._running, None
        query.stop()
        return done

    def _start(
        self, source: KafkaSource, checkpoint: Path, start: Mapping[str, int], trigger: dict[str, Any]
    ) -> tuple[StreamingQuery, Done]:
        done = Done([], [], [])

        def each(frame: DataFrame, batch: int) -> None:
            after = _offsets(checkpoint / f"offsets/{batch}")
            before = _offsets(checkpoint / f"offsets/{batch - 1}") if batch else None
            done.moved.append(source.moved(before, after))
            done.gaps.extend(source.gaps(before, after))
            done.rows.extend(row.asDict() for row in frame.collect())

        rows = source.rows(self._spark, start).writeStream.foreachBatch(each)
        return rows.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start(), done


def _offsets(file: Path) -> str:
    return file.read_text("utf-8").splitlines()[-1]
