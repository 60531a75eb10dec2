"""`s3a://`: the settings that Spark needs for it, and the check that the server honours conditional writes.

delta-rs and Spark take credentials, region and endpoint from the same `AWS_…` variables.
"""

import os
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.mirror.table import shown, spark_path

SCHEME: Final = "s3a://"
_LOG_STORE: Final = "openmessaging.mirror.S3LogStore"
_CHECKPOINTS: Final = "openmessaging.mirror.S3Checkpoints"
"""Of s3.scala."""


def settings(checkpoint: str) -> dict[str, str]:
    """Return Spark's settings for tables on S3; `checkpoint` is the URI of the query's checkpoint."""
    found = {
        "spark.delta.logStore.s3a.impl": _LOG_STORE,
        "spark.hadoop.fs.s3a.aws.credentials.provider": (  # variables, web identity, profile, role: as delta-rs does
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }
    if checkpoint.startswith(SCHEME):
        found["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        found["spark.hadoop.fs.s3a.endpoint"] = endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def check_conditional_writes(spark: SparkSession, out: str) -> None:
    """Write one object twice. Raises `CannotStart` if the second write replaces the first."""
    # py4j has no types: everything that comes from the JVM is Any
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
