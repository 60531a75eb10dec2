"""msgspec's types of the JSON form of a message, made from the table of fields.

They are apart from what uses them because mypyc, which compiles that, would check their fields by msgspec's own types.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, defstruct, field

from bridge.message import FIELDS, Field, Section
from bridge.wire.header_text import NAME_BYTES_MAX

CARRIED: Final = (("contentType", "content_type"), ("traceparent", "traceparent"), ("tracestate", "tracestate"))
"""Ordinary HTTP headers: in the JSON form, they are members of `extensionHeader`."""
_PROPERTIES_MAX: Final = 4096
"""More than a consumer can receive as headers."""
_BYTES_OF_CHARACTER: Final = 4
"""In UTF-8, at most."""


class NumberText(str):
    """The text of a number with a fraction, an exponent or many digits: 1.10 must not become 1.1."""

    __slots__ = ()


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


class Receipts(Struct, forbid_unknown_fields=True, gc=False):
    """The body of a request that settles messages."""

    receipts: list[str] = []


Extension: Final = _section_type("extensionHeader", strict=True)
_PropertyName = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX // _BYTES_OF_CHARACTER)]
Item: Final = defstruct(
    "Item",
    [
        ("header", _section_type("header", strict=True)),
        ("extension", Extension, field(name="extensionHeader", default=None)),
        ("properties", Annotated[dict[_PropertyName, str], Meta(max_length=_PROPERTIES_MAX)], None),
        ("data", bytes, None),
        ("version", Literal["1.0.0"], None),
    ],
    forbid_unknown_fields=True,
    gc=False,
)
"""A message as clients send it."""
WrittenHeader: Final = _section_type("header", strict=False)
WrittenExtension: Final = _section_type("extensionHeader", strict=False)
_MEMBERS_OF_LINE: Final[list[tuple[str, Any] | tuple[str, Any, Any]]] = [
    ("header", WrittenHeader),
    ("extension", WrittenExtension, field(name="extensionHeader")),
    ("properties", dict[str, str]),
    ("data", bytes),
    ("receipt", str | None, None),
    ("lease_until", int, field(name="leaseUntil", default=0)),
]
Line: Final = defstruct("Line", _MEMBERS_OF_LINE, gc=False)
"""A message as a bridge writes it, in a push stream with its receipt; to read it, of any version."""
WrittenLine: Final = defstruct("Line", _MEMBERS_OF_LINE, omit_defaults=True, gc=False, tag_field="version", tag="1.0.0")
"""The same, to write it."""
