"""The local disk without what Hadoop does to it: 1,000 files in 7.5 s, in another run 17.8 s, that took it 19.8 s.

Hadoop starts a process `chmod` for each file and folder it makes (90 % of the samples of a writer's stack), writes a
`.crc` beside each file, and makes a failed rename a copy, which readers see half of. Its jar cannot be told otherwise,
so the class that can is compiled by the compiler that Spark carries for its own queries, and put where everything in
this JVM finds it: in Hadoop's cache of filesystems. Workers on other machines go on with Hadoop's own.
"""

from importlib.resources import files as resources
from typing import Any, Final

from pyspark.sql import SparkSession

_KEY: Final = "fs.file.impl"
_CLASS: Final = "LocalFiles"


def use_local_files(spark: SparkSession) -> None:
    """Let this JVM work on the local disk by `LocalFiles.java`; once is enough, twice is harmless."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
    context: Any = spark.sparkContext._jsc  # noqa: SLF001
    disk = jvm.java.net.URI("file:///")
    filesystem = jvm.org.apache.hadoop.fs.FileSystem
    present = filesystem.get(disk, context.hadoopConfiguration())
    if present.getClass().getName() == _CLASS:
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(resources(__package__).joinpath(f"{_CLASS}.java").read_text())
    conf = jvm.org.apache.hadoop.conf.Configuration(context.hadoopConfiguration())
    conf.setClassLoader(compiler.getClassLoader())
    conf.set(_KEY, _CLASS)
    present.close()  # out of the cache; whoever holds it may go on
    filesystem.get(disk, conf)
