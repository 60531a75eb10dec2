"""The specification's JSON form of a message, and arrays of such messages, both directions, by msgspec.

What msgspec refuses, `json_errors` reads: it says what is wrong, and knows the rare forms.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Raw, Struct, defstruct, field, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.structs import astuple

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError
from bridge.long_work import Steps
from bridge.message import FIELD_INDEX, FIELDS, Field, Message, Section
from bridge.wire import json_errors
from bridge.wire.header_text import NAME_BYTES_MAX, is_traceparent
from bridge.wire.json_elements import MEMBERS_MAX, WHITE, split, texts_of
from bridge.wire.json_errors import CARRIED

MEDIA_TYPE: Final = b"application/vnd.oms.message+json"
"""Of one message in this form, as the body of a response or of a callback."""
FORM: Final = (b"x-oms-form", b"json")
"""The header that says so: a message may have any content type."""
PIECE: Final = 32 << 10
"""Bytes of an array that are read at once, and more up to the end of a message."""
VALUES_MAX: Final = 16384
"""Values that msgspec, which cannot be interrupted, reads at once, besides strings of any length."""
_BYTES_OF_CHARACTER: Final = 4
"""In UTF-8, at most."""
_TOO_MANY: Final = "A batch has at most {} messages; this one has more."
_between: Final = re.compile(rb"\}[ \t\r\n]*+,[ \t\r\n]*+\{").search
"""Finds what looks like the end of an object and the start of the next one; inside a string it is neither."""


def _section_type(section: Section, *, strict: bool) -> type[Struct]:
    """Return the type of a section; its members are in the order of `Message`. Only the destination is required.

    `strict`: only what a client may send, so no null, no other member and no number out of range.
    """
    members = [(f.name, f.attribute, _kind(f, strict=strict)) for f in FIELDS if f.section == section]
    if section == "extensionHeader":
        members += [(name, attribute, str) for name, attribute in CARRIED]
    return defstruct(
        section,
        [
            (attribute, kind, field(name=name))
            if attribute == "destination"
            else (attribute, kind if strict else kind | None, field(name=name, default=None))
            for name, attribute, kind in members
        ],
        forbid_unknown_fields=strict,
        omit_defaults=True,
        gc=False,
    )


def _kind(f: Field, *, strict: bool) -> Any:  # noqa: ANN401 - msgspec takes any annotation
    if f.maximum is None:
        return Annotated[str, Meta(min_length=1)] if strict and f.required else str
    return Annotated[int, Meta(ge=0, le=f.maximum)] if strict else int


_Extension: Final = _section_type("extensionHeader", strict=True)
_PropertyName = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX // _BYTES_OF_CHARACTER)]
_Item: Final = defstruct(
    "Item",
    [
        ("header", _section_type("header", strict=True)),
        ("extension", _Extension, field(name="extensionHeader", default=None)),
        ("properties", Annotated[dict[_PropertyName, str], Meta(max_length=MEMBERS_MAX)], None),
        ("data", bytes, None),
        ("version", Literal["1.0.0"], None),
    ],
    forbid_unknown_fields=True,
    gc=False,
)
"""A message as clients send it."""
_WrittenHeader: Final = _section_type("header", strict=False)
_WrittenExtension: Final = _section_type("extensionHeader", strict=False)
_MEMBERS_OF_LINE: Final[list[tuple[str, Any] | tuple[str, Any, Any]]] = [
    ("header", _WrittenHeader),
    ("extension", _WrittenExtension, field(name="extensionHeader")),
    ("properties", dict[str, str]),
    ("data", bytes),
    ("receipt", str | None, None),
    ("lease_until", int, field(name="leaseUntil", default=0)),
]
Line: Final = defstruct("Line", _MEMBERS_OF_LINE, gc=False)
"""A message as a bridge writes it, in a push stream with its receipt; to read it, of any version."""
_WrittenLine: Final = defstruct(
    "Line", _MEMBERS_OF_LINE, omit_defaults=True, gc=False, tag_field="version", tag="1.0.0"
)
"""The same, to write it."""
_EXTENSION_AT: Final = 2 + len(_WrittenHeader.__struct_fields__)
"""Index in a `Message` of the first member of `extensionHeader`. Destination, body and properties come first."""
_encoder: Final = Encoder()
_encode_ascii: Final = json.JSONEncoder(separators=(",", ":")).encode
_numbers_of: Final = itemgetter(*(FIELD_INDEX[f.attribute] for f in FIELDS if f.maximum is not None))
"""The values of the fields of a message that are numbers; None: not set."""
_decode: Final[Callable[[bytes], list[Any]]] = Decoder(list[_Item]).decode  # type: ignore[valid-type]
_decode_lines: Final[Callable[[bytes], list[Any]]] = Decoder(_Item).decode_lines
_NO_EXTENSION: Final = astuple(_Extension())


def decode_array(raw: bytes, limit: int) -> Steps[list[Message | BridgeError]]:
    """Return the messages of an array, or the error of each that is invalid.

    Raises `BodyInvalid` if it is not a JSON array, `BodyTooLarge` if it has more than `limit` messages,
    `HeadersTooLarge` if one has far more members than any message.
    """
    raw = raw.removeprefix(BOM_UTF8)
    start = len(raw) - len(raw.lstrip(WHITE))
    if not raw.startswith(b"[", start):
        raise BodyInvalid("The body is not a JSON array of messages.")
    results: list[Message | BridgeError] = []
    at = yield from _read_pieces(raw, start + 1, results, limit)
    if not (at == len(raw.rstrip(WHITE)) - 1 and raw.startswith(b"]", at)):
        yield from _read_rest(raw, at, results, limit)
    return results


def _read_pieces(raw: bytes, at: int, results: list[Message | BridgeError], limit: int) -> Steps[int]:
    """Append what pieces of the array have from `at` on. Returns where the piece begins that only `split` can read."""
    end = len(raw.rstrip(WHITE)) - 1
    while at < end and (piece := _next_piece(raw, at, end)) is not None:
        array = b"[%b]" % raw[at : piece.end]
        if (messages := decode_messages(array)) is not None:
            results += messages
        elif (texts := _texts_of(array)) is not None and len(results) + len(texts) <= limit:
            for text in texts:
                results.append(_decode_element(bytes(text)))
                yield
        else:
            break
        if len(results) > limit:
            raise BodyTooLarge(_TOO_MANY.format(limit))
        at = piece.next
        yield
    return at


def _read_rest(raw: bytes, at: int, results: list[Message | BridgeError], limit: int) -> Steps[None]:
    """Append what elements of the array have from `at` on. Raises as `decode_array`."""
    if len(results) == limit:
        raise BodyTooLarge(_TOO_MANY.format(limit))
    too_many = _TOO_MANY.format(limit)
    elements, wrong = yield from split(raw, at, limit - len(results), too_many, commas_max=2 * MEMBERS_MAX)
    for element in elements:
        results.append(_decode_element(raw, element.start, element.end))
        yield
    if wrong is not None:
        raise json_errors.not_json(wrong[0], raw, wrong[1])


def _texts_of(array: bytes) -> list[Raw] | None:
    try:
        return texts_of(array)
    except (ValueError, RecursionError):
        return None


class _Piece(NamedTuple):
    """Elements of an array that are read at once."""

    end: int
    next: int
    """Where the next element begins, or the end of the array."""


def _next_piece(raw: bytes, at: int, end: int) -> _Piece | None:
    """Return elements from `at` on; None: they may have too many values."""
    between = _between(raw, at + PIECE, end)
    piece = _Piece(end, end) if between is None else _Piece(between.start() + 1, between.end() - 1)
    is_small = piece.end - at <= 2 * PIECE or raw.count(b",", at, piece.end) <= VALUES_MAX
    return piece if is_small else None


def _decode_element(raw: bytes, start: int = 0, end: int | None = None) -> Message | BridgeError:
    """Return the message of an element, or its error. Raises `BodyInvalid` if it is not JSON."""
    if messages := decode_messages(b"[%b]" % raw[start:end]):
        return messages[0]
    item = json_errors.read(raw, start, end)
    try:
        return json_errors.decode(item)
    except BridgeError as error:
        return error


def decode_line(text: bytes) -> Steps[Message]:
    """Return the message of one line. Raises as `json_errors.decode`, and `BodyInvalid` if it is not JSON."""
    if len(text) <= PIECE:
        return json_errors.decode(json_errors.read(text))
    [message] = yield from decode_array(b"[%b]" % text, 1)
    if isinstance(message, BridgeError):
        raise message
    return message


def encode_array(messages: Iterable[Message]) -> bytes:
    """Write an array of messages."""
    return b"[%b]" % b",".join(map(encode, messages))


def decode_messages(array: bytes) -> list[Message] | None:
    """Return the messages of a JSON array; None: there is an error, or a form that only `json_errors` reads."""
    try:
        items = _decode(array)
    except (ValueError, RecursionError):
        return None
    return _messages(items, array)


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
    return _messages(items, lines) if len(items) == count else None


def _messages(items: list[Any], text: bytes) -> list[Message] | None:
    """Return the messages of items that were read from a text; None: as for `decode_messages`."""
    messages, strings = [], 0
    for item in items:
        destination, *header = astuple(item.header)
        extension = item.extension
        more = _NO_EXTENSION if extension is None else astuple(extension)
        message = Message._make((destination, item.data or b"", item.properties or {}, *header, *more))
        if message.traceparent is None:
            if message.tracestate is not None:
                return None
        elif not is_traceparent(message.traceparent.encode()):
            return None
        strings += _strings(item, message)
        messages.append(message)
    # msgspec reads a repeated member without an error, so that fewer strings are left than were given.
    return messages if 2 * strings == _quotes(text) else None


def _strings(item: Any, message: Message) -> int:  # noqa: ANN401 - of a type made above
    """Count the strings of a message: the names of its members, and the values that are no numbers."""
    numbers: tuple[int | None, ...] = _numbers_of(message)
    names = len(FIELDS) + len(CARRIED) - message.count(None) + len(message.properties)
    names += (item.data is not None) + (item.version is not None)
    sections = 1 + (item.extension is not None) + (item.properties is not None)
    return 2 * names + sections - (len(numbers) - numbers.count(None))


def _quotes(text: bytes) -> int:
    """Count the quotation marks that begin or end a string of JSON."""
    escaped = text.replace(b"\\\\", b"").count(b'\\"') if b"\\" in text else 0
    return text.count(b'"') - escaped


def encode(message: Message, receipt: str | None = None, lease_until: int = 0) -> bytes:
    """Write one message as a JSON object in ASCII on one line, without members that are not set."""
    return _encode(_to_line(message, receipt, lease_until))


def encode_lines(messages: Iterable[tuple[Message, str | None, int]]) -> bytes:
    """Write messages, each with its receipt and the end of its lease as `encode` does, on lines that all end."""
    lines = [_to_line(*each) for each in messages]
    return _in_ascii(_encoder.encode_lines, lines) or b"".join([_encode(line) + b"\n" for line in lines])


def _to_line(message: Message, receipt: str | None, lease_until: int) -> Any:  # noqa: ANN401 - a `_WrittenLine`
    return _WrittenLine(
        _WrittenHeader(message[0], *message[3:_EXTENSION_AT]),
        _WrittenExtension(*message[_EXTENSION_AT:]),
        dict(message.properties),
        message.body,
        receipt,
        lease_until,
    )


def _encode(line: Any) -> bytes:  # noqa: ANN401 - a `_WrittenLine`
    return _in_ascii(_encoder.encode, line) or _encode_ascii(to_builtins(line)).encode("ascii")


def _in_ascii(write: Callable[[Any], bytes], value: Any) -> bytes | None:  # noqa: ANN401 - a `_WrittenLine`, or several
    """Return what msgspec writes, which does not escape; None: it is not in ASCII, or msgspec cannot write it."""
    try:
        text = write(value)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair or a number of 70 bits, from a broker
        return None
    return text if text.isascii() else None
