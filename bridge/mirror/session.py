"""One Spark session, as the mirror needs it, on a laptop and under `spark-submit` alike; its settings for `s3a://`.

delta-rs and Spark take credentials, region and endpoint of S3 from the same `AWS_…` variables.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.mirror.table import shown, spark_path

SPARK: Final = "4.2"
DELTA: Final = "4.4.0"
"""The one release of Delta Lake for that Spark; also in pom.xml."""
LOOPBACK: Final = "127.0.0.1"
LOGGING: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
"""Java's option that makes Spark log as the mirror wants."""
_LOCAL: Final = {
    "spark.master": "local[*,4]",  # 4: a task that fails is tried again, as on a cluster
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
"""The default: everything in one process on this machine."""
_DRIVER: Final = {
    "spark.driver.memory": "1g",  # 512 MB are enough for batches of 1 KiB messages; 3 GB gave nothing more
    # SerialGC: 591 MB resident in place of 680 MB, at the same speed. Xmn and the ratios: a page of the heap stays
    # resident once it was used, and the young part grew to 330 MB; a small one, and an old part that grows in small
    # steps, took 120 MB off the mirror's peak, at the same speed. Xss: Spark searches the text of an error of the
    # mirror with a pattern that needs a stack of more than 1 MB for 3,000 characters
    "spark.driver.extraJavaOptions": (
        f"-XX:+UseSerialGC -Xmn40m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20 -Xss16m {LOGGING}"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The process that this program starts, with executors elsewhere or without."""
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # with 50, its default, the first batches took 8 s each
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",  # 113,000 messages/s; level 3: 102,000, and 3 % smaller
    "spark.hadoop.parquet.enable.dictionary#body": "false",
    "spark.hadoop.parquet.enable.dictionary#json": "false",
    "spark.hadoop.parquet.enable.dictionary#message_id": "false",  # each value occurs once
}


def submitted() -> bool:
    """Whether `spark-submit` has started this program: then the jars are its to bring."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark: the mirror's, then `conf`."""
    local = conf.get("spark.master", "local").startswith("local")  # executors elsewhere could not reach the loopback
    own = {} if submitted() else _DRIVER | _LOCAL if local else _DRIVER
    return {**_EVERYWHERE, **own, **conf}


@contextmanager
def session(
    name: str, jars: Sequence[Path] = (), conf: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Start Spark, or join what `spark-submit` has started; it ends with the block. Raises `CannotStart` without Java.

    Its settings override the mirror's, except for time zone and types, which the rows depend on. `conf`: settings
    of Spark that win over all.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Arrow's own allocator keeps what a batch has freed: 25 MB more in Spark's Python processes
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    chosen = settings(conf)
    if chosen.get("spark.driver.bindAddress") == LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    brought = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    try:
        spark = SparkSession.builder.appName(name).config(map={**chosen, **brought}).getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise CannotStart(
            "Spark does not start: it needs Java 17 (JAVA_HOME, or java on the PATH), and a --conf that it accepts; "
            "its own error is above."
        ) from error
    try:
        _check_versions(spark)
        yield spark
    finally:
        spark.stop()


_GIVE_JARS: Final = "give it the jars that `oms-bridge mirror fetch-jars` prints."


def _check_versions(spark: SparkSession) -> None:
    """Raise `CannotStart` unless Spark and Delta are the releases that belong together."""
    if not spark.version.startswith(f"{SPARK}."):
        raise CannotStart(f"The mirror needs Spark {SPARK}; this is Spark {spark.version}.")
    # py4j has no types: everything that comes from the JVM is Any
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to classes of Java
    try:
        found = str(getattr(jvm.io.delta, "package").VERSION())  # noqa: B009 - the name of a Scala object
    except TypeError:
        found = "none"
    if found != DELTA:
        raise CannotStart(f"The mirror needs Delta Lake {DELTA}, and Spark has {found}: {_GIVE_JARS}")
    if isinstance(jvm.openmessaging.mirror.Append, JavaPackage):  # py4j takes any name for a package
        raise CannotStart(f"Spark lacks the mirror's own jar of this release: {_GIVE_JARS}")


S3_SCHEME: Final = "s3a://"


def s3_settings(checkpoint: str) -> dict[str, str]:
    """Return Spark's settings for tables on S3; `checkpoint` is the URI of the query's checkpoint."""
    found = {
        "spark.delta.logStore.s3a.impl": "openmessaging.mirror.S3LogStore",  # of s3.scala, as the other
        "spark.hadoop.fs.s3a.aws.credentials.provider": (  # variables, web identity, profile, role: as delta-rs does
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }
    if checkpoint.startswith(S3_SCHEME):
        found["spark.sql.streaming.checkpointFileManagerClass"] = "openmessaging.mirror.S3Checkpoints"
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        found["spark.hadoop.fs.s3a.endpoint"] = endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def check_conditional_writes(spark: SparkSession, out: str) -> None:
    """Write one object twice. Raises `CannotStart` if the second write replaces the first."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
    context: Any = spark.sparkContext._jsc  # noqa: SLF001
    conf = context.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(spark_path(out, f"written-twice-{uuid4()}"))
    store, line = jvm.openmessaging.mirror.S3LogStore(conf), jvm.java.util.ArrayList([""])
    try:
        for _ in range(2):
            store.write(path, line.iterator(), False, conf)
    except Py4JJavaError as error:
        if not str(error.java_exception.getClass().getName()).endswith("FileAlreadyExistsException"):
            raise
    else:
        raise CannotStart(
            f"The server of {shown(out)} ignores If-None-Match: writers could overwrite each other's commits, and "
            "messages would be lost. Use a server that honours conditional writes, as Amazon S3 does."
        )
    finally:
        path.getFileSystem(conf).delete(path, False)
