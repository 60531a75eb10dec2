"""What the page of `mirror report` shows, counted with DuckDB; bodies are never read. Times are ms since 1970."""
# ruff: noqa: S608 - no statement holds text of others

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Ranges, backlog
from bridge.mirror.query import DEAD_LETTER, connect
from bridge.mirror.table import NAMES, Table, shown

SERIES: Final = 6
"""Destinations with their own colour."""
LISTED: Final = 100
"""Destinations in the table, and kinds of dead letters and of errors."""
OTHERS: Final = "all others"
PERCENTILES: Final = (0.5, 0.95, 0.99)
BARS: Final = 96
"""Bars of a plot; more are thinner than a line."""
_HOUR: Final = 3_600_000
_HOURS: Final = (1, 3, 6, 24, 7 * 24, 30 * 24, 365 * 24, 36_500 * 24)  # a clock may say anything: 100 years, too
_WIDTHS: Final = (60_000, 300_000, 900_000, *(hours * _HOUR for hours in _HOURS))

_DATA: Final = f"""
CREATE TEMP TABLE data AS SELECT
    destination, body_size, epoch_ms(coalesce(store_timestamp, mirrored_timestamp)) AS stored, expire_time,
    -- an expireTime before the birth is none: see Message.expires
    expire_time > coalesce(epoch_ms(born_timestamp), 0) AS expires,
    -- a message with a delay waits on purpose
    CASE WHEN coalesce(delay_time, 0) = 0 THEN stored - epoch_ms(born_timestamp) END AS to_stored,
    epoch_ms(mirrored_timestamp) - epoch_ms(store_timestamp) AS to_mirrored
FROM messages WHERE NOT {DEAD_LETTER}"""
_TOTALS: Final = """
SELECT any_value(name), sum(rows)::BIGINT, sum(bytes)::BIGINT, min(first), max(last), sum(expiring)::BIGINT,
    sum(expired)::BIGINT
FROM (
    SELECT destination, count(*) AS rows, sum(body_size) AS bytes, min(stored) AS first, max(stored) AS last,
        count(*) FILTER (expires) AS expiring, count(*) FILTER (expires AND expire_time <= $now) AS expired,
        row_number() OVER (ORDER BY rows DESC, destination) AS rank,
        CASE WHEN rank > $listed THEN $others ELSE destination END AS name
    FROM data GROUP BY destination)
GROUP BY least(rank, $listed + 1) ORDER BY min(rank)"""
_TRAFFIC: Final = """
SELECT CASE WHEN list_contains($named, destination) THEN destination ELSE $others END AS series,
    (stored - $start) // $width AS bar, count(*), sum(body_size)::BIGINT
FROM data GROUP BY ALL ORDER BY ALL"""
_SIZES: Final = """
SELECT CASE WHEN body_size > 0 THEN floor(log2(body_size))::INTEGER + 1 ELSE 0 END AS bits, count(*)
FROM data GROUP BY ALL"""
_QUANTILES: Final = f"{list(PERCENTILES)}::FLOAT[]"
_LATENCY: Final = f"""
SELECT (stored - $start) // $width AS bar,
    approx_quantile(to_stored, {_QUANTILES}), approx_quantile(to_mirrored, {_QUANTILES})
FROM data GROUP BY ALL"""
_DEAD: Final = f"""
SELECT coalesce(properties['oms-dead-letter-source'], destination), coalesce(properties['oms-dead-letter-group'], ''),
    coalesce(properties['oms-dead-letter-reason'], ''), count(*)
FROM dead_letters GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3 LIMIT {LISTED}"""
_BAD: Final = f"SELECT destination, error, count(*) FROM quarantine GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT {LISTED}"

ByBar = Mapping[int, Any]


class Total(NamedTuple):
    """One destination."""

    destination: str
    rows: int
    bytes: int
    first: int
    last: int
    expiring: int
    """Rows with an expireTime."""
    expired: int
    """Of those, rows whose expireTime had passed when the report was made."""


class Bars(NamedTuple):
    """The time axis: equal parts."""

    start: int
    width: int
    number: int


class Figures(NamedTuple):
    """Everything on the page."""

    out: str
    made: int
    committed: int
    files: int
    file_bytes: int
    gaps: Sequence[Gap]
    behind: Mapping[str, int] | None
    """Offsets by log that are not mirrored yet; None: the backend was not asked."""
    totals: Sequence[Total]
    """Largest first: at most `LISTED`, then `OTHERS`."""
    bars: Bars
    rows: Mapping[str, ByBar]
    """By destination, largest first: at most `SERIES`, then `OTHERS`."""
    bytes: Mapping[str, ByBar]
    sizes: Mapping[int, int]
    """Rows by the number of bits in the size of the body: 0 empty, 1 one byte, 2 two or three bytes."""
    to_stored: ByBar
    """`PERCENTILES` from born to stored, in ms."""
    to_mirrored: ByBar
    dead: Sequence[tuple[str, str, str, int]]
    """Source, group, reason and number of dead letters, the most frequent first."""
    bad: Sequence[tuple[str, str, int]]
    """Destination, error and number of records that could not be read."""


def count(out: str, bounds: Ranges | None, now: int) -> Figures:
    """Count. `bounds` are those of the backend, None if it was not asked. Raises `CannotStart` without a mirror."""
    record = Table.require(out).record()
    if record is None:
        raise CannotStart(f"The mirror in {shown(out)} holds no batch yet.")
    files = [file for name in NAMES for file in Table.require(out, name).files()]
    with connect(out) as database:

        def ask(sql: str, **values: object) -> list[Any]:
            return database.execute(sql, values).fetchall()

        ask(_DATA)
        totals = [Total(*row) for row in ask(_TOTALS, now=now, listed=LISTED, others=OTHERS)]
        bars = _bars(totals)
        axis = {"start": bars.start, "width": bars.width}
        named = [total.destination for total in totals[:SERIES]]
        rows: dict[str, dict[int, int]] = {name: {} for name in named}
        sizes: dict[str, dict[int, int]] = {name: {} for name in named}
        for series, bar, number, size in ask(_TRAFFIC, named=named, others=OTHERS, **axis):
            rows.setdefault(series, {})[bar] = number
            sizes.setdefault(series, {})[bar] = size
        latency = ask(_LATENCY, **axis)
        return Figures(
            shown(out),
            now,
            record.written,
            len(files),
            sum(file.bytes for file in files),
            record.gaps,
            None if bounds is None else backlog(bounds, record.next),
            totals,
            bars,
            rows,
            sizes,
            dict(ask(_SIZES)),
            {bar: stored for bar, stored, _ in latency if stored is not None},
            {bar: mirrored for bar, _, mirrored in latency if mirrored is not None},
            ask(_DEAD),
            ask(_BAD),
        )


def _bars(totals: Sequence[Total]) -> Bars:
    """Return the finest parts of which no more than `BARS` hold all messages."""
    first = min((total.first for total in totals), default=0)
    last = max((total.last for total in totals), default=0)
    for width in _WIDTHS:
        start = first - first % width
        number = (last - start) // width + 1
        if number <= BARS:
            break
    return Bars(start, width, number)
