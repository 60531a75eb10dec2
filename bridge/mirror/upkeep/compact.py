"""Compaction: many files of an hour into few, sorted and with a bloom filter. By Spark, on any filesystem it knows."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from uuid_utils import uuid7

from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.manifest import File, Manifest
from bridge.mirror.read import reader
from bridge.mirror.schema import PATH, READ_DDL
from bridge.mirror.sink.files import Files, each
from bridge.mirror.sink.full import explain
from bridge.mirror.sink.publish import publish, write
from bridge.mirror.upkeep.claim import Claim, claimed
from bridge.mirror.upkeep.disk import settled, tidy
from bridge.mirror.upkeep.folders import by_folder
from bridge.mirror.upkeep.plan import PREFIX, Work, plan, without

ORDER: Final = ("partition", "log", "offset")
"""How the rows of a file are sorted."""
_GROUP_ROWS: Final = 65_536
_READER: Final = {
    "parquet.page.verify-checksum.enabled": "true",  # a page that rotted must not become a sound one of another content
}
_WRITER: Final = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "3",
    "parquet.block.row.count.limit": str(_GROUP_ROWS),
    "parquet.bloom.filter.expected.ndv#message_id": str(_GROUP_ROWS),  # and by that it has one
    "parquet.enable.dictionary#message_id": "false",  # each is another one
    "parquet.enable.dictionary#body": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",  # as in sink/staging.py
}


class Problem(NamedTuple):
    """What was left as it is, and why."""

    path: str
    why: str


class Step(NamedTuple):
    """One change that was made, or could not be."""

    removed: tuple[File, ...]
    added: tuple[File, ...]
    problems: tuple[Problem, ...]


def compact(spark: SparkSession, files: Files, now: datetime, after: timedelta, target: int) -> Iterator[Step]:
    """Compact the hours that ended `after` ago or earlier, change by change, into files of about `target` bytes.

    Raises `CannotStart` if another upkeep is at work, or if nothing can be written.
    """
    with claimed(files) as claim:
        tidy(files)
        for planned in plan(settled(files), now - after, target):
            key = f"compact/{uuid7()}"
            work, problems = _written(spark, files, planned, key)
            added, removed, wrong = _same_rows(_counted(files, key), work)
            if removed:
                _commit(files, claim, Manifest(key, int(now.timestamp() * 1000), adds=added, removes=_paths(removed)))
            files.delete(layout.staging(key))
            yield Step(removed, added, (*problems, *wrong))


def _written(spark: SparkSession, files: Files, work: Work, key: str) -> tuple[Work, list[Problem]]:
    """Write the work to its staging folder; return what of it was written, and what cannot be read."""
    problems: list[Problem] = []
    while work.inputs:
        try:
            _write(_read(spark, files, work.files), files, key, work)
            break
        except (PySparkException, Py4JJavaError) as error:
            files.delete(layout.staging(key))
            found = _unreadable(spark, files, work)
            if not found:
                what = f"The compaction stopped before its next change: {_reason(error)}"
                raise explain(error, files.out) or CannotStart(what) from None
            problems += found
            work = without(work, [problem.path for problem in found])
    return work, problems


def _read(spark: SparkSession, files: Files, inputs: list[File]) -> DataFrame:
    area = inputs[0].path.partition("/")[0]
    from_paths = reader(spark).schema(READ_DDL).options(**_READER).option("basePath", f"{files.out}/{area}")
    return from_paths.parquet(*(f"{files.out}/{file.path}" for file in inputs))


def _write(rows: DataFrame, files: Files, key: str, work: Work) -> None:
    spread = rows.repartitionByRange(work.outputs, *ORDER) if work.outputs > 1 else rows.repartition(*PATH)
    named = {"mapreduce.output.basename": f"{PREFIX}{key.rpartition('/')[2]}"}
    writer = spread.sortWithinPartitions(*PATH, *ORDER).write.options(**_WRITER, **named).partitionBy(*PATH)
    writer.parquet(f"{files.out}/{layout.staging(key)}/{next(iter(work.inputs)).area}")


def _unreadable(spark: SparkSession, files: Files, work: Work) -> list[Problem]:
    """Read file by file to find out which of them cannot be: only after reading them together has failed."""
    found = []
    for file in work.files:
        try:
            _read(spark, files, [file]).write.format("noop").mode("overwrite").save()
        except (PySparkException, Py4JJavaError) as error:
            found.append(Problem(file.path, f"it cannot be read: {_reason(error)}"))
    return found


def _counted(files: Files, key: str) -> list[File]:
    """Return what was written, with the rows that the footers tell."""
    staging = layout.staging(key)
    staged = [(path, size) for path, size in files.list(staging) if path.endswith(".parquet")]
    files.sync(path for path, _ in staged)
    rows = each(lambda one: files.footer_rows(one[0]), staged)
    return [File(path.removeprefix(f"{staging}/"), n, size) for (path, size), n in zip(staged, rows, strict=True)]


def _same_rows(staged: list[File], work: Work) -> tuple[tuple[File, ...], tuple[File, ...], list[Problem]]:
    """Return what to add and what to remove of the folders whose rows are all there, and the others as problems."""
    added: list[File] = []
    removed: list[File] = []
    problems = []
    outputs = {folder.path: found for folder, found in by_folder(staged).items()}
    for folder, inputs in work.inputs.items():
        new = outputs.get(folder.path, [])
        said, held = sum(file.rows for file in inputs), sum(file.rows for file in new)
        if said == held:
            added += new
            removed += inputs
        else:
            problems.append(
                Problem(folder.path, f"its files hold {held} rows, their manifests say {said}: see `verify`")
            )
    return tuple(added), tuple(removed), problems


def _commit(files: Files, claim: Claim, manifest: Manifest) -> None:
    claim.check()
    if not all(each(files.exists, manifest.removes)):
        raise CannotStart("Files that were being compacted are gone, so nothing was changed: see `verify`.")
    write(files, manifest)
    publish(files, manifest)


def _paths(files: tuple[File, ...]) -> tuple[str, ...]:
    return tuple(file.path for file in files)


def _reason(error: Exception) -> str:
    """Return the cause behind what Spark says, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or [line for line in lines if line] or ["unknown"])[-1 if causes else 0]
