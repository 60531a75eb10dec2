"""One message as header pairs and a body, both directions.

`parse` walks the pairs of a request or reply once and sorts them by family; `Headers.message` and `encode` are the
two halves of the single form. Names arrive in lower case, as every HTTP/2 stack and ASGI server hands them on.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from bridge.errors import (
    BridgeError,
    HeaderInvalid,
    HeaderMissing,
    HeaderRepeated,
    HeadersTooLarge,
    VersionUnsupported,
)
from bridge.message import FIELDS, Field, Message
from bridge.wire.text import decode_extended, decode_name, decode_value, encode_name, encode_value, printable
from bridge.wire.trace import is_traceparent

Pairs = Iterable[tuple[bytes, bytes]]

VERSION: Final = b"1.0.0"
FIELD_PREFIX: Final = b"x-oms-h-"
PROPERTY_PREFIX: Final = b"x-oms-p-"
PARAMETER_PREFIX: Final = b"x-oms-"

OCTETS: Final = b"application/octet-stream"
"""The media type of a body whose producer named none."""

PARAMETERS: Final = frozenset(
    (
        *("version", "require", "source", "consumerid", "ack", "waitmills", "leasemills", "delaymills"),
        *("receipt", "requestid", "credit", "maxmessages", "callbackurl", "log"),
        *("applied", "offset", "leaseuntil", "error", "retry-safe"),
    )
)
"""The rest of the x-oms- vocabulary, without its prefix: what a request asks and what a reply says."""

_FIELD_BY_NAME: Final[Mapping[bytes, Field]] = {FIELD_PREFIX + f.name.lower().encode(): f for f in FIELDS}
_PLACES: Final = tuple((Message._fields.index(f.attribute), name) for name, f in _FIELD_BY_NAME.items())
"""Where each field stands in a `Message`."""
_PARAMETER_BY_NAME: Final = {PARAMETER_PREFIX + p.encode(): p for p in PARAMETERS}
_DIGITS_MAX: Final = 19
_FIELD_OVERHEAD: Final = 32
_GROWTH: Final = 12
"""One character is up to 4 bytes of UTF-8, each of them `%xx`."""
_REST: Final = 2048
"""Bytes that the other fields of a message may take."""


class Headers(NamedTuple):
    """The headers of one request, reply or part, sorted by family."""

    fields: dict[str, Any]
    """Header fields by their attribute of `Message`."""
    properties: dict[str, str]
    parameters: dict[str, str]
    """Every other x-oms- header, by its name without the prefix."""
    plain: dict[bytes, bytes]
    """Ordinary HTTP headers. Of a repeated one the values are joined by a comma (RFC 9110 5.3)."""

    def require_version(self) -> None:
        """Raise unless `x-oms-version` is 1.x.y."""
        check_version(self.parameters.get("version"))

    def message(self, body: bytes) -> Message:
        """Build the message. Raises `HeaderMissing` without a destination."""
        fields = self.fields
        if "destination" not in fields:
            raise HeaderMissing("x-oms-h-destination is required: the name of the queue or topic.")
        plain = self.plain
        content_type = plain.get(b"content-type", OCTETS)
        if content_type != OCTETS:
            fields["content_type"] = decode_value(b"content-type", content_type)
        parent = plain.get(b"traceparent")
        if parent is not None and is_traceparent(parent):
            fields["traceparent"] = parent.decode("ascii")
            if (state := plain.get(b"tracestate")) is not None and state.isascii():
                fields["tracestate"] = state.decode("ascii")
        return Message(body=body, properties=self.properties, **fields)


def parse(pairs: Pairs) -> Headers:
    """Sort and decode header pairs. Raises `HeaderInvalid` or `HeaderRepeated`, naming the header."""
    parsed = Headers({}, {}, {}, {})
    fields, properties, parameters, plain = parsed
    for name, raw in pairs:
        field = _FIELD_BY_NAME.get(name)
        if field is not None:
            if field.attribute in fields:
                raise _repeated(name)
            fields[field.attribute] = _decode_field(field, name, raw)
        elif not name.startswith(PARAMETER_PREFIX):
            plain[name] = raw if name not in plain else plain[name] + b", " + raw
        elif name.startswith(PROPERTY_PREFIX):
            extended = name.endswith(b"*")
            key = decode_name(name[len(PROPERTY_PREFIX) : -1] if extended else name[len(PROPERTY_PREFIX) :])
            if key in properties:
                raise _repeated(name)
            properties[key] = decode_extended(name, raw) if extended else decode_value(name, raw)
        else:
            _parse_rest(name, raw, fields, parameters)
    return parsed


def encode(message: Message) -> list[tuple[bytes, bytes]]:
    """Write a message's headers. Names in lower case, values printable ASCII whatever the message holds."""
    pairs = [(b"x-oms-version", VERSION)]
    for place, name in _PLACES:
        value: Any = message[place]  # a text or a number, or nobody set it
        if value is None:
            continue
        if isinstance(value, int):
            pairs.append((name, b"%d" % value))
        else:
            extended, raw = encode_value(value)
            pairs.append((name + b"*" if extended else name, raw))
    for key, text in message.properties.items():
        name = PROPERTY_PREFIX + encode_name(key)
        extended, raw = encode_value(text)
        pairs.append((name + b"*" if extended else name, raw))
    pairs.append((b"content-type", _plain_or(message.content_type, OCTETS)))
    if (parent := _plain_or(message.traceparent, b"")) and is_traceparent(parent):
        pairs.append((b"traceparent", parent))
        if state := _plain_or(message.tracestate, b""):
            pairs.append((b"tracestate", state))
    return pairs


def check_size(message: Message, limit: int) -> None:
    """Raise `HeadersTooLarge` if no consumer could be sent these headers: escaped, text grows up to twelve times.

    Counted as HTTP/2 does (RFC 9113 6.5.2), and exactly only where a rough count leaves doubt.
    """
    m, properties = message, message.properties
    rough = _FIELD_OVERHEAD * len(properties) + len("".join(properties)) + len("".join(properties.values()))
    rough += len(f"{m.message_key}{m.correlation_id}{m.trace_id}{m.transaction_id}")
    rough += len(f"{m.message_id}{m.born_host}{m.content_type}{m.tracestate}")
    if rough * _GROWTH < limit - _REST:
        return
    size = sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in encode(message))
    if size > limit:
        raise HeadersTooLarge(
            f"The message's headers would take {size} bytes on their way to a consumer, escaped and with"
            f" {_FIELD_OVERHEAD} for each; at most {limit} are allowed."
        )


def check_version(text: str | None) -> None:
    """Raise unless text is 1.x.y: "x-oms-version | Required | version of OMS"."""
    if text == "1.0.0":
        return
    if text is None:
        raise HeaderMissing("x-oms-version is required: the version of OpenMessaging, for example 1.0.0.")
    parts = text.split(".")
    if len(parts) != 3 or parts[0] != "1" or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):  # noqa: PLR2004 - 1.x.y
        raise VersionUnsupported(
            f"x-oms-version: {printable(text.encode('utf-8', 'replace'))} is not served; 1.x.y is, for example 1.0.0."
        )


def read_number(name: str, text: str, maximum: int) -> int:
    """Read a whole number of plain digits, 0 to maximum. Raises `HeaderInvalid`: no sign, no space, no underscore."""
    if not (text.isascii() and text.isdigit()):
        shown = printable(text.encode("utf-8", "replace")) or "an empty value"
        raise HeaderInvalid(f"{name}: {shown} is not a number of plain digits.")
    if len(text) > _DIGITS_MAX or (number := int(text)) > maximum:
        raise HeaderInvalid(f"{name}: {text[:40]} is out of range; 0 to {maximum} is allowed.")
    return number


def _decode_field(field: Field, name: bytes, raw: bytes) -> str | int:
    if field.maximum is None:
        return _not_empty(field, name, decode_value(name, raw))
    if raw.isdigit() and len(raw) <= _DIGITS_MAX and (number := int(raw)) <= field.maximum:
        return number
    return read_number(printable(name), decode_value(name, raw), field.maximum)


def _parse_rest(name: bytes, raw: bytes, fields: dict[str, Any], parameters: dict[str, str]) -> None:
    """Parameters, and the extended form of fields; a name in neither vocabulary is a mistyped one."""
    parameter = _PARAMETER_BY_NAME.get(name)
    if parameter is not None:
        if parameter in parameters:
            raise _repeated(name)
        parameters[parameter] = decode_value(name, raw)
        return
    field = _FIELD_BY_NAME.get(name[:-1]) if name.endswith(b"*") else None
    if field is None:
        raise HeaderInvalid(
            f"{printable(name)} is not a header of the OpenMessaging binding; see docs/http-profile.md."
        )
    if field.attribute in fields:
        raise _repeated(name)
    text = decode_extended(name, raw)
    if field.maximum is None:
        fields[field.attribute] = _not_empty(field, name, text)
    else:
        fields[field.attribute] = read_number(printable(name), text, field.maximum)


def _not_empty(field: Field, name: bytes, text: str) -> str:
    if not text and field.required:
        raise HeaderInvalid(f"{printable(name)}: the value is empty.")
    return text


def _repeated(name: bytes) -> BridgeError:
    return HeaderRepeated(f"{printable(name)} came more than once; send it once.")


def _plain_or(text: str | None, otherwise: bytes) -> bytes:
    return text.strip(" ").encode("ascii") or otherwise if text and text.isascii() and text.isprintable() else otherwise
