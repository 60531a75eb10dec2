"""The specification's own JSON form of a message, and arrays of it, both directions."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeaderInvalid, HeaderMissing, HeaderRepeated
from bridge.message import FIELDS, Field, Message
from bridge.wire.headers import check_version
from bridge.wire.text import NAME_BYTES_MAX, printable
from bridge.wire.trace import is_traceparent

_CARRIED: Final = (("contentType", "content_type"), ("traceparent", "traceparent"), ("tracestate", "tracestate"))
"""What HTTP carries in headers of its own; here they stand among the extension headers."""
_FIELDS: Final[Mapping[str, Mapping[str, Field]]] = {
    section: {f.name: f for f in FIELDS if f.section == section} for section in ("header", "extensionHeader")
}
_PLACES: Final = tuple(
    (section, tuple((name, Message._fields.index(attribute)) for name, attribute in members))
    for section, members in (
        ("header", tuple((name, f.attribute) for name, f in _FIELDS["header"].items())),
        ("extensionHeader", (*((name, f.attribute) for name, f in _FIELDS["extensionHeader"].items()), *_CARRIED)),
    )
)
"""Where each member stands in a `Message`: by index the whole form takes 2.3 us, by name 4.1."""
_MEMBERS: Final = frozenset(("version", "header", "extensionHeader", "properties", "data"))


class _Fraction(str):
    """A number with a fraction or an exponent, kept as it was written: an amount of 1.10 must not become 1.1."""

    __slots__ = ()


def decode_array(raw: bytes, limit: int) -> list[Message | BridgeError]:
    """Read an array of at most limit messages, each judged on its own.

    Raises `BodyInvalid` when it is no JSON array, `BodyTooLarge` beyond the limit.
    """
    array = read(raw)
    if not isinstance(array, list):
        raise BodyInvalid("The body is not a JSON array of messages.")
    if len(array) > limit:
        raise BodyTooLarge(f"A batch has at most {limit} messages; this one has {len(array)}.")
    results: list[Message | BridgeError] = []
    for item in array:
        try:
            results.append(decode(item))
        except BridgeError as error:
            results.append(error)
    return results


def encode_array(messages: list[Message]) -> bytes:
    """Write an array of messages."""
    return json.dumps([encode(m) for m in messages], separators=(",", ":")).encode()


def read(raw: bytes) -> object:
    """Read JSON without losing a digit or a repeated member. Raises `BodyInvalid`."""
    try:
        return json.loads(raw, parse_float=_Fraction, parse_constant=_no_constant, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise BodyInvalid(f"The body is not JSON: {str(error)[:200]}.") from None


def decode(item: object) -> Message:
    """Read one message. Raises a `Rejected` that names the member."""
    if isinstance(item, dict) and item.keys() == {"message"}:
        item = item["message"]  # the specification's own example wraps it so
    if isinstance(item, _Repeated):
        raise item.error()
    if not isinstance(item, dict):
        raise BodyInvalid("A message is a JSON object with header, extensionHeader, properties and data.")
    if unknown := item.keys() - _MEMBERS:
        raise HeaderInvalid(f"{_shown(min(unknown))} is not a member of a message; {', '.join(sorted(_MEMBERS))} are.")
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


def encode(message: Message) -> dict[str, object]:
    """Write one message; members that nobody set are left out."""
    return {**encode_head(message), "data": base64.b64encode(message.body).decode("ascii")}


def encode_head(message: Message) -> dict[str, object]:
    """Write all of it but the body."""
    item: dict[str, object] = {"version": "1.0.0"}
    for section, members in _PLACES:
        item[section] = {name: value for name, place in members if (value := message[place]) is not None}
    item["properties"] = dict(message.properties)
    return item


def _decode_section(
    section: str, fields: Mapping[str, Field], given: Mapping[str, object], values: dict[str, Any]
) -> None:
    carried = dict(_CARRIED) if section == "extensionHeader" else {}
    for name, value in given.items():
        where = f"{section}.{name}"
        if (field := fields.get(name)) is not None:
            values[field.attribute] = _decode_field(where, field, value)
        elif name in carried:
            values[carried[name]] = _text(where, value)
        else:
            raise HeaderInvalid(f"{_shown(where)} is not a field; {', '.join(sorted([*fields, *carried]))} are.")


def _decode_field(where: str, field: Field, value: object) -> str | int:
    if field.maximum is None:
        text = _text(where, value)
        if not text and field.required:
            raise HeaderInvalid(f"{where}: the value is empty.")
        return text
    if type(value) is not int or not 0 <= value <= field.maximum:
        raise HeaderInvalid(f"{where}: a whole number from 0 to {field.maximum} is allowed.")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or isinstance(value, _Fraction):
        raise HeaderInvalid(f"{_shown(where)}: a string is allowed.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HeaderInvalid(f"{_shown(where)}: half a surrogate pair is not text.") from None
    return value


def _object(where: str, value: object) -> Mapping[str, object]:
    if isinstance(value, _Repeated):
        raise value.error()
    if not isinstance(value, dict):
        raise HeaderInvalid(f"{where}: an object is allowed.")
    return value


def _property_name(key: str) -> str:
    size = len(_text("properties", key).encode())
    if not 0 < size <= NAME_BYTES_MAX:
        raise HeaderInvalid(f"properties: a property name has 1 to {NAME_BYTES_MAX} bytes; this one has {size}.")
    return key


def _property_value(key: str, value: object) -> str:
    """A `Numeric` of the specification becomes its JSON text: header values are text on every way out."""
    if isinstance(value, _Fraction) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    return _text(f"properties.{key}", value)


def _decode_data(data: object) -> bytes:
    if data is None or data == {}:  # the specification's own example shows {} for an empty body
        return b""
    if not isinstance(data, str):
        raise BodyInvalid("data: a base64 string is allowed.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BodyInvalid("data: the string is not valid base64.") from None


class _Repeated:
    """What became of a JSON object that names a member twice: readers differ on which one counts, so none does."""

    def __init__(self, name: str) -> None:
        self.name = name

    def error(self) -> HeaderRepeated:
        """Return what is wrong with it."""
        return HeaderRepeated(f"{_shown(self.name)} came more than once; send it once.")


def _members(pairs: list[tuple[str, object]]) -> dict[str, object] | _Repeated:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    counts = Counter(name for name, _ in pairs)
    return _Repeated(counts.most_common(1)[0][0])


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _shown(text: str) -> str:
    return printable(text.encode("utf-8", "backslashreplace"))
