"""The watch on a real query: what Spark tells, and when."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from adapters.clock import wall
from bridge.mirror.layout import batch_key
from bridge.mirror.options import Options
from bridge.mirror.watch.events import Committed
from bridge.mirror.watch.watching import Watch, watching
from tests.mirror.numbers_job import Numbers

TOTAL, PER_BATCH = 3_000, 1_000
GUARD = 120


def until(condition: Callable[[], bool]) -> None:
    """Wait for what Spark tells in its own time."""
    guard = threading.Event()
    timer = threading.Timer(GUARD, guard.set)
    timer.start()
    while not condition():
        assert not guard.wait(0.05)
    timer.cancel()


@pytest.fixture
def watch(spark: SparkSession, tmp_path: Path) -> Iterator[Watch]:
    options = Options("memory://", str(tmp_path))
    source = Numbers(TOTAL, PER_BATCH)
    with watching(options, source, status_file=tmp_path / "status.json", metrics=None, show="quiet") as watch:
        spark.streams.addListener(watch.listener)
        yield watch
        spark.streams.removeListener(watch.listener)


def sink(watch: Watch, fail_at: int | None = None) -> Callable[[DataFrame, int], None]:
    """Count rows where the real one writes them."""

    def take(frame: DataFrame, number: int) -> None:
        if number == fail_at:
            raise ValueError("the [disk] is full\nof files")
        frame.count()  # twice on purpose: Spark's own count of rows is doubled by it
        rows = {row["area"]: row["count"] for row in frame.groupBy("area").count().collect()}
        took = {"stage": 5, "commit": 1, "publish": 2}
        watch.observer(Committed(batch_key("q", number), number, rows, 100, 1, (), took, wall()))  # type: ignore[arg-type]

    return take


def test_a_query_is_watched_from_its_start_over_a_restart_to_idleness(
    spark: SparkSession, watch: Watch, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", 100)
    lags: list[int | None] = []
    tell = watch.listener._tell

    def spy(event: object) -> None:
        tell(event)  # type: ignore[arg-type]
        if type(event).__name__ == "Progressed":
            lags.append(watch.state().behind)

    watch.listener._tell = spy
    frame = Numbers(TOTAL, PER_BATCH).rows(spark, {})
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))

    query = writer.foreachBatch(sink(watch, fail_at=1)).trigger(processingTime="0 seconds").start()
    assert watch.state().condition == "running"
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    until(lambda: watch.state().run is None)
    assert (watch.state().condition, watch.state().reason) == ("starting", "ValueError: the [disk] is full")

    query = writer.foreachBatch(sink(watch)).trigger(processingTime="0 seconds").start()
    assert (watch.state().condition, watch.state().restarts) == ("running", 1)
    until(lambda: watch.state().batches == TOTAL // PER_BATCH)
    until(lambda: len(lags) == TOTAL // PER_BATCH and watch.state().speed == 0)
    query.stop()
    state = watch.state()
    bad = 2 * len(range(0, TOTAL // 2, 97))
    assert (state.total, state.rows["quarantine"]) == (TOTAL, bad)
    assert state.rows["data"] > state.rows["dead-letters"] > 0
    assert lags == [2000, None, 0]  # a batch that is repeated is not planned: nobody asked the source
    assert max(state.speeds) > 0
    status = tmp_path / "status.json"
    until(lambda: json.loads(status.read_text())["rows"] == TOTAL)
    assert json.loads(status.read_text())["lag"] == {"rows": 0, "logs": 0, "worst": []}
