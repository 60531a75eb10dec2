"""One Spark session, as the mirror needs it, on a laptop and under `spark-submit` alike."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.errors import CannotStart

LOOPBACK: Final = "127.0.0.1"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL: Final = {
    "spark.master": "local[*,4]",  # 4: a task that fails is tried again, as on a cluster
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",  # 512 MB are enough for batches of 1 KiB messages; 3 GB gave nothing more
    # SerialGC: 591 MB resident in place of 680 MB, at the same speed
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_LOG.as_uri()}",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Where nobody said otherwise: everything in one process on this machine."""
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a destination called 007 is a name
}


def submitted() -> bool:
    """Whether `spark-submit` has started this program: then the jars are its to bring."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session(name: str, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Start Spark, or join what `spark-submit` has started; it ends with the block. Raises `CannotStart` without Java.

    Its settings win over ours, except for what the meaning of the rows hangs on: time zone and types.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted():
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.appName(name)
    settings = _EVERYWHERE if submitted() else _EVERYWHERE | _LOCAL
    for key, value in settings.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in jars))
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise CannotStart("Spark does not start: it needs Java 17 (JAVA_HOME, or java on the PATH).") from error
    try:
        yield spark
    finally:
        spark.stop()
