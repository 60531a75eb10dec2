"""Gathers the facts with Spark: what readers see, beside what the manifests say."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from adapters.runs import Runs
from bridge.errors import CannotStart
from bridge.mirror import layout, read
from bridge.mirror.manifest import Ranges
from bridge.mirror.sink.catalogue import Catalogue, load
from bridge.mirror.sink.files import Files
from bridge.mirror.verify.judge import Facts, Ledger, Span
from bridge.mirror.verify.ledger import reconcile

_LOOKS: Final = 3
"""Times to look when files are taken away meanwhile, by a compaction or a prune."""
_DEPTH: Final = 4
"""`destination=…/date=…/hour=…/<file>`: what the path of a file ends with."""
_ROW: Final = "area string, destination string, message_id string, log string, offset bigint, file string"


class _Seen(NamedTuple):
    before: Catalogue
    bounds: Ranges | None
    staged: frozenset[str]
    listed: Mapping[str, int]


def gather(
    spark: SparkSession,
    files: Files,
    bounds: Callable[[], Ranges] | None,
    ledger: str | None,
    names: int | None,
) -> Facts:
    """Look at everything; `names`: at most so many messages of the ledger by name, None: all that are wrong.

    The job may run meanwhile. Raises `CannotStart`, and what `bounds` raises.
    """
    for _ in range(_LOOKS):
        seen = _look(files, bounds)
        rows = _rows(spark, files)
        counts = _by_file(rows)
        doubled, uncovered = _doubled(rows), _uncovered(spark, rows, files)
        told = Ledger() if ledger is None else reconcile(spark, rows, ledger, names)
        after = load(files)
        unknown = seen.listed.keys() - seen.before.files.keys() - after.files.keys()
        taken = seen.before.files.keys() - after.files.keys()
        if not taken and all(files.exists(path) for path in unknown):
            return _facts(seen, after, counts, doubled, uncovered, told)
    raise CannotStart("The mirror is being compacted or pruned; verify it when that is done.")


def _look(files: Files, bounds: Callable[[], Ranges] | None) -> _Seen:
    """In this order: what is staged moves to its place, and what the backend keeps only grows."""
    before = load(files)
    asked = None if bounds is None else _ask(bounds, before.next)
    staged = frozenset(path.split("/", 2)[2] for path, _ in files.list(layout.STAGING) if path.count("/") > 1)
    listed = {path: size for area in layout.AREAS for path, size in files.list(area)}
    if not before.committed and not listed:
        raise CannotStart(f"There is no mirror at {read.shown(files.out)}: it has neither manifests nor data.")
    return _Seen(before, asked, staged, listed)


def _ask(bounds: Callable[[], Ranges], reached: Mapping[str, int]) -> Ranges:
    """Ask again where a log seems shorter than the mirror: RabbitMQ's end is a silence, that may come too early."""
    found = bounds()
    if all(end >= reached.get(log, 0) for log, (_, end) in found.items()):
        return found
    return {log: (first, max(end, found.get(log, (0, 0))[1])) for log, (first, end) in bounds().items()}


def _facts(  # noqa: PLR0913, PLR0917 - each has a name in Facts
    seen: _Seen,
    after: Catalogue,
    counts: Mapping[str, int],
    doubled: Mapping[str, Span],
    uncovered: Mapping[str, Span],
    told: Ledger,
) -> Facts:
    return Facts(
        expected=seen.before.files,
        known=seen.before.files.keys() | after.files.keys(),
        listed=seen.listed,
        staged=seen.staged,
        read=counts,
        doubled=doubled,
        uncovered=uncovered,
        skipped={q: found for q, last in after.batches.items() if (found := after.missing(q, last))},
        covered=after.covered,
        gaps=after.gaps,
        before=seen.before.next,
        after=after.next,
        bounds=seen.bounds,
        ledger=told,
    )


def _rows(spark: SparkSession, files: Files) -> DataFrame:
    """Return what any reader sees, also in files that no manifest knows. A file that cannot be read has no rows."""
    found = spark.createDataFrame([], _ROW)
    for area in layout.AREAS:
        if not files.exists(area):
            continue
        reader = read.reader(spark).option("recursiveFileLookup", "true").option("ignoreCorruptFiles", "true")
        reader = reader.option("ignoreMissingFiles", "true")
        frame = reader.schema("message_id string, log string, offset bigint").parquet(f"{files.out}/{area}")
        path = F.col("_metadata.file_path")
        place = _decoded(F.regexp_extract(path, "/destination=([^/]*)/", 1))
        found = found.union(
            frame.select(
                F.lit(area),
                _decoded(place),
                "message_id",
                "log",
                "offset",
                F.concat(F.lit(f"{area}/"), F.substring_index(path, "/", -_DEPTH)),
            )
        )
    return found


def _decoded(text: Column) -> Column:
    """Undo percent-escapes; once for the URI that Spark shows a path as, once for the name of the folder."""
    return F.try_url_decode(F.replace(text, F.lit("+"), F.lit("%2B")))


def _by_file(rows: DataFrame) -> dict[str, int]:
    return {unquote(file): count for file, count in rows.groupBy("file").count().collect()}


def _doubled(rows: DataFrame) -> dict[str, Span]:
    places = rows.where("offset is not null").groupBy("log", "offset").count().where("count > 1")
    return _spans(places)


def _uncovered(spark: SparkSession, rows: DataFrame, files: Files) -> dict[str, Span]:
    """Load the catalogue anew: of all rows that are seen by now the manifests were there before."""
    runs = _runs(load(files, keep_files=False).covered)
    covered = F.broadcast(spark.createDataFrame(runs, "of string, start bigint, stop bigint"))
    within = (F.col("log") == F.col("of")) & (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("stop"))
    return _spans(rows.join(covered, within, "left_anti"))


def _runs(covered: Mapping[str, Runs]) -> Sequence[tuple[str, int, int]]:
    return [(log, start, stop) for log, runs in covered.items() for start, stop in runs.bounds()]


def _spans(rows: DataFrame) -> dict[str, Span]:
    spans = rows.groupBy("log").agg(F.count("*"), F.min("offset"), F.max("offset")).collect()
    return {log or "(no log)": Span(count, first, last) for log, count, first, last in spans}
