"""Many messages of one log as one block, both directions: for whoever copies a log and not for those who consume it.

`OMB1`, the length of the JSON that follows in 4 bytes, that JSON with one list a column, 4 bytes for where each body
begins and the last one ends, then the bodies. Numbers are little-endian. The standard library writes a message in
2.4 us, where NDJSON with base64 took 9.6, and the bodies need not be copied to be read.
"""

import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class, whatever its name looks like
from typing import Any, Final, NamedTuple

from bridge.message import FIELDS, Message

MEDIA_TYPE: Final = "application/vnd.oms.block"

_HEAD: Final = Struct("<4sI")
_MAGIC: Final = b"OMB1"
_ALIGNED: Final = 8
"""Bytes that the numbers are aligned to, so that readers may take them where they lie."""
_WIDTH: Final = 4
"""Bytes of a number."""
_PLACES: Final = {
    name: place for place, name in enumerate(Message._fields) if name not in {"destination", "body", "properties"}
}
"""The columns that hold a text or a number a message."""
_NUMBERS: Final = frozenset(field.attribute for field in FIELDS if field.maximum is not None)
_BODY: Final = Message._fields.index("body")
_PROPERTIES: Final = Message._fields.index("properties")


class Block(NamedTuple):
    """What was read."""

    offsets: Sequence[int]
    """Ascending."""
    next: int
    """Where to go on."""
    dropped: Sequence[tuple[int, int]]
    """Runs of offsets whose messages are gone."""
    columns: dict[str, list[Any]]
    """By attribute of `Message`, each as long as `offsets`; one in which nobody set anything is missing."""
    properties: list[dict[str, str]]
    starts: "array[int]"
    """Where each body begins, and where the last one ends: one more than there are messages. 32 bits each."""
    bodies: memoryview
    """One after the other, where they lay."""

    def messages(self, destination: str) -> Iterator[Message]:
        """Build each message."""
        rows: Iterator[tuple[Any, ...]] = zip(*self.columns.values(), strict=True) if self.columns else iter(())
        for properties, (start, end) in zip(self.properties, pairwise(self.starts), strict=True):
            fields = dict(zip(self.columns, next(rows, ()), strict=True))
            yield Message(destination, bytes(self.bodies[start:end]), properties, **fields)


def encode(
    messages: Sequence[Message], offsets: Sequence[int], following: int, dropped: Sequence[tuple[int, int]]
) -> bytes:
    """Write messages of one destination, whose name is not in it. Their bodies: less than 2 GiB together."""
    columns: list[Sequence[Any]] = list(zip(*messages, strict=True)) or [()] * len(Message._fields)
    dense = bool(offsets) and offsets[-1] - offsets[0] == len(offsets) - 1
    head = {
        "count": len(messages),
        "offsets": offsets[0] if dense else list(offsets),
        "next": following,
        "dropped": dropped,
        "columns": {
            name: _same(columns[place]) for name, place in _PLACES.items() if columns[place].count(None) < len(messages)
        },
        "properties": columns[_PROPERTIES] if any(columns[_PROPERTIES]) else None,
    }
    text = json.dumps(head, separators=(",", ":")).encode("ascii")
    text += b" " * (-(_HEAD.size + len(text)) % _ALIGNED)
    starts = array("i", accumulate(map(len, columns[_BODY]), initial=0))
    return b"".join((_HEAD.pack(_MAGIC, len(text)), text, _little(starts).tobytes(), *columns[_BODY]))


def decode(data: bytes) -> Block:
    """Read a block. Raises `ValueError` for anything else."""
    try:
        return _decode(memoryview(data))
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError, StructError) as error:
        raise ValueError(f"it is no block: {error!r}") from None


def _decode(data: memoryview) -> Block:
    magic, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("it is no block, or one of a later version")
    at = _HEAD.size + length
    head = json.loads(bytes(data[_HEAD.size : at]))
    count = _whole(head["count"])
    end = at + (count + 1) * _WIDTH
    starts = _little(array("i", data[at:end].tobytes()))
    bodies = data[end:]
    if len(starts) != count + 1 or starts[0] or starts[-1] != len(bodies) or any(a > b for a, b in pairwise(starts)):
        raise ValueError("the bodies of a block do not lie where it says")
    given = head["offsets"]
    offsets = _ascending(given) if isinstance(given, list) else range(_whole(given), given + count)
    if len(offsets) != count:
        raise ValueError("a block has not one offset for each message")
    columns = {name: _column(name, values, count) for name, values in head["columns"].items()}
    properties = [{}] * count if head["properties"] is None else _properties(head["properties"], count)
    dropped = [(_whole(start), _whole(stop)) for start, stop in head["dropped"]]
    return Block(offsets, _whole(head["next"]), dropped, columns, properties, starts, bodies)


def _same(column: Sequence[Any]) -> Any:  # noqa: ANN401 - what JSON holds
    """Write a value that stands in every row once."""
    return column[0] if column.count(column[0]) == len(column) else column


def _column(name: str, given: Any, count: int) -> list[Any]:  # noqa: ANN401 - what JSON holds
    values = given if isinstance(given, list) else [given] * count
    kind = int if name in _NUMBERS else str
    if name not in _PLACES or len(values) != count or not set(map(type, values)) <= {kind, type(None)}:
        raise ValueError(f"the column {name!r} of a block does not hold what it should")
    return values


def _properties(given: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    if len(given) != count or not all(set(map(type, each.values())) <= {str} for each in given):
        raise ValueError("the properties of a block do not hold what they should")
    return given


def _ascending(offsets: list[int]) -> list[int]:
    if any(a >= b for a, b in pairwise(map(_whole, offsets))):
        raise ValueError("the offsets of a block do not ascend")
    return offsets


def _whole(number: int) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no offset and no count")
    return number


def _little(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
