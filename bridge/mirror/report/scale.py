"""Axes and units. Pure."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WIDTHS: Final = (
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR),
    *(_DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY, 36_500 * _DAY),
)
_ROUND: Final = (
    *(1, 10, 100, 1000, 10_000, _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR),
    *(4 * _DAY, 40 * _DAY, 400 * _DAY, 4000 * _DAY, 40_000 * _DAY, 4_000_000 * _DAY),  # a clock may say anything
)
MOST: Final = 96
"""Bars that a plot holds; more are thinner than a line."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

Format = Callable[[float], str]


class Times(NamedTuple):
    """Equal pieces of time. Milliseconds since 1970."""

    start: int
    width: int
    number: int

    def label(self, piece: int) -> str:
        """Return when a piece begins."""
        moment = datetime.fromtimestamp((self.start + piece * self.width) / 1000, UTC)
        return f"{moment:%Y-%m-%d}" if self.width >= _DAY else f"{moment:%m-%d %H:%M}"


def times(first: int, last: int) -> Times:
    """Return the finest pieces of which no more than `MOST` hold all from first to last."""
    for width in _WIDTHS:
        start = first - first % width
        number = (last - start) // width + 1
        if number <= MOST:
            break
    return Times(start, width, number)


def ticks(largest: float) -> list[float]:
    """Return three to six round numbers from 0 up to one that is not smaller."""
    if largest <= 0:
        return [0, 1]
    raw = largest / 4
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [step * n for n in range(math.ceil(largest / step) + 1)]


def byte_ticks(largest: float) -> list[float]:
    """Return the same for bytes: round in KiB, MiB and so on."""
    unit = 1024 ** int(math.log(max(1, largest), 1024))
    return [tick * unit for tick in ticks(largest / unit)]


def durations(smallest: float, largest: float) -> list[float]:
    """Return round times around these, in ms: each about ten times the one before it."""
    low = min(len(_ROUND) - 2, max(0, bisect_right(_ROUND, smallest) - 1))
    high = max(low + 1, min(len(_ROUND) - 1, bisect_left(_ROUND, largest)))
    return list(_ROUND[low : high + 1])


def count(number: float) -> str:
    """12345 → 12,345; from a million on 1.2 M."""
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number:,.0f}"  # noqa: PLR2004 - a million


def size(number: float) -> str:
    """Bytes, in powers of 1024."""
    power = min(len(_UNITS) - 1, int(math.log(max(1, number), 1024)))
    return f"{_short(number / 1024**power)} {_UNITS[power]}"


def duration(milliseconds: float) -> str:
    """Milliseconds below a second, then seconds, minutes, hours, days."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1000)):
        if milliseconds >= length:
            return f"{_short(milliseconds / length)} {unit}"
    return f"{_short(milliseconds)} ms"


def moment(milliseconds: int | None) -> str:
    """Return a time in UTC, to the second."""
    return "" if milliseconds is None else f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"  # noqa: PLR2004 - three digits
