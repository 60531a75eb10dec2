"""Reads a JSON array of messages in pieces of bounded size, each by msgspec's structs, or else element by element.

Elements are parsed by the standard library, which cannot be interrupted: for 4 MiB of tiny values it took 0.4 s, in
which no other client was answered.
"""

import re
from collections.abc import Callable
from json import decoder
from json.decoder import JSONDecodeError, JSONDecoder
from operator import itemgetter
from typing import Any, Final

from msgspec.json import Decoder
from msgspec.structs import astuple

from bridge.errors import BodyInvalid, BodyTooLarge, HeadersTooLarge
from bridge.long_work import Steps
from bridge.message import FIELD_INDEX, FIELDS, Message
from bridge.wire.header_text import is_traceparent
from bridge.wire.json_types import CARRIED, Extension, Item

PIECE: Final = 32 << 10
"""Characters that the parser reads at once, besides one string of any length. The slowest take 4 ms."""
MEMBERS_MAX: Final = 4096
"""Members of an object that is longer than a piece: more than a consumer can receive as headers."""
_MEMBERS_OF_STEP: Final = 512
_DEPTH_MAX: Final = 3
"""Objects inside each other that may be longer than a piece: a wrapper, its message, and `properties`."""

_string: Final[Callable[[str, int], tuple[str, int]]] = decoder.scanstring  # type: ignore[attr-defined] # no stub
"""Returns the string whose first character is at a place, and where it ends."""
_between: Final = re.compile(r"\}[ \t\r\n]*+,[ \t\r\n]*+\{").search
"""Finds what looks like the end of an object and the start of the next one; inside a string it is neither."""
_PIECES_MAX: Final = 3
"""Pieces that `take_many` may get at once, to find the end of an element."""
_space: Final = re.compile(r"[ \t\r\n]*+").match

Pairs = list[tuple[str, Any]]
TakeMany = Callable[[str, int], int]
"""Takes all elements of an array, at most so many. Returns how many it took; 0: they have to be parsed here."""


class ArrayReader:
    """Reads one array. A value that is longer than a piece is read by its members, each of which may be as long."""

    def __init__(self, raw: bytes, parser: JSONDecoder, members: Callable[[Pairs], object]) -> None:
        """`members` is the `object_pairs_hook` of `parser`. Raises `BodyInvalid` if `raw` is not UTF-8."""
        try:
            self._text = raw.decode("utf-8-sig", "surrogatepass")
        except UnicodeDecodeError as error:
            raise BodyInvalid(f"The body is not JSON: {error.reason} at byte {error.start}.") from None
        self._decode = parser.raw_decode
        self._members = members
        self._start = 0
        self._piece = self._text[:PIECE]

    def read(self, limit: int, take: Callable[[object], None], take_many: TakeMany) -> Steps[None]:
        """Pass each element to `take`, or pieces of the text with several elements to `take_many`.

        Raises `BodyInvalid` if the text is not a JSON array, `BodyTooLarge` if it has more than `limit` elements, and
        `HeadersTooLarge` if an object has more members than any message.
        """
        try:
            yield from self._elements(limit, take, take_many)
        except JSONDecodeError as error:
            raise BodyInvalid(f"The body is not JSON: {error.msg}, character {error.pos}.") from None
        except (ValueError, RecursionError) as error:
            raise BodyInvalid(f"The body is not JSON: {str(error)[:200]}.") from None

    def _elements(self, limit: int, take: Callable[[object], None], take_many: TakeMany) -> Steps[None]:
        at = self._skip(0)
        if not self._text.startswith("[", at):
            raise BodyInvalid("The body is not a JSON array of messages.")
        count, at = 0, self._skip(at + 1)
        closed = self._text.startswith("]", at)
        one_by_one_until = at
        while not closed:
            if count == limit:
                raise BodyTooLarge(f"A batch has at most {limit} messages; this one has more.")
            if at >= one_by_one_until:
                end = self._end_of_piece(at)
                if taken := take_many(f"[{self._text[at:end]}]", limit - count):
                    count += taken
                    closed, at = self._next(end, "]")
                    one_by_one_until = at
                    yield
                    continue
                one_by_one_until = at + PIECE
            element, at = yield from self._value(at, 0)
            take(element)
            count += 1
            closed, at = self._next(at, "]")
        if (end := self._skip(at + 1)) < len(self._text):
            raise JSONDecodeError("Extra data", self._text, end)

    def _end_of_piece(self, at: int) -> int:
        """Return where an element ends that is about a piece away, or else `at`."""
        end = at + _PIECES_MAX * PIECE
        if (between := _between(self._text, at + PIECE, end)) is not None:
            return between.start() + 1
        return max(at, self._text.rfind("]", at)) if end >= len(self._text) else at

    def _object(self, at: int, depth: int) -> Steps[tuple[object, int]]:
        """Return the object that begins at `at`, and where it ends."""
        pairs: Pairs = []
        at = self._skip(at + 1)
        closed = self._text.startswith("}", at)
        while not closed:
            if len(pairs) == MEMBERS_MAX:
                raise HeadersTooLarge(f"An object of the batch has more than {MEMBERS_MAX} members.")
            if not self._text.startswith('"', at):
                raise JSONDecodeError("Expecting property name enclosed in double quotes", self._text, at)
            name, at = _string(self._text, at + 1)
            at = self._skip(at)
            if not self._text.startswith(":", at):
                raise JSONDecodeError("Expecting ':' delimiter", self._text, at)
            value, at = yield from self._value(self._skip(at + 1), depth)
            pairs.append((name, value))
            if len(pairs) % _MEMBERS_OF_STEP == 0:
                yield
            closed, at = self._next(at, "}")
        return self._members(pairs), at + 1

    def _value(self, at: int, depth: int) -> Steps[tuple[object, int]]:
        """Return the value that begins at `at`, and where it ends."""
        if self._text.startswith('"', at):
            return _string(self._text, at + 1)
        if (parsed := self._parse(at)) is not None:
            return parsed
        yield
        self._start, self._piece = at, self._text[at : at + PIECE]
        if (parsed := self._parse(at)) is not None:
            return parsed
        yield
        if depth == _DEPTH_MAX or not self._text.startswith("{", at):
            raise BodyInvalid(
                f"The body is not a batch: the value at character {at} is not JSON, or no message has one so long."
            )
        return (yield from self._object(at, depth + 1))

    def _parse(self, at: int) -> tuple[object, int] | None:
        """Return the value at `at` and where it ends; None if it may end outside the piece."""
        start, piece = self._start, self._piece
        is_last = start + len(piece) == len(self._text)
        try:
            value, end = self._decode(piece, at - start)
        except JSONDecodeError as error:
            if is_last:
                raise JSONDecodeError(error.msg, self._text, start + error.pos) from None
            return None
        except RecursionError:
            if is_last:
                raise
            return None
        # A number may go on after the piece, which then ends like 12, 12. or 12e+.
        is_whole = is_last or (end < len(piece) and piece[end] not in ".eE")
        return (value, start + end) if is_whole else None

    def _next(self, at: int, closing: str) -> tuple[bool, int]:
        """Return whether `closing` follows, and the place of it or else of the next value."""
        at = self._skip(at)
        if self._text.startswith(closing, at):
            return True, at
        if not self._text.startswith(",", at):
            raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
        return False, self._skip(at + 1)

    def _skip(self, at: int) -> int:
        """Return the place of the first character at or after `at` that is not white space."""
        found = _space(self._text, at)
        return found.end() if found is not None else at


_numbers_of: Final = itemgetter(*(FIELD_INDEX[f.attribute] for f in FIELDS if f.maximum is not None))
"""The values of the fields of a message that are numbers; None: not set."""
_decode: Final[Callable[[str], list[Any]]] = Decoder(list[Item]).decode  # type: ignore[valid-type]
_decode_lines: Final[Callable[[bytes], list[Any]]] = Decoder(Item).decode_lines
_NO_EXTENSION: Final = astuple(Extension())


def decode_messages(array: str) -> list[Message] | None:
    """Return the messages of a JSON array; None: there may be an error or a rare form, which only `jsonform` reads."""
    try:
        items = _decode(array)
    except (ValueError, RecursionError):
        return None
    return _messages(items, array.count('"') - (_escaped(array) if "\\" in array else 0))


def decode_lines(lines: bytes, count: int) -> list[Message] | None:
    """Return the messages of so many lines, one of each; None: as for `decode_messages`.

    Every line begins and ends with a brace, and the parser refuses line feeds in strings. So each line has a message or
    more, and as many messages as lines means one of each.
    """
    if not (lines.startswith(b"{") and lines.endswith(b"}") and lines.count(b"}\n{") == count - 1):
        return None
    try:
        items = _decode_lines(lines)
    except (ValueError, RecursionError):
        return None
    if len(items) != count:
        return None
    return _messages(items, lines.count(b'"') - (_escaped(lines.decode()) if b"\\" in lines else 0))


def _messages(items: list[Any], quotes: int) -> list[Message] | None:
    """Return the messages of items whose text has so many quotation marks that begin or end a string."""
    messages, strings = [], 0
    for item in items:
        destination, *header = astuple(item.header)
        extension = item.extension
        message = Message(
            destination,
            item.data or b"",
            item.properties or {},
            *header,
            *(_NO_EXTENSION if extension is None else astuple(extension)),
        )
        if message.traceparent is None:
            if message.tracestate is not None:
                return None
        elif not is_traceparent(message.traceparent.encode()):
            return None
        strings += _strings(item, message)
        messages.append(message)
    # msgspec reads a repeated member without an error, so that fewer strings are left than were given.
    return messages if 2 * strings == quotes else None


def _strings(item: Any, message: Message) -> int:  # noqa: ANN401 - of a type made above
    """Count the strings of a message: the names of its members, and the values that are no numbers."""
    numbers: tuple[int | None, ...] = _numbers_of(message)
    names = len(FIELDS) + len(CARRIED) - message.count(None) + len(message.properties)
    names += (item.data is not None) + (item.version is not None)
    sections = 1 + (item.extension is not None) + (item.properties is not None)
    return 2 * names + sections - (len(numbers) - numbers.count(None))


def _escaped(text: str) -> int:
    """Count the quotation marks inside the strings of JSON."""
    return text.replace("\\\\", "").count('\\"')
