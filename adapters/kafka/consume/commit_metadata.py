"""Encodes the settled offsets beyond a group's position, and the attempts of the others, as text beside the commit.

    oms1:<offset>:<settled>:<attempts>

The offset is the commit's own: if a tool has moved the position and left the text, the two differ, and the text is
void. What is settled is written as runs or as a bitmap, whichever is shorter. Attempts are runs over the unsettled
offsets in order: how many, with which count. All of it is printable ASCII, as tools show it.

A broker takes 4,096 characters (`offset.metadata.max.bytes`). The settled offsets always fit, as fetching pauses at
`SPAN_MAX`; if the attempts do not fit beside them, the lowest counts are dropped first.
"""

import re
import sys
from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

from adapters.range_set import RangeSet

CHARACTERS_MAX: Final = 4095
"""One less than a broker takes: both clients write a NUL behind the text, which counts."""
_SETTLED_MAX: Final = CHARACTERS_MAX - 40
"""Characters, beside the version and an offset of 19 digits."""
_BITMAP_MAX: Final = 24_000
"""Offsets: a bitmap of so many always fits. If even the runs do not fit, settled offsets beyond are not written."""

_NOWHERE: Final = (sys.maxsize, sys.maxsize)
_VERSION: Final = "oms1"
_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_MORE: Final = 32
"""Added to a digit of a number that another one follows: five bits each, the lowest first."""
_BLOCK: Final = 24
"""Bits in four characters of base64, which need no padding then."""
_COUNTS_MAX: Final = 1 << 17
"""Unsettled offsets that attempts are read for; text may claim any number."""
_ONE: Final = ord("1")
_ONES: Final = re.compile("1+")

Pairs = Iterable[tuple[int, int]]


def encode(low: int, settled: RangeSet, attempts: Mapping[int, int]) -> str:
    """Write the text for a commit at `low`, empty if there is nothing to say; `attempts` are of unsettled offsets."""
    if not settled and not attempts:
        return ""
    settled_text = _write_settled(low, settled)
    if len(settled_text) > _SETTLED_MAX:
        settled = _below(settled, low + _BITMAP_MAX)
        settled_text = _write_settled(low, settled)
        attempts = {offset: count for offset, count in attempts.items() if offset < low + _BITMAP_MAX}
    head = f"{_VERSION}:{low}:{settled_text}:"
    return head + _write_counts(_counts(low, settled, attempts), CHARACTERS_MAX - len(head))


def decode(text: str, offset: int) -> tuple[RangeSet, dict[int, int]]:
    """Read the text of a commit at `offset`: the settled offsets and the attempts; nothing if the text is void."""
    try:
        version, base, settled_text, attempts_text = text.rstrip("\0").split(":")  # a NUL: see above
        if version == _VERSION and base == str(offset):
            settled = _read_settled(offset, settled_text)
            if offset not in settled:
                return settled, _read_counts(offset, settled, attempts_text)
    except (ValueError, KeyError):
        pass  # another tool's
    return RangeSet(), {}


def _below(settled: RangeSet, end: int) -> RangeSet:
    kept = RangeSet()
    for start, stop in settled.bounds():
        if start < end:
            kept.add_range(start, min(stop, end))
    return kept


def _write_settled(low: int, settled: RangeSet) -> str:
    """Write `r` and how many are unsettled and settled in turn, or `b` and a bit for each offset from `low` on."""
    if not settled:
        return ""
    runs = list(settled.bounds())
    blocks = -(-(runs[-1][1] - low) // _BLOCK)
    if len(runs) < 2 * blocks:  # a run takes two characters or more, a block four
        stops = (low, *(stop for _, stop in runs))
        text = _numbers((start - before, stop - start) for before, (start, stop) in zip(stops, runs, strict=False))
        if len(text) <= 4 * blocks:
            return "r" + text
    bits = bytearray(b"0") * (blocks * _BLOCK)
    for start, stop in runs:
        if stop - start == 1:
            bits[start - low] = _ONE
        else:
            bits[start - low : stop - low] = b"1" * (stop - start)
    return "b" + urlsafe_b64encode(int(bits, 2).to_bytes(blocks * _BLOCK // 8)).decode("ascii")


def _read_settled(low: int, text: str) -> RangeSet:
    settled = RangeSet()
    if text[:1] == "b":
        raw = b64decode(text[1:], altchars=b"-_", validate=True)
        for ones in _ONES.finditer(f"{int.from_bytes(raw):0{len(raw) * 8}b}"):
            settled.add_range(low + ones.start(), low + ones.end())
    elif text[:1] == "r":
        for unsettled, length in _pairs(text[1:]):
            if not (unsettled and length):
                raise ValueError(text)
            settled.add_range(low + unsettled, low + unsettled + length)
            low += unsettled + length
    elif text:
        raise ValueError(text)
    return settled


def _counts(low: int, settled: RangeSet, attempts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return how many unsettled offsets in order have which count."""
    runs: list[tuple[int, int]] = []
    taken, below = settled.bounds(), 0
    start, stop = next(taken, _NOWHERE)
    reached = 0
    for offset in sorted(attempts):
        while start < offset:
            below += stop - start
            start, stop = next(taken, _NOWHERE)
        place = offset - low - below
        if place > reached:
            runs.append((place - reached, 0))
        runs.append((1, attempts[offset]))
        reached = place + 1
    return _joined(runs)


def _write_counts(runs: list[tuple[int, int]], space: int) -> str:
    """Write all counts; if there is no space for them, those above the lowest count that fits."""

    def above(floor: int) -> str:
        return _numbers(_joined((length, count if count > floor else 0) for length, count in runs))

    def fits(floor: int) -> bool:
        return len(above(floor)) <= space

    text = _numbers(runs)
    if len(text) <= space:
        return text
    floors = sorted({count for _, count in runs})
    return above(floors[bisect_left(floors, True, key=fits)])


def _joined(runs: Pairs) -> list[tuple[int, int]]:
    """Join neighbours of one count, and leave out zeros at the end."""
    joined: list[tuple[int, int]] = []
    for length, count in runs:
        if joined and joined[-1][1] == count:
            joined[-1] = (joined[-1][0] + length, count)
        else:
            joined.append((length, count))
    if joined and joined[-1][1] == 0:
        joined.pop()
    return joined


def _read_counts(low: int, settled: RangeSet, text: str) -> dict[int, int]:
    attempts: dict[int, int] = {}
    at, left = low, _COUNTS_MAX
    for length, count in _pairs(text):
        left -= length
        if left < 0:
            raise ValueError(text)
        for _ in range(length):
            if count:
                attempts[at] = count
            at = settled.past(at + 1)
    return attempts


def _numbers(pairs: Pairs) -> str:
    """Write numbers one after the other: up to 31 one character, up to 1,023 two, up to 32,767 three."""
    text = []
    for pair in pairs:
        for number in pair:
            while number >= _MORE:
                text.append(_DIGITS[number % _MORE + _MORE])
                number //= _MORE  # noqa: PLW2901 - digit by digit
            text.append(_DIGITS[number])
    return "".join(text)


def _pairs(text: str) -> Pairs:
    """Read pairs of numbers. Raises `KeyError` for other characters, `ValueError` if one is cut off."""
    numbers = []
    number = shift = 0
    for digit in text:
        value = _VALUES[digit]
        number += value % _MORE << shift
        if value >= _MORE:
            shift += 5
        else:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2:
        raise ValueError(text)
    return zip(numbers[::2], numbers[1::2], strict=True)
