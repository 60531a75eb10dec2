"""The reporter on a real query: what Spark reports, and when."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from adapters.wall_clock import wall
from bridge.mirror.monitoring.reporter import Reporter, reporting
from bridge.mirror.monitoring.status import Committed, Status
from bridge.mirror.sources import Options
from tests.mirror.numbers_job import Numbers

TOTAL, PER_BATCH = 3_000, 1_000
GUARD = 120


def until(condition: Callable[[], bool]) -> None:
    """Wait for what Spark reports later."""
    guard = threading.Event()
    timer = threading.Timer(GUARD, guard.set)
    timer.start()
    while not condition():
        assert not guard.wait(0.05)
    timer.cancel()


@pytest.fixture
def reporter(spark: SparkSession, tmp_path: Path) -> Iterator[Reporter]:
    options = Options("memory://", str(tmp_path))
    source = Numbers(TOTAL, PER_BATCH)
    with reporting(options, source, status_file=tmp_path / "status.json", metrics=None, show="quiet") as reporter:
        spark.streams.addListener(reporter)
        yield reporter
        spark.streams.removeListener(reporter)


def sink(reporter: Reporter, fail_at: int | None = None) -> Callable[[DataFrame, int], None]:
    """Count rows where the real one writes them."""

    def take(frame: DataFrame, number: int) -> None:
        if number == fail_at:
            raise ValueError("the [disk] is full\nof files")
        frame.count()  # twice on purpose: Spark's own count of rows is doubled by it
        rows = {row["area"]: row["count"] for row in frame.groupBy("area").count().collect()}
        reporter.committed(Committed(f"q/{number:012d}", number, rows, 100, 1, (), {"stage": 5}, wall()))

    return take


@pytest.mark.extended
def test_a_query_is_reported_from_its_start_over_a_restart_to_idleness(
    spark: SparkSession, reporter: Reporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", 100)
    lags: list[int | None] = []
    rates: list[float] = []
    status, triggered = reporter.status, Status.triggered

    def spy(self: Status, rows: int, milliseconds: int, lag: Mapping[str, int] | None, now: datetime) -> None:
        triggered(self, rows, milliseconds, lag, now)
        lags.append(status.lag["rows"])
        rates.append(status.rows_per_second)

    monkeypatch.setattr(Status, "triggered", spy)
    frame = Numbers(TOTAL, PER_BATCH).rows(spark, {})
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))

    query = writer.foreachBatch(sink(reporter, fail_at=1)).trigger(processingTime="0 seconds").start()
    assert status.state == "running"
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    until(lambda: status.state == "starting")
    assert status.reason == "ValueError: the [disk] is full"

    query = writer.foreachBatch(sink(reporter)).trigger(processingTime="0 seconds").start()
    assert (status.state, status.restarts) == ("running", 1)
    until(lambda: status.batches == TOTAL // PER_BATCH)
    until(lambda: len(lags) == TOTAL // PER_BATCH and status.rows_per_second == 0)
    query.stop()
    bad = 2 * len(range(0, TOTAL // 2, 97))
    assert (status.rows, status.quarantined) == (TOTAL, bad)
    assert status.messages > status.dead_letters > 0
    assert lags == [2000, None, 0]  # a batch that is repeated is not planned: the source was not asked
    assert max(rates) > 0
    file = tmp_path / "status.json"
    until(
        lambda: json.loads(file.read_text())["lag"] == {"rows": 0, "logs": 0, "seconds": 0, "worst": []}
    )  # rows change before it
    assert json.loads(file.read_text())["rows"] == TOTAL
