"""What Spark wrote into a query's checkpoint: read only, on any filesystem of Spark's."""

import json
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.errors import CannotStart

_HEAD: Final = 2
"""Lines of an offset file before the sources' own: a version, and Spark's metadata."""


class Checkpoint:
    """A checkpoint of a query with one source."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.place = place
        # py4j has no types: everything that comes from the JVM is Any
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._files: Any = self._path("").getFileSystem(context.hadoopConfiguration())

    def query(self) -> str | None:
        """Return the id of its query; None: there is none yet. Raises `CannotStart` if it is damaged."""
        text = self._read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise CannotStart(
                f"The checkpoint {self.place} is damaged: its file metadata cannot be read. Delete the checkpoint and "
                "run with --resume: the mirror continues after its last batch."
            ) from None

    def committed(self) -> int:
        """Return the last batch that Spark has recorded as done; -1: none."""
        return max((int(name) for name in self._names("commits") if name.isdecimal()), default=-1)

    def planned(self) -> bool:
        """Whether a batch was ever planned: from then on a query begins where its checkpoint says."""
        return any(name.isdecimal() for name in self._names("offsets"))

    def offset(self, batch: int) -> str | None:
        """Return the source's offset at the end of a batch; for -1 that at which the query began, if it was noted.

        None: there is no such file. Spark keeps those of the last 100 batches.
        """
        text = self._read("sources/0/0" if batch < 0 else f"offsets/{batch}")
        if text is None:
            return None
        return text.split("\n", 1 if batch < 0 else _HEAD)[-1].strip()

    def _path(self, path: str) -> Any:  # noqa: ANN401 - of the JVM
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.place}/{path}" if path else self.place)

    def _read(self, path: str) -> str | None:
        try:
            stream = self._files.open(self._path(path))
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise OSError(str(error.java_exception.toString())) from None
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _names(self, folder: str) -> list[str]:
        try:
            return [found.getPath().getName() for found in self._files.listStatus(self._path(folder))]
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise OSError(str(error.java_exception.toString())) from None


def _is_missing(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()).endswith(("FileNotFoundException", "NoSuchFileException"))
