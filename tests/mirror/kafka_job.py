"""A job of the Kafka source in a process of its own: Spark with the connector's jars, told what to do over a pipe.

One such process serves a whole module: Spark takes 5 s to start, and a process has one Spark only.
"""

import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.mirror.jars import kafka_jars
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.session import session
from bridge.mirror.sources.kafka.source import KafkaSource

GUARD: Final = 300
"""Seconds in which a query must have come to its end."""


class Done(NamedTuple):
    """What came of one run, to the end of what there was."""

    rows: list[dict[str, Any]]
    """What the batches held, by the columns of the source."""
    moved: list[Ranges]
    """What each batch said that it covers."""
    gaps: list[Gap]
    said: str | None = None
    """What an operator is told about the error with which it ended."""
    outage: bool = False
    error: str = ""


class Job:
    """The test's end of the pipe."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    def once(self, options: Options, checkpoint: Path, start: Mapping[str, int] | None = None) -> Done:
        """Mirror what there is and stop."""
        return self._ask("once", options, checkpoint, start or {})

    def begin(self, options: Options, checkpoint: Path) -> None:
        """Start to mirror for ever."""
        self._ask("begin", options, checkpoint)

    def so_far(self) -> Done:
        """Return what has come since `begin`."""
        return self._ask("so_far")

    def end(self) -> Done:
        """Stop what `begin` started."""
        return self._ask("end")

    def _ask(self, *question: object) -> Done:
        self._pipe.send(question)
        assert self._pipe.poll(GUARD + 30), f"no answer to {question[0]}"
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Done)
        return answer


@contextmanager
def running() -> Iterator[Job]:
    """Start the process; it ends with the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    process.start()
    theirs.close()
    try:
        yield Job(ours)
    finally:
        ours.close()
        process.join(GUARD)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


class _Runs:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running: tuple[StreamingQuery, Done] | None = None

    def once(self, options: Options, checkpoint: Path, start: Mapping[str, int]) -> Done:
        source = KafkaSource(options)
        query, done = self._start(source, checkpoint, start, {"availableNow": True})
        try:
            assert query.awaitTermination(GUARD)
        except PySparkException as error:
            query.stop()
            done = done._replace(said=source.explain(error), outage=source.outage(error), error=str(error))
        return done

    def begin(self, options: Options, checkpoint: Path) -> Done:
        self._running = self._start(KafkaSource(options), checkpoint, {}, {"processingTime": "200 milliseconds"})
        return self._running[1]

    def so_far(self) -> Done:
        assert self._running is not None
        query, done = self._running
        error = query.exception()
        return done if error is None else done._replace(error=str(error))

    def end(self) -> Done:
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
            before = _offsets(checkpoint / (f"offsets/{batch - 1}" if batch else "sources/0/0"))
            done.moved.append(source.moved(before, after))
            done.gaps.extend(source.gaps(before, after))
            try:
                done.rows.extend(row.asDict() for row in frame.collect())
            except Exception as error:  # what Java raises in a batch is no PySparkException
                again = source.instead(self._spark, before, after, error)
                if again is None:
                    raise
                done.rows.extend(row.asDict() for row in again.collect())

        rows = source.rows(self._spark, start).writeStream.foreachBatch(each)
        return rows.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start(), done


def _offsets(file: Path) -> str:
    return file.read_text("utf-8").splitlines()[-1]


def _serve(pipe: "Connection[Any, Any]") -> None:
    with session("tests of the Kafka source", kafka_jars()) as spark:
        runs = _Runs(spark)
        while True:
            try:
                name, *arguments = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(getattr(runs, name)(*arguments))
            except Exception as error:  # noqa: BLE001 - the test's to judge
                pipe.send(error)
