"""CloudEvents over HTTP: binary, structured and batched mode, both directions.

Specification: the HTTP protocol binding and the JSON event format of CloudEvents 1.0.2.
"""

import base64
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from bridge.cloudevents import REQUIRED, from_attributes, to_attributes
from bridge.errors import (
    BodyInvalid,
    BridgeError,
    ContentTypeUnsupported,
    HeaderInvalid,
    HeaderRepeated,
    HeadersTooLarge,
)
from bridge.long_work import Steps
from bridge.message import Message
from bridge.wire.header_text import decode_value, printable, weights
from bridge.wire.headers import OCTETS, Headers, append_http_headers, fits_http
from bridge.wire.json_elements import MEMBERS_MAX, Element, split, texts_of
from bridge.wire.query_fields import merge_values

Pairs = list[tuple[bytes, bytes]]
Complete = Callable[[Headers], Headers]
"""Adds what the request sets besides the headers: its URL."""


class Mode(Enum):
    """How events are in a request or a response. The value is what `accept` asks for it with."""

    BINARY = "application/cloudevents"
    STRUCTURED = "application/cloudevents+json"
    BATCHED = "application/cloudevents-batch+json"


_PREFIX: Final = b"ce-"
_MEDIA_TYPE: Final = b"application/cloudevents"
_EVENT_TYPES: Final = _MEDIA_TYPE.decode("ascii")
_NULL: Final = b"null"
_REQUIRED_HEADERS: Final = frozenset(_PREFIX + name.encode() for name in REQUIRED)
_TRACE_HEADERS: Final = {"traceparent": b"traceparent", "tracestate": b"tracestate"}
"""Values that `Headers.message` takes from ordinary headers."""
_SAFE: Final = "".join(char for char in map(chr, range(0x21, 0x7F)) if char not in '"%')
"""Characters of a header value that are not percent-encoded ("HTTP Header Values")."""
_ALL_SAFE: Final = re.compile(r"[!#$&-~]*+").fullmatch
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', re.DOTALL)
"""A quoted text, or one that does not end: otherwise, each of many quotes would be tried up to the end."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_EVENT: Final = Decoder(dict[str, Raw])
_VALUE: Final = Decoder()
_BASE64: Final = Decoder(bytes | None)
_ANY: Final = Decoder(Raw)
_UTF_8: Final = frozenset({"utf-8", "us-ascii"})


def mode_of(plain: Mapping[bytes, bytes]) -> Mode | None:
    """Return the mode of the event that ordinary headers announce; None: no event.

    Raises `ContentTypeUnsupported` for an event in another format than JSON.
    """
    content_type = plain.get(b"content-type", b"").lower()
    if content_type.startswith(_MEDIA_TYPE):
        media_type = content_type.partition(b";")[0].strip().decode("latin-1")
        if media_type in (Mode.STRUCTURED.value, Mode.BATCHED.value):
            return Mode(media_type)
        raise ContentTypeUnsupported(
            f"content-type: events are {Mode.STRUCTURED.value} or {Mode.BATCHED.value}, not {printable(content_type)}."
        )
    return None if _REQUIRED_HEADERS.isdisjoint(plain) else Mode.BINARY


def accepted_mode(accept: bytes | None) -> Mode | None:
    """Return the mode of one event that `accept` names; None: it names none, so the message is not sent as an event."""
    if accept is None or _MEDIA_TYPE not in accept.lower():
        return None
    given = weights(accept)
    best = max((Mode.BINARY, Mode.STRUCTURED), key=lambda mode: given.get(mode.value, 0.0))
    return best if given.get(best.value) else None


def read_binary(headers: Headers) -> Headers:
    """Return the headers of an event in binary mode with its attributes as fields and properties.

    Raises `HeaderInvalid`, `HeaderMissing` or `HeaderRepeated`, which name the attribute.
    """
    attributes: dict[str, object] = {}
    for name, raw in headers.plain.items():
        if name.startswith(_PREFIX):
            attributes[name[len(_PREFIX) :].decode("latin-1")] = _read_value(name, raw)
    if "datacontenttype" in attributes:
        raise HeaderInvalid("ce-datacontenttype: in binary mode this attribute is the header content-type.")
    return _with_attributes(headers, attributes, "ce-")


def read_structured(headers: Headers, body: bytes, complete: Complete) -> Steps[Message]:
    """Return the message of one event in structured mode, with what the headers set besides.

    Raises the errors of `read_binary`, `BodyInvalid`, `HeadersTooLarge`.
    """
    events = yield from _split(b"[%b]" % body.removeprefix(BOM_UTF8), 2, "one event: a JSON object")
    if len(events) != 1:
        raise BodyInvalid("The body of structured mode is one event: a JSON object.")
    return _read_event(headers, *events[0], complete)


def read_batch(headers: Headers, body: bytes, limit: int, complete: Complete) -> Steps[list[Message | BridgeError]]:
    """Return the messages of at most `limit` events in batched mode, or the error of each that is invalid.

    Raises `BodyInvalid` if the body is no JSON array, `BodyTooLarge` for more events.
    """
    results: list[Message | BridgeError] = []
    for text, element in (yield from _split(body.removeprefix(BOM_UTF8), limit, "a JSON array of events")):
        try:
            results.append(_read_event(headers, text, element, complete))
        except BridgeError as error:
            results.append(error)
        yield
    return results


def encode(message: Message, mode: Mode) -> tuple[Pairs, bytes]:
    """Write one event as headers and a body.

    It is in structured mode if not every client could read the headers, or if its type of data names another mode.
    """
    if mode is Mode.BINARY:
        attributes = to_attributes(message)
        content_type = _type_of(attributes)
        attributes.pop("datacontenttype", None)
        pairs = [(_PREFIX + name.encode("ascii"), _write_value(str(value))) for name, value in attributes.items()]
        append_http_headers(pairs, message._replace(content_type=content_type))
        names_mode = (content_type or "").lower().startswith(_EVENT_TYPES)
        if not names_mode and fits_http(message, pairs):
            return pairs, message.body
    return [(b"content-type", Mode.STRUCTURED.value.encode("ascii"))], encode_json(message)


def encode_json(message: Message, more: Mapping[str, str | int] | None = None) -> bytes:
    """Write one event in structured mode, on one line in UTF-8. `more`: further attributes."""
    attributes = to_attributes(message)
    written = json.dumps({**attributes, **(more or {})}, separators=(",", ":"))
    return b"%b%b}" % (written[:-1].encode("ascii"), _encode_data(message.body, _type_of(attributes)))


def _type_of(attributes: Mapping[str, object]) -> str | None:
    content_type = attributes.get("datacontenttype")
    return None if content_type is None else str(content_type)


def _read_value(name: bytes, raw: bytes) -> str:
    """Return the text of a header: unescaped if it is quoted, then percent-decoded.

    A `%` without two hex digits stays as it is: not every producer escapes.
    """
    text = decode_value(name, raw)
    if '"' in text:
        text = _QUOTED.sub(lambda quoted: _ESCAPED.sub(r"\1", quoted[1]), text)
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{printable(name)}: the percent-encoded value is not UTF-8.") from None


def _write_value(text: str) -> bytes:
    raw = text if _ALL_SAFE(text) else quote(text, safe=_SAFE, errors="replace")
    return raw.encode("ascii")


def _with_attributes(headers: Headers, attributes: Mapping[str, object], prefix: str = "") -> Headers:
    fields, properties = from_attributes(attributes, prefix)
    plain = dict(headers.plain)
    for field, name in _TRACE_HEADERS.items():
        if (text := fields.pop(field, None)) is not None:
            plain[name] = text.encode()
    if "content_type" in fields:
        plain[b"content-type"] = OCTETS  # with which `Headers.message` leaves the field as it is
        if fields["content_type"] == OCTETS.decode("ascii"):
            del fields["content_type"]
    return headers._replace(
        fields=merge_values(headers.fields, fields),
        properties=merge_values(headers.properties, properties),
        plain=plain,
    )


def _split(raw: bytes, limit: int, form: str) -> Steps[list[tuple[Raw, Element]]]:
    """Return the texts of the events of an array, and what was counted in them before msgspec read them."""
    too_many = f"The body is {form}, and has more than {limit}."
    elements, _ = yield from split(raw, raw.find(b"[") + 1, limit, too_many, commas_max=len(raw))
    try:
        return list(zip(texts_of(raw), elements, strict=True))
    except (ValueError, RecursionError) as error:
        raise BodyInvalid(f"The body is not {form}: {str(error)[:200]}.") from None


def _read_event(headers: Headers, text: Raw, element: Element, complete: Complete) -> Message:
    if element.commas >= MEMBERS_MAX:
        raise HeadersTooLarge(f"An event has at most {MEMBERS_MAX} members.")
    try:
        members = _EVENT.decode(text)
        if members and len(members) != element.commas + 1:
            raise HeaderRepeated("An attribute of the event is given more than once; send it once.")
        data, data_base64 = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _attribute(value) for name, value in members.items()}
        body = None if data_base64 is None else _BASE64.decode(data_base64)
    except (DecodeError, RecursionError) as error:
        raise BodyInvalid(f"An event is a JSON object, and data_base64 is base64: {str(error)[:200]}.") from None
    if data is not None and (data_base64 is not None or not _is_json_type(attributes)) and bytes(data) == _NULL:
        data = None  # not set; without data_base64, null is a document of JSON
    if data is not None and body is not None:
        raise BodyInvalid("An event has data or data_base64, not both.")
    if data is not None and attributes.get("datacontenttype") is None:
        attributes["datacontenttype"] = "application/json"
    plain = {name: value for name, value in headers.plain.items() if name != b"content-type"}
    headers = complete(_with_attributes(headers._replace(plain=plain), attributes))
    return headers.message(body or b"" if data is None else _read_data(data, str(attributes["datacontenttype"])))


def _attribute(raw: Raw) -> object:
    """Return the value of an attribute; `raw` itself for an array or an object, which no attribute is."""
    return raw if bytes(raw).startswith((b"[", b"{")) else _VALUE.decode(raw)


def _is_json_type(attributes: Mapping[str, object]) -> bool:
    content_type = _type_of(attributes)
    return content_type is None or _is_json(_media_type(content_type)[0])


def _read_data(data: Raw, content_type: str) -> bytes:
    media_type, charset = _media_type(content_type)
    if charset not in _UTF_8:
        raise BodyInvalid("datacontenttype: data in another charset than UTF-8 is sent as data_base64.")
    if _is_json(media_type):
        return bytes(data)
    text = _VALUE.decode(data) if bytes(data).startswith(b'"') else None
    if not isinstance(text, str):
        raise BodyInvalid("data must be a string, as datacontenttype is not JSON.")
    return text.encode()


def _encode_data(body: bytes, content_type: str | None) -> bytes:
    """Write the member with the body, after a comma; nothing for an empty body."""
    if not body:
        return b""
    media_type, charset = _media_type(content_type)
    if charset in _UTF_8:
        try:
            text = body.decode()
            if _is_json(media_type):
                _ANY.decode(body)
                return b',"data":' + body.translate(_ONE_LINE)
            if _is_text(media_type):
                return b',"data":' + json.dumps(text).encode("ascii")
        except (ValueError, RecursionError):
            pass  # not what its type says
    return b',"data_base64":"%b"' % base64.b64encode(body)


_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
"""JSON has line breaks between its tokens only."""


def _media_type(content_type: str | None) -> tuple[str, str]:
    """Return the type and the charset of a body, in lower case."""
    media_type, *options = (piece.strip() for piece in (content_type or "").lower().split(";"))
    charsets = (option.removeprefix("charset=").strip('"') for option in options if option.startswith("charset="))
    return media_type, next(charsets, "utf-8")


def _is_json(media_type: str) -> bool:
    return media_type.endswith(("/json", "+json"))


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("/xml", "+xml"))
