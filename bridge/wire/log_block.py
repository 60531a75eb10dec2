"""Many messages of one log as one binary block, both directions: for programs that copy a log.

The format: `OMB1`; the length of the JSON, 4 bytes; the JSON, which has a list for each column; the start of each body
and the end of the last one, 4 bytes each; the bodies. Numbers are little-endian. Encoding takes 2.4 us a message,
NDJSON with base64 took 9.6 us. The bodies can be read without copying.
"""

import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, NamedTuple

from bridge.message import FIELD_INDEX, FIELDS, Message

MEDIA_TYPE: Final = "application/vnd.oms.block"

_HEAD: Final = Struct("<4sI")
_MAGIC: Final = b"OMB1"
_ALIGNED: Final = 8
"""Bytes that the numbers are aligned to, so that readers can use them without a copy."""
_WIDTH: Final = 4
"""Bytes of a number."""
_COLUMNS: Final = {
    name: index for name, index in FIELD_INDEX.items() if name not in {"destination", "body", "properties"}
}
"""The index in a `Message` of each column of texts or numbers."""
_NUMBERS: Final = frozenset(field.attribute for field in FIELDS if field.maximum is not None)
_BODY: Final = FIELD_INDEX["body"]
_PROPERTIES: Final = FIELD_INDEX["properties"]
_WRITTEN: Final = (*_COLUMNS.values(), _PROPERTIES)
"""The indexes of all columns."""
_NULL: Final = "null"
_NO_PROPERTIES: Final = "{}"
_NUMBERS_OF_MESSAGE: Final = 24
"""Bytes of an offset and of the start of a body, at most."""
_json: Final = json.JSONEncoder(separators=(",", ":")).encode


class Block(NamedTuple):
    """A decoded block."""

    offsets: Sequence[int]
    """Ascending."""
    next: int
    """The offset at which the next block starts."""
    dropped: Sequence[tuple[int, int]]
    """Ranges of offsets whose messages no longer exist."""
    columns: dict[str, list[Any]]
    """By attribute of `Message`, each as long as `offsets`; a column without any value is missing."""
    properties: list[dict[str, str]]
    starts: "array[int]"
    """The start of each body and the end of the last one: one number more than messages. 32 bits each."""
    bodies: memoryview
    """The bodies one after the other, not copied."""

    def messages(self, destination: str) -> Iterator[Message]:
        """Yield each message."""
        rows: Iterator[tuple[Any, ...]] = zip(*self.columns.values(), strict=True) if self.columns else iter(())
        for properties, (start, end) in zip(self.properties, pairwise(self.starts), strict=True):
            fields = dict(zip(self.columns, next(rows, ()), strict=True))
            yield Message(destination, bytes(self.bodies[start:end]), properties, **fields)


class _Piece(NamedTuple):
    """A part of a column."""

    text: str
    """In JSON: the values, separated by commas, or one that is repeated."""
    repeats: int
    """How often; 0: the values differ."""

    @property
    def size(self) -> int:
        return (len(self.text) + 1) * max(1, self.repeats)

    def values(self) -> str:
        return ",".join([self.text] * self.repeats) if self.repeats else self.text


class Part(NamedTuple):
    """Messages of a block, encoded."""

    offsets: Sequence[int]
    bodies: Sequence[bytes]
    columns: list[_Piece]
    size: int
    """Bytes that they add to a block, at most."""


def encode_part(messages: Sequence[Message], offsets: Sequence[int]) -> Part:
    """Encode messages, of which there is at least one, in the order of their offsets."""
    columns: list[tuple[Any, ...]] = list(zip(*messages, strict=True))
    pieces, bodies = [_to_piece(columns[index]) for index in _WRITTEN], columns[_BODY]
    size = sum(piece.size for piece in pieces) + sum(map(len, bodies)) + _NUMBERS_OF_MESSAGE * len(offsets)
    return Part(offsets, bodies, pieces, size)


HEAD_MAX: Final = 1024
"""Bytes of a block beside its parts, without ranges of dropped messages; at most."""


class BlockWriter:
    """Builds a block of messages of one destination, without its name, part by part."""

    def __init__(self) -> None:
        self.size = HEAD_MAX
        """Bytes of the block, at most."""
        self._offsets: list[int] = []
        self._columns: list[list[_Piece]] = [[] for _ in _WRITTEN]
        self._bodies: list[bytes] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, part: Part) -> None:
        """Add messages, whose offsets are higher than those before."""
        self.size += part.size
        self._offsets += part.offsets
        self._bodies += part.bodies
        for column, piece in zip(self._columns, part.columns, strict=True):
            column.append(piece)

    def finish(self, following: int, dropped: Sequence[tuple[int, int]]) -> bytes:
        """Return the block. The bodies have less than 2 GiB together."""
        offsets, count = self._offsets, len(self._offsets)
        dense = count > 0 and offsets[-1] - offsets[0] == count - 1
        *columns, properties = self._columns
        named = (
            f'"{name}":{single or _to_list(pieces)}'
            for name, pieces in zip(_COLUMNS, columns, strict=True)
            if (single := _single(pieces, _NULL)) != _NULL
        )
        has_properties = _single(properties, _NO_PROPERTIES) != _NO_PROPERTIES
        all_properties = _to_list(properties) if has_properties else _NULL
        text = (
            f'{{"count":{count},"offsets":{offsets[0] if dense else _json(offsets)},"next":{following}'
            f',"dropped":{_json(dropped)},"columns":{{{",".join(named)}}},"properties":{all_properties}}}'
        ).encode("ascii")
        text += b" " * (-(_HEAD.size + len(text)) % _ALIGNED)
        starts = array("i", accumulate(map(len, self._bodies), initial=0))
        return b"".join((_HEAD.pack(_MAGIC, len(text)), text, _little(starts).tobytes(), *self._bodies))


def decode(data: bytes) -> Block:
    """Return the content of a block. Raises `ValueError` if it is not one."""
    try:
        return _decode(memoryview(data))
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError, StructError) as error:
        raise ValueError(f"not a block: {error!r}") from None


def _decode(data: memoryview) -> Block:
    magic, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("not a block, or a block of a later version")
    at = _HEAD.size + length
    head = json.loads(bytes(data[_HEAD.size : at]))
    count = _whole(head["count"])
    end = at + (count + 1) * _WIDTH
    starts = _little(array("i", data[at:end].tobytes()))
    bodies = data[end:]
    if len(starts) != count + 1 or starts[0] or starts[-1] != len(bodies) or any(a > b for a, b in pairwise(starts)):
        raise ValueError("the positions of the bodies do not match the block")
    given = head["offsets"]
    offsets = _ascending(given) if isinstance(given, list) else range(_whole(given), given + count)
    if len(offsets) != count:
        raise ValueError("the block does not have one offset for each message")
    columns = {name: _column(name, values, count) for name, values in head["columns"].items()}
    properties = [{}] * count if head["properties"] is None else _properties(head["properties"], count)
    dropped = [(_whole(start), _whole(stop)) for start, stop in head["dropped"]]
    return Block(offsets, _whole(head["next"]), dropped, columns, properties, starts, bodies)


def _to_piece(column: tuple[Any, ...]) -> _Piece:
    if column.count(column[0]) == len(column):
        return _Piece(_json(column[0]), len(column))
    return _Piece(_json(column)[1:-1], 0)


def _single(pieces: list[_Piece], otherwise: str) -> str | None:
    """Return the value that all rows have, `otherwise` if there are none; None: the values differ."""
    first = pieces[0].text if pieces else otherwise
    return first if all(piece.repeats and piece.text == first for piece in pieces) else None


def _to_list(pieces: list[_Piece]) -> str:
    return f"[{','.join(piece.values() for piece in pieces)}]"


def _column(name: str, given: Any, count: int) -> list[Any]:  # noqa: ANN401 - any JSON value
    values = given if isinstance(given, list) else [given] * count
    kind = int if name in _NUMBERS else str
    if name not in _COLUMNS or len(values) != count or not set(map(type, values)) <= {kind, type(None)}:
        raise ValueError(f"the column {name!r} has an unknown name, the wrong length or wrong types")
    return values


def _properties(given: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    if len(given) != count or not all(set(map(type, each.values())) <= {str} for each in given):
        raise ValueError("the properties have the wrong number or wrong types")
    return given


def _ascending(offsets: list[int]) -> list[int]:
    if any(a >= b for a, b in pairwise(map(_whole, offsets))):
        raise ValueError("the offsets do not ascend")
    return offsets


def _whole(number: int) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is neither an offset nor a count")
    return number


def _little(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
