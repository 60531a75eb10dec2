"""What the page shows, counted with Spark; bodies are never read."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bridge.errors import CannotStart
from bridge.mirror import read
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.report.scale import Times, times
from bridge.mirror.sink.catalogue import Catalogue, load
from bridge.mirror.sink.files import Files

SERIES: Final = 6
"""Destinations with a colour of their own."""
LISTED: Final = 100
"""Destinations in the table, and kinds of dead letters and of errors."""
OTHERS: Final = "all others"
PERCENTILES: Final = (0.5, 0.95, 0.99)
_ACCURACY: Final = 1000
"""A percentile's rank is at most a thousandth of all away."""


class Total(NamedTuple):
    """One destination. Times in ms since 1970."""

    destination: str
    rows: int
    bytes: int
    first: int
    last: int
    expiring: int
    """Rows with an expireTime."""
    expired: int
    """Those of them whose expireTime had passed when the report was made."""


class Latency(NamedTuple):
    """p50, p95 and p99 in ms, by piece of time."""

    stored: Mapping[int, Sequence[float]]
    """From born to stored."""
    mirrored: Mapping[int, Sequence[float]]
    """From stored to mirrored."""


class Dead(NamedTuple):
    """Dead letters of one kind."""

    source: str
    group: str
    reason: str
    rows: int


class Bad(NamedTuple):
    """What could not be read, of one kind."""

    destination: str
    error: str
    rows: int


class Figures(NamedTuple):
    """Everything on the page."""

    out: str
    made: int
    catalogue: Catalogue
    behind: Mapping[str, int] | None
    """Offsets by log that are not mirrored yet; None: the backend was not asked."""
    totals: Sequence[Total]
    """Largest first: at most `LISTED`, then one called `OTHERS`."""
    times: Times | None
    """None: there are no rows."""
    rows: Mapping[str, Mapping[int, int]]
    """By destination, largest first: at most `SERIES`, then `OTHERS`; by piece of time."""
    bytes: Mapping[str, Mapping[int, int]]
    sizes: Mapping[int, int]
    """Rows by the number of bits in the body's size: 0 none, 1 one byte, 2 two and three."""
    latency: Latency
    dead: Sequence[Dead]
    bad: Sequence[Bad]

    @property
    def gaps(self) -> Sequence[Gap]:
        """What was lost before it could be mirrored."""
        return self.catalogue.gaps


def count(spark: SparkSession, files: Files, bounds: Ranges | None, now: int) -> Figures:
    """Count. `now` in ms since 1970. Raises `CannotStart` where there is no mirror."""
    catalogue = load(files)
    if not catalogue.committed:
        raise CannotStart(f"There is no mirror at {read.shown(files.out)}: it has no manifests.")
    data = read.rows(spark, files, "data").withColumn("at", F.unix_millis(read.stored())).drop("body")
    totals = _totals(data, now)
    spans = times(min(t.first for t in totals), max(t.last for t in totals)) if totals else None
    rows, sizes = _traffic(data, [t.destination for t in totals[:SERIES]], spans)
    behind = None if bounds is None else _behind(bounds, catalogue.next)
    return Figures(
        out=files.out,
        made=now,
        catalogue=catalogue,
        behind=behind,
        totals=_shortened(totals),
        times=spans,
        rows=rows,
        bytes=sizes,
        sizes=_sizes(data),
        latency=Latency({}, {}) if spans is None else _latency(data, spans),
        dead=_dead(read.rows(spark, files, "dead-letters")),
        bad=_bad(read.rows(spark, files, "quarantine")),
    )


def _behind(bounds: Ranges, reached: Mapping[str, int]) -> dict[str, int]:
    behind = {log: end - max(first, reached.get(log, 0)) for log, (first, end) in bounds.items()}
    return {log: number for log, number in behind.items() if number > 0}


def _totals(data: DataFrame, now: int) -> list[Total]:
    born = F.coalesce(F.unix_millis("born_timestamp"), F.lit(0))
    expires = F.when(F.col("expire_time") > born, F.col("expire_time"))  # else it never does: see Message.expires
    found = data.groupBy("destination").agg(
        F.count("*").alias("rows"),
        F.sum("body_size").alias("bytes"),
        F.min("at"),
        F.max("at"),
        F.count(expires),
        F.count_if(expires <= now),
    )
    return [Total(*row) for row in found.orderBy(F.desc("rows"), "destination").collect()]


def _shortened(totals: Sequence[Total]) -> list[Total]:
    rest = totals[LISTED:]
    if not rest:
        return list(totals)
    name = f"{OTHERS} ({len(rest)})"
    sums = [sum(column) for column in zip(*((t.rows, t.bytes, t.expiring, t.expired) for t in rest), strict=True)]
    first, last = min(t.first for t in rest), max(t.last for t in rest)
    return [*totals[:LISTED], Total(name, sums[0], sums[1], first, last, sums[2], sums[3])]


def _piece(spans: Times) -> Column:
    return F.floor((F.col("at") - spans.start) / spans.width).cast("int")


def _traffic(
    data: DataFrame, named: Sequence[str], spans: Times | None
) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    if spans is None:
        return {}, {}
    series = F.when(F.col("destination").isin(*named), F.col("destination"))
    found = data.groupBy(series.alias("series"), _piece(spans).alias("piece"))
    rows: dict[str, dict[int, int]] = {name: {} for name in named}
    sizes: dict[str, dict[int, int]] = {name: {} for name in named}
    for name, piece, number, size in found.agg(F.count("*"), F.sum("body_size")).collect():
        rows.setdefault(name or OTHERS, {})[piece] = number
        sizes.setdefault(name or OTHERS, {})[piece] = size
    return rows, sizes


def _sizes(data: DataFrame) -> dict[int, int]:
    bits = F.when(F.col("body_size") > 0, F.floor(F.log2("body_size")) + 1).otherwise(0).cast("int")
    return dict(data.groupBy(bits.alias("bits")).count().collect())


def _latency(data: DataFrame, spans: Times) -> Latency:
    """A message with a delay waits on purpose; it is left out of the first one."""
    since_born = F.when(F.coalesce("delay_time", F.lit(0)) == 0, F.col("at") - F.unix_millis("born_timestamp"))
    since_stored = F.unix_millis("mirrored_timestamp") - F.unix_millis("store_timestamp")
    asked = list(PERCENTILES)
    found = data.groupBy(_piece(spans).alias("piece")).agg(
        F.percentile_approx(since_born, asked, _ACCURACY), F.percentile_approx(since_stored, asked, _ACCURACY)
    )
    rows = found.collect()
    return Latency(
        {piece: stored for piece, stored, _ in rows if stored},
        {piece: mirrored for piece, _, mirrored in rows if mirrored},
    )


def _dead(dead: DataFrame) -> list[Dead]:
    said = [_property(dead, name) for name in ("source", "group", "reason")]
    source = F.coalesce(said[0], F.col("destination"))
    found = dead.groupBy(source.alias("source"), said[1].alias("group"), said[2].alias("reason")).count()
    listed = found.orderBy(F.desc("count"), "source", "group").limit(LISTED).collect()
    return [Dead(name, group or "", reason or "", number) for name, group, reason, number in listed]


def _property(dead: DataFrame, name: str) -> Column:
    return dead["properties"][f"oms-dead-letter-{name}"]


def _bad(bad: DataFrame) -> list[Bad]:
    found = bad.groupBy("destination", "error").count().orderBy(F.desc("count"), "destination", "error")
    return [Bad(*row) for row in found.limit(LISTED).collect()]
