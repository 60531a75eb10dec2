"""Files under `--out` through Hadoop's FileSystem: any filesystem that Spark knows. Paths are relative to `--out`.

What is durable: a manifest, once `write` has returned, survives a power cut on a local disk and on HDFS (`hsync`, and
on a local disk the folder is synced too); an object store is durable by itself. Data files are made so by `sync`,
which the sink calls before it writes their manifest.

On a local disk what is done for each file is done without the JVM: for 1,000 files on a busy machine of two cores the
footers took it 8 s and without it 0.3 s, the renames 3.5 to 7.4 s and 2.4 s.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyarrow.parquet import read_metadata
from pyspark.sql import SparkSession

from bridge.mirror.sink.local import use_local_files

TEMPORARY: Final = ".tmp"
"""How a file ends that is not whole yet; `list` leaves it out."""
AT_ONCE: Final = 8
"""Threads for many calls: on an object store each of them is a request."""


_T = TypeVar("_T")
_R = TypeVar("_R")


class Files:
    """What lies under `out`. Its methods may be called from any thread; `OSError` is what they raise."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        # py4j has no types: everything that comes from the JVM is Any
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
        self._jvm = jvm
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self.conf: Any = context.hadoopConfiguration()
        use_local_files(spark)
        path: Any = jvm.org.apache.hadoop.fs.Path(out)
        self._fs: Any = _call(path.getFileSystem, self.conf)
        self._root: Any = self._fs.makeQualified(path)
        self.out: str = self._root.toString()
        """The whole URI of `--out`, without a slash at its end."""
        self._prefix = len(self._root.toUri().getPath().rstrip("/")) + 1
        local = self._root.toUri().getScheme() == "file"
        self.folder: str | None = self._root.toUri().getPath() if local else None
        """`--out` on this machine's disk; None: it is elsewhere."""

    def path(self, path: str) -> Any:  # noqa: ANN401 - of the JVM
        """Return a path of ours as Hadoop's."""
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.out}/{path}" if path else self.out)

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder."""
        return bool(_call(self._fs.exists, self.path(path)))

    def read(self, path: str) -> str | None:
        """Return a file of UTF-8 text; None: there is none."""
        try:
            stream = _call(self._fs.open, self.path(path))
        except FileNotFoundError:
            return None
        try:
            return str(_call(self._jvm.org.apache.commons.io.IOUtils.toString, stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file of UTF-8 text, whole and durable or not at all; what was there is replaced."""
        place = self.path(path)
        temporary = self.path(f"{path}.{uuid4().hex[:8]}{TEMPORARY}")
        stream = _call(self._fs.create, temporary, True)
        try:
            _call(stream.write, text.encode())
            _call(stream.hsync)
        except OSError:
            _quietly(stream.close)
            _quietly(self._fs.delete, temporary, False)
            raise
        _call(stream.close)
        if not _call(self._fs.rename, temporary, place):  # HDFS does not rename onto a file
            _call(self._fs.delete, place, False)
            if not _call(self._fs.rename, temporary, place):
                raise OSError(f"{place.toString()} cannot be written")
        self.sync([path.rpartition("/")[0]])

    def list(self, folder: str) -> list[tuple[str, int]]:
        """Return all files under a folder with their bytes, in order; none where there is no such folder."""
        if self.folder is not None:
            return sorted(self._walk(self.folder, folder))
        try:
            found = _call(self._fs.listFiles, self.path(folder), True)
            files = []
            while _call(found.hasNext):
                status = _call(found.next)
                path = status.getPath().toUri().getPath()[self._prefix :]
                if not path.endswith(TEMPORARY):
                    files.append((path, int(status.getLen())))
        except FileNotFoundError:
            return []
        return sorted(files)

    def _walk(self, out: str, folder: str) -> Iterator[tuple[str, int]]:
        for above, _, names in os.walk(f"{out}/{folder}".rstrip("/")):
            for name in names:
                if not name.endswith(TEMPORARY):
                    with suppress(FileNotFoundError):
                        yield f"{above}/{name}"[self._prefix :], Path(above, name).stat().st_size

    def folders(self, folder: str) -> dict[str, int]:
        """Return the names of what lies right in a folder, with the time each was last changed, ms since 1970."""
        try:
            return {s.getPath().getName(): int(s.getModificationTime()) for s in self._statuses(folder)}
        except FileNotFoundError:
            return {}

    def _statuses(self, folder: str) -> Iterable[Any]:
        found: Iterable[Any] = _call(self._fs.listStatus, self.path(folder))
        return found

    def make(self, folder: str) -> None:
        """Make a folder, and those above it, if they are not there."""
        if self.folder is not None:
            Path(self.folder, folder).mkdir(parents=True, exist_ok=True)
            return
        _call(self._fs.mkdirs, self.path(folder))

    def rename(self, source: str, target: str) -> bool:
        """Move a file or a folder into a folder that exists; False: there is no such source, or the target exists."""
        if self.folder is not None:
            return _renamed(Path(self.folder, source), Path(self.folder, target))
        try:
            return bool(_call(self._fs.rename, self.path(source), self.path(target)))
        except (FileNotFoundError, FileExistsError):
            return False

    def delete(self, path: str) -> None:
        """Remove a file, or a folder and what is in it, if it is there."""
        _call(self._fs.delete, self.path(path), True)

    def footer_rows(self, path: str) -> int:
        """Return how many rows a Parquet file has, by its footer."""
        if self.folder is not None:
            return int(read_metadata(f"{self.folder}/{path}").num_rows)
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = _call(hadoop.ParquetFileReader.open, hadoop.util.HadoopInputFile.fromPath(self.path(path), self.conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def sync(self, paths: Iterable[str]) -> None:
        """Make files and folders survive a power cut where that is in our hands: on a local disk."""
        if self.folder is not None:
            each(_sync, [f"{self.folder}/{path}" for path in paths])


def _renamed(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except FileNotFoundError:
        return False
    return True


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def each(call: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Do the same for many, several at once; the answers are in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, items))


_ERRORS: Final = (
    ("java.io.FileNotFoundException", FileNotFoundError),
    ("org.apache.hadoop.fs.FileAlreadyExistsException", FileExistsError),
    ("org.apache.hadoop.security.AccessControlException", PermissionError),
)


def _call(method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - of the JVM
    try:
        return method(*arguments)
    except Py4JJavaError as error:
        said: str = error.java_exception.toString()
        kind = next((kind for name, kind in _ERRORS if said.startswith(name)), OSError)
        raise kind(said) from None


def _quietly(method: Callable[..., Any], *arguments: object) -> None:
    try:
        method(*arguments)
    except Py4JJavaError:
        return
