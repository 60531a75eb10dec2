"""One Spark that reads a source into nothing and into a mirror, in turn.

Runs as a separate process: `python -m benchmarks.mirror_flow BACKEND BRIDGE ROUNDS MASTER`. It prints a line of JSON
for each pair of queries, each over all that the backend keeps: rows, seconds and seconds of CPU of both. The first pair
warms the JVM up and is not printed. An empty MASTER is the mirror's own: everything in one process.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.tree import cpu
from bridge.mirror.jars import spark_jars
from bridge.mirror.session import session
from bridge.mirror.sink import Sink
from bridge.mirror.sources import Options, open_source
from bridge.mirror.spark_checkpoint import Checkpoint
from bridge.mirror.table import create, spark_path

ROWS: Final = 50_000
"""Of one batch."""


class Flow(NamedTuple):
    """What a query did."""

    rows: int
    seconds: float
    """Of its triggers, planning included."""
    cpu: float
    """Seconds of CPU of driver, executors and their workers."""


def main() -> None:
    """Run the rounds."""
    backend, bridge, rounds, master = sys.argv[1:]
    options = Options(backend, "", bridge, rows=ROWS)
    conf = {"spark.master": master, "spark.executor.memory": "1g"} if master else {}
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # executors are started from there
    with session("benchmark", spark_jars(), conf) as spark:
        for turn in range(int(rounds) + 1):
            with tempfile.TemporaryDirectory() as directory:
                ceiling = _nothing(spark, options, Path(directory) / "nothing")
                figure = _mirror(spark, options, Path(directory) / "mirror")
            if ceiling.rows != figure.rows:
                raise RuntimeError(f"{ceiling.rows} rows went into nothing, {figure.rows} into the mirror.")
            if turn:
                print(json.dumps([ceiling._asdict(), figure._asdict()]), flush=True)


def _nothing(spark: SparkSession, options: Options, checkpoint: Path) -> Flow:
    return _run(open_source(options).rows(spark, {}).writeStream.format("noop"), checkpoint)


def _mirror(spark: SparkSession, options: Options, out: Path) -> Flow:
    create(str(out))
    source, checkpoint = open_source(options), Checkpoint(spark, spark_path(str(out), "checkpoint"))
    sink = Sink(str(out), checkpoint, source, lambda _: None)
    return _run(source.rows(spark, {}).writeStream.foreachBatch(sink), out / "checkpoint")


def _run(writer: DataStreamWriter, checkpoint: Path) -> Flow:
    before = cpu(os.getpid())
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    done = [each for each in query.recentProgress if each["numInputRows"]]
    milliseconds = sum(each["durationMs"]["triggerExecution"] for each in done)
    rows = sum(each["numInputRows"] for each in done)
    return Flow(rows, milliseconds / 1000, cpu(os.getpid()) - before)


if __name__ == "__main__":
    main()
