"""Spark's checkpoint of the query, read only, on any filesystem of Spark's; whether it fits the table of messages."""

import json
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.mirror.offsets import Record
from bridge.mirror.table import Table

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
        """Return the source's offset at the end of a batch; None: no such file. Spark keeps the last 100."""
        text = self._read(f"offsets/{batch}")
        return None if text is None else text.split("\n", _HEAD)[-1].strip()

    def _path(self, path: str) -> Any:  # noqa: ANN401 - of the JVM
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.place}/{path}" if path else self.place)

    def _read(self, path: str) -> str | None:
        stream = self._if_there(self._files.open, path)
        if stream is None:
            return None
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _names(self, folder: str) -> list[str]:
        return [found.getPath().getName() for found in self._if_there(self._files.listStatus, folder) or ()]

    def _if_there(self, look: Callable[[Any], Any], path: str) -> Any:  # noqa: ANN401 - of the JVM
        """Return what is found at a path; None: there is nothing. Raises `OSError`."""
        try:
            return look(self._path(path))
        except Py4JJavaError as error:
            name = str(error.java_exception.getClass().getName())
            if name.endswith(("FileNotFoundException", "NoSuchFileException")):
                return None
            raise OSError(str(error.java_exception.toString())) from None


def check_start(out: str, checkpoint: Checkpoint, table: Table, *, resume: bool) -> Record | None:
    """Return the newest record of the table of messages. Raises `CannotStart` if the job may not begin.

    `resume`: whether a new query may go on after an earlier one.
    """
    record, place = table.record(), checkpoint.place
    query, committed = checkpoint.query(), checkpoint.committed()
    if record is None:
        if next(table.files(), None) is not None:
            raise CannotStart(
                f"{out} holds messages, and no commit that its log still has tells their offsets: another program "
                "wrote them, or the log was cut off. Use another folder with --out."
            )
        if committed >= 0:
            raise CannotStart(
                f"The checkpoint {place} has committed batch {committed}, and {out} holds no batch: the checkpoint "
                "belongs to another table, or the table was deleted. Move the checkpoint away to mirror everything "
                "from the beginning."
            )
    elif query == record.query:
        if committed > record.batch:
            raise CannotStart(
                f"The checkpoint {place} has committed batch {committed}, and the table in {out} ends with batch "
                f"{record.batch}: the table is an old copy. Move the checkpoint away and run with --resume: the mirror "
                "continues after the table's last batch."
            )
    elif checkpoint.planned():
        raise CannotStart(
            f"The checkpoint {place} belongs to query {query}, and the last batch in {out} to query {record.query}: "
            "use the folder of that query with --out, or move the checkpoint away and run with --resume."
        )
    elif not resume:
        raise CannotStart(
            f"{out} holds the batches of query {record.query}, and its checkpoint {place} is missing. If it was "
            "deleted, run with --resume: the mirror continues after its last batch. If another job writes to this "
            "folder, use another one with --out."
        )
    return record
