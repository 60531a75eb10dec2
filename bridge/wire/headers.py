"""One message as headers and a body, both directions.

`parse` sorts the headers of a request or reply; `Headers.message` builds the message from them, and `encode` writes the
headers of a message. Names are in lower case, as HTTP/2 libraries and ASGI servers pass them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from bridge.errors import (
    BridgeError,
    FieldUnsupported,
    HeaderInvalid,
    HeaderMissing,
    HeaderRepeated,
    HeadersTooLarge,
    VersionUnsupported,
)
from bridge.message import FIELD_INDEX, FIELDS, Field, Message
from bridge.wire.header_text import (
    decode_extended,
    decode_name,
    decode_value,
    did_you_mean,
    encode_name,
    extend_value,
    is_traceparent,
    printable,
)

Pairs = Iterable[tuple[bytes, bytes]]
Suggested = Callable[[], Mapping[str, str]]
"""Returns headers by their names without prefix."""

VERSION: Final = b"1.0.0"
HTTP_FIELD_PREFIX: Final = b"x-oms-h-"
PROPERTY_PREFIX: Final = b"x-oms-p-"
PARAMETER_PREFIX: Final = b"x-oms-"
_VERSION_NAME: Final = b"x-oms-version"

OCTETS: Final = b"application/octet-stream"
"""The media type of a body without a content type."""

REQUEST_PARAMETERS: Final = frozenset(
    (
        *("version", "require", "source", "consumerid", "ack", "waitmills", "leasemills", "delaymills"),
        *("receipt", "requestid", "credit", "maxmessages", "callbackurl", "log", "offset"),
        *("transaction", "transaction-timeout", "transaction-check"),
    )
)
"""The x-oms- headers of requests besides fields and properties, without the prefix."""
REPLY_PARAMETERS: Final = frozenset(
    ("version", "receipt", "applied", "offset", "leaseuntil", "error", "retry-safe", "duplicate", "form")
)
"""Those of replies."""
PARAMETERS: Final = REQUEST_PARAMETERS | REPLY_PARAMETERS

_FIELD_BY_NAME: Final[Mapping[bytes, Field]] = {HTTP_FIELD_PREFIX + f.name.lower().encode(): f for f in FIELDS}
_FIELD_NAMES: Final = tuple(_FIELD_BY_NAME)
_VERSION_PAIR: Final = (_VERSION_NAME, VERSION)
_TEXT_FIELDS: Final = {name: f.attribute for name, f in _FIELD_BY_NAME.items() if f.maximum is None}
"""The attributes of fields that are text."""
_PARAMETER_BY_NAME: Final = {PARAMETER_PREFIX + p.encode(): p for p in PARAMETERS}
_REQUEST_NAMES: Final = {f.name.lower(): f"x-oms-h-{f.name.lower()}" for f in FIELDS} | {
    name: f"x-oms-{name}" for name in REQUEST_PARAMETERS
}
"""The headers of requests by their names without prefix, to find the one that a mistyped header means."""
_PART_NAMES: Final = {
    bare: name for bare, name in _REQUEST_NAMES.items() if name.startswith("x-oms-h-") or bare == "version"
}
_fields_of: Final = itemgetter(*(FIELD_INDEX[f.attribute] for f in FIELDS))
"""The values of all fields of a message, in the order of `_FIELD_BY_NAME`."""
CLIENT_HEADERS_MAX: Final = 60 << 10
"""Bytes of escaped headers of a message, which are also those of a part: h2, and with it httpx, ends the connection at
64 KiB."""
PROPERTIES_AS_HEADERS: Final = 64
"""Most properties that are sent as HTTP headers: Python's `http.client` reads 99 headers, those of fields and of HTTP
included."""
HTTP_HEADERS_MAX: Final = 4096
"""Most bytes of all headers of a response: by default, nginx reads no more of one. Node reads 16 KiB, aiohttp 8 KiB."""
_HTTP_RESERVE: Final = 512
"""Bytes of these for the headers that the server and the origin policy add."""
_DELIVERY_RESERVE: Final = 1024
"""Bytes of these for the fields that a bridge sets after the produce, and for the receipt."""
_SEPARATORS: Final = 4
"""Bytes of `: ` and of the line end of a header."""
_DIGITS_MAX: Final = 19
_FIELD_OVERHEAD: Final = 32
_GROWTH: Final = 12
"""Bytes of one escaped character at most: 4 bytes of UTF-8, each of them `%xx`."""
_GROWTH_OF_RECEIVED: Final = 7
"""Bytes that a header takes at most, for each byte that it had when it was received: 3 for an escaped byte, and 4 for
`_FIELD_OVERHEAD`, as the shortest header has 9 bytes."""
_OTHER_FIELDS: Final = 2048
"""Bytes that the fields without free text take at most."""


class Headers(NamedTuple):
    """The headers of one request, reply or part, sorted by prefix."""

    fields: dict[str, Any]
    """`x-oms-h-`: header fields by their attribute of `Message`."""
    properties: dict[str, str]
    """`x-oms-p-`: user properties."""
    parameters: dict[str, str]
    """Every other `x-oms-` header, by its name without the prefix."""
    plain: dict[bytes, bytes]
    """Ordinary HTTP headers. The values of a repeated one are joined by a comma (RFC 9110 5.3)."""

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
            fields["content_type"] = _content_type_text(content_type)
        parent = plain.get(b"traceparent")
        if parent is not None and is_traceparent(parent):
            fields["traceparent"] = parent.decode("ascii")
            if (state := plain.get(b"tracestate")) is not None and state.isascii():
                fields["tracestate"] = state.decode("ascii")
        return Message(body=body, properties=self.properties, **fields)


_FIELDS, _PROPERTIES, _PARAMETERS, _PLAIN = range(len(Headers._fields))
"""The indexes of the dicts of `Headers`."""


def parse(pairs: Pairs, suggested: Suggested | None = None) -> Headers:
    """Sort and decode headers. Raises `HeaderInvalid` or `HeaderRepeated`, which name the header.

    `suggested`: the headers that an unknown one may mean; None: all of requests.
    """
    parsed = Headers({}, {}, {}, {})
    fields, properties, parameters, plain = parsed
    for name, raw in pairs:
        if not name.startswith(PARAMETER_PREFIX):
            plain[name] = raw if name not in plain else plain[name] + b", " + raw
        # most headers: printable ASCII, of a field or a parameter, not given before
        elif (
            (attribute := _TEXT_FIELDS.get(name)) is not None
            and attribute not in fields
            and raw.isascii()
            and (text := raw.decode("ascii")).isprintable()
            and text
        ):
            fields[attribute] = text
        elif raw == VERSION and name == _VERSION_NAME and "version" not in parameters:
            parameters["version"] = "1.0.0"
        elif (
            (parameter := _PARAMETER_BY_NAME.get(name)) is not None
            and parameter not in parameters
            and raw.isascii()
            and (text := raw.decode("ascii")).isprintable()
        ):
            parameters[parameter] = text
        elif (
            name.startswith(PROPERTY_PREFIX)
            and not name.endswith(b"*")
            and (key := _property_name(name)) not in properties
            and raw.isascii()
            and (text := raw.decode("ascii")).isprintable()
        ):
            properties[key] = text
        else:
            index, place, value = decode_header(name, raw, suggested)
            target: dict[Any, Any] = parsed[index]
            if place in target:
                raise _repeated(name)
            target[place] = value
    return parsed


def part_names() -> Mapping[str, str]:
    """Return the headers of a message in a batch, by their names without prefix, for suggestions."""
    return _PART_NAMES


def decode_header(
    name: bytes, raw: bytes, suggested: Suggested | None = None
) -> tuple[int, str | bytes, str | int | bytes]:
    """Decode one header. Returns where `Headers` has it: the index of its dict, its key there, its value.

    Raises `HeaderInvalid`, which names the header. `suggested`: see `parse`.
    """
    if not name.startswith(PARAMETER_PREFIX):
        return _PLAIN, name, raw
    field = _FIELD_BY_NAME.get(name)
    if field is not None:
        return _FIELDS, field.attribute, _decode_field(field, name, raw)
    extended = name.endswith(b"*")
    if name.startswith(PROPERTY_PREFIX):
        key = _property_name(name[:-1] if extended else name)
        return _PROPERTIES, key, decode_extended(name, raw) if extended else decode_value(name, raw)
    parameter = _PARAMETER_BY_NAME.get(name)
    if parameter is not None:
        return _PARAMETERS, parameter, decode_value(name, raw)
    field = _FIELD_BY_NAME.get(name[:-1]) if extended else None
    if field is None:
        raise _unknown(printable(name), _REQUEST_NAMES if suggested is None else suggested())
    text = decode_extended(name, raw)
    if field.maximum is None:
        return _FIELDS, field.attribute, _not_empty(field, name, text)
    return _FIELDS, field.attribute, read_number(printable(name), text, field.maximum)


@lru_cache(maxsize=256)
def _content_type_text(raw: bytes) -> str:
    return decode_value(b"content-type", raw)


@lru_cache(maxsize=1024)
def _property_name(name: bytes) -> str:
    return decode_name(name[len(PROPERTY_PREFIX) :])


def encode(message: Message) -> list[tuple[bytes, bytes]]:
    """Return a message's headers: names in lower case, values always printable ASCII."""
    pairs = [_VERSION_PAIR]
    append = pairs.append
    # Each value is text, a number, or None. An argument `strict` takes 0.2 of 2.1 us.
    for name, value in zip(_FIELD_NAMES, _fields_of(message)):  # noqa: B905
        if value is None:
            continue
        if type(value) is int:
            append((name, b"%d" % value))
        elif value.isascii() and value.isprintable() and value.strip(" ") == value:  # `is_plain`, without a call
            append((name, value.encode("ascii")))
        else:
            append((name + b"*", extend_value(value)))
    for key, text in message.properties.items():
        name = _property_header(key)
        is_plain = text.isascii() and text.isprintable() and text.strip(" ") == text
        append((name, text.encode("ascii")) if is_plain else (name + b"*", extend_value(text)))
    append_http_headers(pairs, message)
    return pairs


def append_http_headers(pairs: list[tuple[bytes, bytes]], message: Message) -> None:
    """Append the headers of a message that have no prefix."""
    pairs.append(_content_type(message.content_type))
    if message.traceparent and (parent := _plain_or(message.traceparent, b"")) and is_traceparent(parent):
        pairs.append((b"traceparent", parent))
        if state := _plain_or(message.tracestate, b""):
            pairs.append((b"tracestate", state))


@lru_cache(maxsize=256)
def _content_type(text: str | None) -> tuple[bytes, bytes]:
    return b"content-type", _plain_or(text, OCTETS)


@lru_cache(maxsize=256)
def _property_header(key: str) -> bytes:
    return PROPERTY_PREFIX + encode_name(key)


def largest_safe_size(limit: int) -> int:
    """Return how many bytes of headers a message may be made of so that `check_size` certainly accepts it."""
    return (limit - _OTHER_FIELDS) // _GROWTH_OF_RECEIVED


def check_size(message: Message, limit: int) -> None:
    """Raise `HeadersTooLarge` if no consumer could receive the message: its escaped headers exceed `limit` bytes.

    The size is that of HTTP/2 (RFC 9113 6.5.2). It is computed exactly only if an estimate comes near the limit.
    """
    estimate = _FIELD_OVERHEAD * len(message.properties) + message.size - len(message.body)
    if estimate * _GROWTH < limit - _OTHER_FIELDS:
        return
    size = size_of(encode(message))
    if size > limit:
        raise HeadersTooLarge(
            f"Sent to a consumer, the message's headers would take {size} bytes, escaped and with"
            f" {_FIELD_OVERHEAD} for each; at most {limit} are allowed."
        )


def size_of(pairs: Pairs) -> int:
    """Return the size of headers in bytes, as HTTP/2 counts it (RFC 9113 6.5.2)."""
    return sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in pairs)


def fits_http(message: Message, pairs: list[tuple[bytes, bytes]]) -> bool:
    """Whether every client can read a message whose headers, with those of its delivery, are `pairs`."""
    most = HTTP_HEADERS_MAX - _HTTP_RESERVE
    return len(message.properties) <= PROPERTIES_AS_HEADERS and _size_as_sent(pairs) <= most


def fits_http_bytes(pairs: list[tuple[bytes, bytes]]) -> bool:
    """Whether every client can read so many bytes of headers."""
    return _size_as_sent(pairs) <= HTTP_HEADERS_MAX - _HTTP_RESERVE


def check_fits_http(message: Message) -> None:
    """Raise `FieldUnsupported` if a consumer may get a message to produce in the JSON form, not as headers."""
    most = HTTP_HEADERS_MAX - _HTTP_RESERVE - _DELIVERY_RESERVE
    size = _size_as_sent(encode(message))
    if len(message.properties) > PROPERTIES_AS_HEADERS or size > most:
        raise FieldUnsupported(
            f"x-oms-require: headers cannot be honoured: the message has {len(message.properties)} properties and"
            f" {size} bytes of headers; {PROPERTIES_AS_HEADERS} properties and {most} bytes always fit."
        )


def _size_as_sent(pairs: list[tuple[bytes, bytes]]) -> int:
    """Return the bytes of headers as HTTP/1.1 sends them."""
    return sum(map(len, chain.from_iterable(pairs))) + _SEPARATORS * len(pairs)


def check_version(text: str | None) -> None:
    """Raise unless text is 1.x.y: "x-oms-version | Required | version of OMS"."""
    if text == "1.0.0":
        return
    if text is None:
        raise HeaderMissing("x-oms-version is required: the version of OpenMessaging, for example 1.0.0.")
    parts = text.split(".")
    if len(parts) != 3 or parts[0] != "1" or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):  # noqa: PLR2004 - 1.x.y
        shown = printable(text.encode("utf-8", "replace"))
        raise VersionUnsupported(f"x-oms-version: {shown} is not supported; 1.x.y is, for example 1.0.0.")


def read_number(name: str, text: str, maximum: int, *, minimum: int = 0) -> int:
    """Return a whole number in this range. Raises `HeaderInvalid`, also for a sign, a space or an underscore."""
    if not (text.isascii() and text.isdigit()):
        shown = printable(text.encode("utf-8", "replace")) or "an empty value"
        raise HeaderInvalid(f"{name}: {shown} is not a number of plain digits.")
    if len(text) > _DIGITS_MAX or not minimum <= (number := int(text)) <= maximum:
        raise HeaderInvalid(f"{name}: {text[:40]} is out of range; {minimum} to {maximum} is allowed.")
    return number


def _decode_field(field: Field, name: bytes, raw: bytes) -> str | int:
    if field.maximum is None:
        return _not_empty(field, name, decode_value(name, raw))
    if raw.isdigit() and len(raw) <= _DIGITS_MAX and (number := int(raw)) <= field.maximum:
        return number
    return read_number(printable(name), decode_value(name, raw), field.maximum)


def _unknown(name: str, suggested: Mapping[str, str]) -> BridgeError:
    bare = name.removeprefix("x-oms-").removeprefix("h-").removesuffix("*")
    hint = did_you_mean(bare, suggested) or "; GET /docs lists all headers. A property is sent as x-oms-p-NAME."
    return HeaderInvalid(f"unknown header `{name}`{hint}")


def _not_empty(field: Field, name: bytes, text: str) -> str:
    if not text and field.required:
        raise HeaderInvalid(f"{printable(name)}: the value is empty.")
    return text


def _repeated(name: bytes) -> BridgeError:
    return HeaderRepeated(f"{printable(name)} is given more than once; send it once.")


def _plain_or(text: str | None, otherwise: bytes) -> bytes:
    return text.strip(" ").encode("ascii") or otherwise if text and text.isascii() and text.isprintable() else otherwise
