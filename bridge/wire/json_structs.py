"""The JSON form as typed structures of msgspec: reads many messages at once, if nothing about them is unusual."""

from collections.abc import Callable
from operator import itemgetter
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, defstruct, field
from msgspec.json import Decoder
from msgspec.structs import astuple

from bridge.message import FIELDS, Field, Message, Section
from bridge.wire.header_text import NAME_BYTES_MAX, is_traceparent

CARRIED: Final = (("contentType", "content_type"), ("traceparent", "traceparent"), ("tracestate", "tracestate"))
"""Ordinary HTTP headers: in the JSON form, they are members of `extensionHeader`."""
_PROPERTIES_MAX: Final = 4096
"""More than a consumer can receive as headers."""
_BYTES_OF_CHARACTER: Final = 4
"""In UTF-8, at most."""
_numbers_of: Final = itemgetter(*(Message._fields.index(f.attribute) for f in FIELDS if f.maximum is not None))
"""The values of the fields of a message that are numbers; None: not set."""


def section_type(section: Section, *, strict: bool) -> type[Struct]:
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
        gc=False,
    )


def _kind(f: Field, *, strict: bool) -> Any:  # noqa: ANN401 - msgspec takes any annotation
    if f.maximum is None:
        return Annotated[str, Meta(min_length=1)] if strict and f.required else str
    return Annotated[int, Meta(ge=0, le=f.maximum)] if strict else int


_Extension: Final = section_type("extensionHeader", strict=True)
_PropertyName = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX // _BYTES_OF_CHARACTER)]
_Item: Final = defstruct(
    "_Item",
    [
        ("header", section_type("header", strict=True)),
        ("extension", _Extension, field(name="extensionHeader", default=None)),
        ("properties", Annotated[dict[_PropertyName, str], Meta(max_length=_PROPERTIES_MAX)], None),
        ("data", bytes, None),
        ("version", Literal["1.0.0"], None),
    ],
    forbid_unknown_fields=True,
    gc=False,
)
_decode: Final[Callable[[str], list[Any]]] = Decoder(list[_Item]).decode  # type: ignore[valid-type]
_decode_lines: Final[Callable[[bytes], list[Any]]] = Decoder(_Item).decode_lines
_NO_EXTENSION: Final = astuple(_Extension())


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
