"""Reads the JSON form of one message with the standard library, to say exactly what is wrong with it.

`jsonform` uses it for what msgspec refuses: errors, and rare forms, such as properties that are numbers.
"""

import base64
import binascii
import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import BodyInvalid, HeaderInvalid, HeaderMissing, HeaderRepeated, HeadersTooLarge
from bridge.message import FIELDS, Field, Message
from bridge.wire.header_text import NAME_BYTES_MAX, did_you_mean, is_traceparent, printable
from bridge.wire.headers import check_version
from bridge.wire.json_elements import MEMBERS_MAX

CARRIED: Final = (("contentType", "content_type"), ("traceparent", "traceparent"), ("tracestate", "tracestate"))
"""Ordinary HTTP headers: in the JSON form, they are members of `extensionHeader`."""
_FIELDS: Final[Mapping[str, Mapping[str, Field]]] = {
    section: {f.name: f for f in FIELDS if f.section == section} for section in ("header", "extensionHeader")
}
_KNOWN: Final = {
    name.lower(): f"{section}.{name}"
    for section, names in (("extensionHeader", [name for name, _ in CARRIED]), *_FIELDS.items())
    for name in names
}
"""The full names of members by their last part, to find the one that a mistyped member means."""
_DIGITS_MAX: Final = 20
"""Characters of the numbers that may be values of fields, with a sign."""
_NUMBER_MAX: Final = 4300
"""Characters of the longest whole number."""
_MEMBERS: Final = frozenset(("version", "header", "extensionHeader", "properties", "data"))


class _NumberText(str):
    """The text of a number with a fraction, an exponent or many digits: 1.10 must not become 1.1."""

    __slots__ = ()


def read(raw: bytes, start: int = 0, end: int | None = None) -> object:
    """Parse JSON, or an element of an array; fractions keep their digits, repeated members are noticed.

    Raises `BodyInvalid`, which names the byte or the character of `raw`.
    """
    try:
        return _DECODER.decode(raw[start:end].removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        wrong = f"{error.reason} at byte {start + error.start}"
    except json.JSONDecodeError as error:
        what = error.msg if end is None or error.msg != "Extra data" else "Expecting ',' delimiter"
        wrong = f"{what}, character {_character(raw, start) + error.pos}"
    except (ValueError, RecursionError) as error:
        wrong = str(error)[:200]
    raise BodyInvalid(f"The body is not JSON: {wrong}.")


def not_json(what: str, raw: bytes, place: int) -> BodyInvalid:
    """Return the error that names a byte of the body as a character."""
    return BodyInvalid(f"The body is not JSON: {what}, character {_character(raw, place)}.")


def _character(raw: bytes, place: int) -> int:
    return len(raw[:place].decode("utf-8", "surrogatepass"))


def decode(item: object) -> Message:
    """Return one message. Raises a `Rejected` that names the member."""
    if isinstance(item, dict) and item.keys() == {"message"}:
        item = item["message"]  # the specification's example has this wrapper
    if isinstance(item, _Repeated):
        raise item.error()
    if not isinstance(item, dict):
        raise BodyInvalid("A message is a JSON object with header, extensionHeader, properties and data.")
    _check_members("A message", item)
    if unknown := item.keys() - _MEMBERS:
        hint = did_you_mean(min(unknown), {name.lower(): name for name in _MEMBERS})
        known = ", ".join(sorted(_MEMBERS))
        raise HeaderInvalid(f"unknown member `{_shown(min(unknown))}`{hint or f'; a message has {known}.'}")
    if "version" in item:
        check_version(_text("version", item["version"]))
    values: dict[str, Any] = {}
    for section, fields in _FIELDS.items():
        _decode_section(section, fields, _object(section, item.get(section, {})), values)
    if "destination" not in values:
        raise HeaderMissing("header.destination is required: the name of the queue or topic.")
    if "traceparent" in values and not is_traceparent(values["traceparent"].encode()):
        del values["traceparent"]
    if "traceparent" not in values:
        values.pop("tracestate", None)
    properties = {
        _property_name(key): _property_value(key, value)
        for key, value in _object("properties", item.get("properties", {})).items()
    }
    return Message(body=_decode_data(item.get("data")), properties=properties, **values)


def _decode_section(
    section: str, fields: Mapping[str, Field], given: Mapping[str, object], values: dict[str, Any]
) -> None:
    carried = dict(CARRIED) if section == "extensionHeader" else {}
    for name, value in given.items():
        where = f"{section}.{name}"
        if (field := fields.get(name)) is not None:
            values[field.attribute] = _decode_field(where, field, value)
        elif name in carried:
            values[carried[name]] = _text(where, value)
        else:
            hint = did_you_mean(name, _KNOWN) or f"; {section} has {', '.join(sorted([*fields, *carried]))}."
            raise HeaderInvalid(f"unknown member `{_shown(where)}`{hint}")


def _decode_field(where: str, field: Field, value: object) -> str | int:
    if field.maximum is None:
        text = _text(where, value)
        if not text and field.required:
            raise HeaderInvalid(f"{where}: the value is empty.")
        return text
    if type(value) is not int or not 0 <= value <= field.maximum:
        raise HeaderInvalid(f"{where} must be a whole number from 0 to {field.maximum}.")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or isinstance(value, _NumberText):
        raise HeaderInvalid(f"{_shown(where)} must be a string.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HeaderInvalid(f"{_shown(where)}: the string contains an unpaired surrogate.") from None
    return value


def _object(where: str, value: object) -> Mapping[str, object]:
    if isinstance(value, _Repeated):
        raise value.error()
    if not isinstance(value, dict):
        raise HeaderInvalid(f"{where} must be an object.")
    _check_members(where, value)
    return value


def _check_members(where: str, value: Mapping[str, object]) -> None:
    if len(value) > MEMBERS_MAX:
        raise HeadersTooLarge(f"{where} has at most {MEMBERS_MAX} members.")


def _property_name(key: str) -> str:
    size = len(_text("properties", key).encode())
    if not 0 < size <= NAME_BYTES_MAX:
        raise HeaderInvalid(f"properties: a property name has 1 to {NAME_BYTES_MAX} bytes; this one has {size}.")
    return key


def _property_value(key: str, value: object) -> str:
    """Return the text; a number (`Numeric` in the specification) becomes its JSON text, as header values are text."""
    if isinstance(value, _NumberText) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    return _text(f"properties.{key}", value)


def _decode_data(data: object) -> bytes:
    if data is None or data == {}:  # the specification's example has {} for an empty body
        return b""
    if not isinstance(data, str):
        raise BodyInvalid("data must be a base64 string.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BodyInvalid("data: the string is not valid base64.") from None


class _Repeated:
    """A JSON object that names a member twice. It is refused: parsers differ on which value is valid."""

    def __init__(self, name: str) -> None:
        self.name = name

    def error(self) -> HeaderRepeated:
        """Return the error that names the member."""
        return HeaderRepeated(f"{_shown(self.name)} is given more than once; send it once.")


def _members(pairs: list[tuple[str, object]]) -> dict[str, object] | _Repeated:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    counts = Counter(name for name, _ in pairs)
    return _Repeated(counts.most_common(1)[0][0])


def _whole(text: str) -> int | _NumberText:
    """Return a whole number: as text if no field can have it, as Python converts many digits slowly."""
    if len(text) <= _DIGITS_MAX:
        return int(text)
    if len(text) > _NUMBER_MAX:
        raise ValueError(f"a number has more than {_NUMBER_MAX} digits")
    return _NumberText(text)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _shown(text: str) -> str:
    return printable(text.encode("utf-8", "backslashreplace"))


_DECODER: Final = json.JSONDecoder(
    parse_float=_NumberText, parse_int=_whole, parse_constant=_no_constant, object_pairs_hook=_members
)
