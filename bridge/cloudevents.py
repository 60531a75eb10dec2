"""The attributes of a CloudEvent and the fields of a message, both directions. Pure.

Specification: CloudEvents 1.0.2, https://github.com/cloudevents/spec. Attributes that are no field are properties under
their own names.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from bridge.errors import HeaderInvalid, HeaderMissing, HeadersTooLarge
from bridge.message import FIELD_INDEX, FIELDS, INTEGER_MAX, Message

SPEC_VERSION: Final = "1.0"
REQUIRED: Final = ("specversion", "id", "source", "type")
DEFAULT_TYPE: Final = "io.openmessaging.message"
"""The type of a message that has no property `type`."""
DEFAULT_SOURCE: Final = "urn:openmessaging-bridge:destination:"
"""The source of a message that has no property `source`; the destination follows."""
OTHER_PROPERTIES: Final = "omsproperties"
"""The attribute with the properties that cannot be attributes, as a JSON object."""
OTHER_FIELDS: Final = "omsfields"
"""The attribute with the fields whose text cannot be an attribute, as a JSON object by their names in the JSON form."""
RECEIPT: Final = "omsreceipt"
LEASE_UNTIL: Final = "omsleaseuntil"

Attributes = dict[str, str | int]


class _Field(NamedTuple):
    """A field of a message as an attribute."""

    name: str
    position: int
    """Index of the field in a `Message`."""
    maximum: int | None
    """None: it is text."""


_NAMES: Final = {"messageId": "id", "bornTimestamp": "time", "messageKey": "partitionkey"}
_HTTP_HEADERS: Final = {"datacontenttype": "content_type", "traceparent": "traceparent", "tracestate": "tracestate"}
_TABLE: Final = tuple(
    _Field(name, FIELD_INDEX[attribute], maximum)
    for name, attribute, maximum in (
        *((_NAMES.get(f.name, f"oms{f.name.lower()}"), f.attribute, f.maximum) for f in FIELDS),
        *((name, attribute, None) for name, attribute in _HTTP_HEADERS.items()),
    )
)
_FIELD_BY_NAME: Final = {field.name: field for field in _TABLE}
FIELD_NAMES: Final = frozenset(_FIELD_BY_NAME)
"""The attributes that are fields."""
_SET_ON_DELIVERY: Final = frozenset(
    {"omsdestination", "omspartition", "omsstoretimestamp", "omsstorehost", "omsdeliverycount", RECEIPT, LEASE_UNTIL}
)
"""Attributes that a produce ignores, so that a delivered event can be produced again."""
_IN_OTHER_FIELDS: Final = {"datacontenttype": ("contentType", "content_type")} | {
    name: (field.name, field.attribute)
    for field in FIELDS
    if field.maximum is None
    and field.name != "messageId"
    and (name := _NAMES.get(field.name, f"oms{field.name.lower()}")) not in _SET_ON_DELIVERY
}
"""The name in `OTHER_FIELDS`, and the attribute of `Message`, of each field that can be there; by its attribute."""
_OTHER_FIELD_BY_NAME: Final = dict(_IN_OTHER_FIELDS.values())
_RESERVED: Final = {"specversion", "data", OTHER_PROPERTIES, OTHER_FIELDS} | _SET_ON_DELIVERY | _FIELD_BY_NAME.keys()
"""Names that a property cannot have as an attribute."""
_NOT_EMPTY: Final = {"source", "type", "subject", "dataschema"} | _FIELD_BY_NAME.keys()

NAME_MAX: Final = 249
"""Characters of an attribute's name, as of a property's."""
_NAME: Final = re.compile(r"[a-z0-9]{1,249}")
_FORBIDDEN: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""Characters that no attribute has ("Type System"): control characters, surrogates, non-characters."""
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+ *(;[\x20-\x7e]*)?", re.ASCII)
_OTHERS_MAX: Final = 64 << 10
"""Characters of a JSON object in an attribute: more than a consumer can receive, and parsing cannot be interrupted."""
_DIGITS_MAX: Final = 19
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TIME_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, ms since 1970: RFC 3339 has no later time."""
_RFC_3339: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:)(\d\d)((\.\d+)?([Zz]|[+-]\d\d:\d\d))", re.ASCII)
_DAY: Final = 86_400_000
_SECOND: Final = 1000
_OCTETS: Final = "application/octet-stream"


def to_attributes(message: Message) -> Attributes:
    """Return the attributes of a message as an event, which `from_attributes` accepts.

    Numbers beyond 32 bits are texts: no attribute holds them. A text that no attribute can hold is in `omsfields` or
    `omsproperties`.
    """
    attributes: Attributes = {
        "specversion": SPEC_VERSION,
        "id": "",
        "source": DEFAULT_SOURCE + message.destination,
        "type": DEFAULT_TYPE,
    }
    other_fields = _add_fields(attributes, message)
    other_properties: dict[str, str] = {}
    for name, text in message.properties.items():
        target: dict[str, Any] = attributes if is_attribute(name, text) else other_properties
        target[name] = text
    if other_fields:
        attributes[OTHER_FIELDS] = _write_object(other_fields)
    if other_properties:
        attributes[OTHER_PROPERTIES] = _write_object(other_properties)
    if message.body and "datacontenttype" not in attributes:
        attributes["datacontenttype"] = _OCTETS
    return attributes


def _add_fields(attributes: Attributes, message: Message) -> dict[str, str]:
    """Add the fields of a message to the attributes. Returns the texts that no attribute can hold, for `omsfields`."""
    others: dict[str, str] = {}
    for name, position, maximum in _TABLE:
        value: Any = message[position]
        if value is None:
            continue
        if name == "time":
            if 0 <= value <= _TIME_MAX:
                attributes[name] = format_time(value)
        elif maximum is not None:
            if 0 <= value <= maximum:
                attributes[name] = str(value) if maximum > INTEGER_MAX else value
        elif _can_hold(name, value):
            attributes[name] = value
        elif name == "id":  # an event needs one
            attributes[name] = _FORBIDDEN.sub(lambda found: quote(found[0], errors="replace"), value)
        elif name in _IN_OTHER_FIELDS:
            others[_IN_OTHER_FIELDS[name][0]] = value
    return others


class EventParts(NamedTuple):
    """The attributes of an event as they are in a message."""

    fields: dict[str, Any]
    """By their attribute of `Message`; also content_type, traceparent and tracestate, of which none is checked."""
    properties: dict[str, str]


def from_attributes(attributes: Mapping[str, object], prefix: str = "") -> EventParts:
    """Return fields and properties. A value of None means that the attribute is not set.

    `prefix` stands before each name in errors. Raises `HeaderMissing`, `HeadersTooLarge`, or `HeaderInvalid` for a name
    or a value that is not allowed, or that no message can hold.
    """
    texts = {
        name: _text(prefix + name, value)
        for name, value in attributes.items()
        if value is not None and _check_name(name, prefix)
    }
    for name in REQUIRED:
        if name not in texts:
            raise HeaderMissing(f"{prefix}{name} is required: a CloudEvent has {', '.join(REQUIRED)}.")
    if (version := texts.pop("specversion")) != SPEC_VERSION:
        raise HeaderInvalid(f"{prefix}specversion: {version[:20]!a} is not supported; {SPEC_VERSION} is.")
    fields: dict[str, Any] = {}
    other_fields = _read_object(prefix, OTHER_FIELDS, texts.pop(OTHER_FIELDS, None))
    properties = _read_object(prefix, OTHER_PROPERTIES, texts.pop(OTHER_PROPERTIES, None))
    for name, text in texts.items():
        if name in _SET_ON_DELIVERY:
            continue
        if not text and name in _NOT_EMPTY:
            raise HeaderInvalid(f"{prefix}{name}: the value is empty.")
        field = _FIELD_BY_NAME.get(name)
        if field is None:
            properties[name] = text
        else:
            fields[Message._fields[field.position]] = _field_value(prefix, field, text)
    for name, text in other_fields.items():
        if name not in _OTHER_FIELD_BY_NAME:
            raise HeaderInvalid(f"{prefix}{OTHER_FIELDS} has only {', '.join(_OTHER_FIELD_BY_NAME)}.")
        fields[_OTHER_FIELD_BY_NAME[name]] = text
    return EventParts(fields, properties)


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of an RFC 3339 time; smaller parts are cut. Raises `ValueError`.

    A leap second, 23:59:60 in UTC, is the second after it, as in POSIX.
    """
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError("the value is not a time of RFC 3339, such as 2026-11-22T18:30:00Z")
    minute, second, rest = match[1], match[2], match[3]
    leap = second == "60"
    written = f"{minute}59{rest}" if leap else text
    milliseconds = (datetime.fromisoformat(written.upper()) - _EPOCH) // _MILLISECOND + leap * _SECOND
    if leap and milliseconds % _DAY >= _SECOND:
        raise ValueError("a leap second is only at 23:59:60 in UTC")
    if milliseconds < 0:
        raise ValueError("a message cannot be older than 1970")
    return milliseconds


def format_time(milliseconds: int) -> str:
    """Return the RFC 3339 time of milliseconds since 1970, in UTC; at most the end of the year 9999."""
    moment = (_EPOCH + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds") + "Z"


def is_attribute(name: str, text: str) -> bool:
    """Whether a property can be an attribute of its name."""
    if name in _RESERVED or _NAME.fullmatch(name) is None or (not text and name in _NOT_EMPTY):
        return False
    return text.isprintable() or _FORBIDDEN.search(text) is None


def _can_hold(name: str, text: str) -> bool:
    """Whether the attribute of a field can hold a text."""
    if name == "datacontenttype":
        return _MEDIA_TYPE.fullmatch(text) is not None
    return bool(text) and (text.isprintable() or _FORBIDDEN.search(text) is None)


def _check_name(name: str, prefix: str) -> bool:
    if _NAME.fullmatch(name) is None:
        shown = name[:40].encode("unicode_escape").decode("ascii")
        raise HeaderInvalid(
            f"{prefix}{shown}: the name of an attribute consists of a to z and 0 to 9, at most {NAME_MAX} of them."
        )
    if name == "data":
        raise HeaderInvalid(f"{prefix}data: no attribute has this name.")
    return True


def _text(name: str, value: object) -> str:
    """Return the canonical text of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
        return str(value)
    if not isinstance(value, str):
        raise HeaderInvalid(f"{name}: an attribute is a string, a boolean or an integer of 32 bits.")
    if not value.isprintable() and _FORBIDDEN.search(value) is not None:
        raise HeaderInvalid(f"{name}: an attribute has no control characters.")
    return value


def _field_value(prefix: str, field: _Field, text: str) -> str | int:
    if field.name == "time":
        try:
            return parse_time(text)
        except ValueError as error:
            raise HeaderInvalid(f"{prefix}time: {error}.") from None
    if field.name == "datacontenttype" and _MEDIA_TYPE.fullmatch(text) is None:
        raise HeaderInvalid(f"{prefix}datacontenttype is a media type, such as application/json.")
    if field.maximum is None:
        return text
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or (number := int(text)) > field.maximum:
        raise HeaderInvalid(f"{prefix}{field.name} must be a whole number from 0 to {field.maximum}.")
    return number


def _write_object(texts: Mapping[str, str]) -> str:
    """Write texts as a JSON object in ASCII; half a surrogate pair, from a broker, becomes a question mark."""
    written = json.dumps(texts)
    if "\\ud" not in written:
        return written
    return json.dumps(json.loads(json.dumps(texts, ensure_ascii=False).encode("utf-8", "replace")))


def _read_object(prefix: str, attribute: str, text: str | None) -> dict[str, str]:
    """Read `omsfields` or `omsproperties`. A property that is an attribute, too, has the value of the attribute."""
    if text is None:
        return {}
    if len(text) > _OTHERS_MAX:
        raise HeadersTooLarge(f"{prefix}{attribute} has {len(text)} characters; at most {_OTHERS_MAX} are allowed.")
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(_is_property(name, value) for name, value in found.items()):
        raise HeaderInvalid(f"{prefix}{attribute} must be a JSON object whose values are strings.")
    return found


def _is_property(name: str, value: object) -> bool:
    return isinstance(value, str) and 0 < len(name.encode()) <= NAME_MAX
