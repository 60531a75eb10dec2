"""AMQP's tables, in the format that RabbitMQ and its clients use. Pure.

pika's decoder ends the connection at a time in milliseconds (`T` of some clients) and at nested tables, again and
again, because the message is delivered again; and it truncates floats. Its encoder has no floats. Types are those of
RabbitMQ's errata to AMQP 0-9-1.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from struct import Struct
from typing import Any, Final

SHORT_MAX: Final = 255
"""Bytes of a short string: a name in a table, and most properties."""
DEPTH_MAX: Final = 16
"""Nested tables and lists; deeper ones stay bytes."""

_TEXT: Final = ord("S")
_LONG: Final = ord("l")
_DECIMALS_MAX: Final = 255
_FIGURES_MAX: Final = 10
_INT: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_TIME: Final = range(2**64)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_NAMES: Final[dict[bytes, str]] = {}
_NAMES_MAX: Final = 4096
"""Names that are remembered, also of producers that make one up for each message."""

_SIZE: Final = Struct(">I")
_INT64_OF: Final = Struct(">q")
_TAGGED_INT64: Final = Struct(">cq")
_TAGGED_SIZE: Final = Struct(">cI")
_TAGGED_DOUBLE: Final = Struct(">cd")
_TAGGED_TIME: Final = Struct(">cQ")
_TAGGED_DECIMAL: Final = Struct(">cBi")
_DECIMAL: Final = Struct(">Bi")


def read_table(raw: bytes, start: int, end: int, depth: int = 0) -> dict[str, Any]:
    """Return the names and values of these bytes: text, bytes, numbers, times, None, lists and tables.

    Text that is not UTF-8 stays bytes; so does everything from a value of an unknown type, or an incomplete one.
    """
    table: dict[str, Any] = {}
    at = start
    while at < end:
        value_at = at + 1 + raw[at]
        written = raw[at + 1 : value_at]
        name = _NAMES.get(written) or _name(written)
        if (text_at := value_at + 5) <= end and raw[value_at] == _TEXT:  # nearly all values; a call takes as long again
            at = text_at + _SIZE.unpack_from(raw, value_at + 1)[0]
            if at <= end:
                table[name] = text_or_bytes(raw[text_at:at])
                continue
        table[name], at = _read_value(raw, value_at, end, depth)
    return table


def _name(written: bytes) -> str:
    """Return a name, and remember it: a destination's messages have the same ones."""
    name = written.decode("utf-8", "replace")
    if len(_NAMES) < _NAMES_MAX:
        _NAMES[written] = name
    return name


def _read_value(raw: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    kind = raw[at] if at < end else -1
    value: Any
    if kind == _TEXT:
        start = at + 5
        stop = start + int.from_bytes(raw[at + 1 : start])
        value = text_or_bytes(raw[start:stop])
    elif kind == _LONG and at + 9 <= end:
        return _INT64_OF.unpack_from(raw, at + 1)[0], at + 9
    elif (fixed := _FIXED.get(kind)) is not None and (stop := at + 1 + fixed[0].size) <= end:
        value = fixed[1](*fixed[0].unpack_from(raw, at + 1))
    elif (nested := _NESTED.get(kind)) is not None:
        start = at + 5
        stop = start + int.from_bytes(raw[at + 1 : start])
        value = nested(raw, start, stop, depth + 1) if stop <= end and depth < DEPTH_MAX else raw[start:stop]
    else:
        value, stop = raw[at:end], end
    return (value, stop) if stop <= end else (raw[at:end], end)


def text_or_bytes(raw: bytes) -> str | bytes:
    """Return UTF-8 as text, and anything else as bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read_list(raw: bytes, start: int, end: int, depth: int) -> list[Any]:
    values: list[Any] = []
    at = start
    while at < end:
        value, at = _read_value(raw, at, end, depth)
        values.append(value)
    return values


def _time(seconds: int) -> datetime | int:
    """Return a time; beyond the year 9999 the number is not in seconds, and stays a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


_FIXED: Final[dict[int, tuple[Struct, Callable[..., Any]]]] = {
    ord("t"): (Struct(">B"), bool),
    ord("b"): (Struct(">b"), int),
    ord("B"): (Struct(">B"), int),
    ord("s"): (Struct(">h"), int),
    ord("U"): (Struct(">h"), int),
    ord("u"): (Struct(">H"), int),
    ord("I"): (Struct(">i"), int),
    ord("i"): (Struct(">I"), int),
    ord("L"): (Struct(">q"), int),
    ord("l"): (Struct(">q"), int),
    ord("f"): (Struct(">f"), float),
    ord("d"): (Struct(">d"), float),
    ord("D"): (_DECIMAL, lambda scale, digits: Decimal(digits).scaleb(-scale)),
    ord("T"): (Struct(">Q"), _time),
    ord("V"): (Struct(">"), lambda: None),
}
_NESTED: Final[dict[int, Callable[[bytes, int, int, int], Any]]] = {
    ord("x"): lambda raw, start, end, _: raw[start:end],
    ord("A"): _read_list,
    ord("F"): read_table,
}


def write_table(table: Mapping[str, Any]) -> bytes:
    """Return the bytes of a table, its size in front. Raises `UnicodeEncodeError` for halves of surrogate pairs.

    A name longer than `SHORT_MAX` bytes is cut; a value without a type in AMQP is written as text.
    """
    pieces: list[bytes] = [b""]
    for name, value in table.items():
        raw = name.encode()
        if len(raw) > SHORT_MAX:
            raw = raw[:SHORT_MAX].decode("utf-8", "ignore").encode()
        if type(value) is str:
            text = value.encode()
            pieces += (_LENGTHS[len(raw)], raw, _TAGGED_SIZE.pack(b"S", len(text)), text)
        else:
            pieces += (_LENGTHS[len(raw)], raw, _value(value))
    pieces[0] = _SIZE.pack(sum(map(len, pieces)))
    return b"".join(pieces)


_LENGTHS: Final = tuple(bytes((length,)) for length in range(SHORT_MAX + 1))


def _value(value: Any) -> bytes:  # noqa: ANN401, PLR0911 - one line for each type
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\1" if value else b"t\0"
    if isinstance(value, int):
        return _TAGGED_INT64.pack(b"l", value) if value in _INT64 else _long(b"S", str(int(value)).encode())
    if isinstance(value, bytes):
        return _long(b"x", value)
    if isinstance(value, float) and isfinite(value):  # the broker closes the connection at others
        return _TAGGED_DOUBLE.pack(b"d", value)
    if isinstance(value, Mapping):
        return b"F" + write_table(value)
    if isinstance(value, list | tuple):
        return _long(b"A", b"".join(map(_value, value)))
    if isinstance(value, datetime) and (seconds := int((_aware(value) - _EPOCH).total_seconds())) in _TIME:
        return _TAGGED_TIME.pack(b"T", seconds)
    if isinstance(value, Decimal) and (packed := _packed(value)) is not None:
        return packed
    return _long(b"S", str(value).encode())


def _long(kind: bytes, raw: bytes) -> bytes:
    return _TAGGED_SIZE.pack(kind, len(raw)) + raw


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _packed(value: Decimal) -> bytes | None:
    """Return a decimal of 32 bits and a scale, as in AMQP; None: it does not fit."""
    _, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -_DECIMALS_MAX <= exponent <= 0 or len(figures) > _FIGURES_MAX:
        return None
    digits = int(value.scaleb(-exponent))
    return _TAGGED_DECIMAL.pack(b"D", -exponent, digits) if digits in _INT else None
