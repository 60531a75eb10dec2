"""Records, and message to record and back, by one table of headers; pure, and the same for every client library.

| in Kafka | in the message |
|---|---|
| `oms_h_<field>` | a header field, as UTF-8 text or as a number in plain digits |
| `oms_p_<name>`, with `properties=plain` `<name>` | a property, as UTF-8 text |
| `content-type`, `traceparent`, `tracestate` | the same, the usual names |
| the record's key, partition, timestamp | messageKey, partition, storeTimestamp; no header |
| the topic | destination; the caller passes it, as a record may be in a lane or a dead-letter topic |
| with `format=cloudevents` `ce_<attribute>` | a CloudEvent: its attributes, among them properties |
| `oms_d_<name>` | nothing: the bridge's own, never seen by a client |

deliveryCount is counted, never written. Any other header is a native producer's, and becomes a property.

A message comes back from its record as it was, except: gzip is compressed again (the body inflates to the same),
traceId is set if only a traceparent was, half a surrogate pair becomes `?`, and partition and storeTimestamp are those
of the record. Records of native producers are read as well.

For 3 fields, a key and 2 properties 2.1 us either way, a native record with 7 headers 6.5 us (CPython 3.11).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from adapters.cloud_events import EventHeaders, PropertyHeaders, property_headers, read_event
from adapters.field_headers import (
    INTERNAL_PREFIX,
    PROPERTY_PREFIX,
    header_fields,
    move_invalid,
    number_headers,
    text_headers,
    traceparent_of,
    without_surrogates,
)
from adapters.gzip_stored_plain import GZIP, deflate, inflate, is_gzip
from adapters.native_headers import NAME_BYTES_MAX, Unmapped, add_properties, as_text, key_text
from adapters.property_names import PlainNames, prefixed_header
from bridge.inflate import NotGzip
from bridge.message import FIELD_INDEX, Message

Headers = Sequence[tuple[str, bytes]]
"""In order, names may repeat. A header whose value is null in Kafka is kept as empty."""


class Part(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record as it was fetched."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, by the producer's clock or the broker's as the topic is configured."""
    key: bytes | None
    value: bytes | None
    headers: Headers


def fetched(found: Any) -> Record:  # noqa: ANN401 - kafka-python's, which has no type
    """Return a record of kafka-python's consumer."""
    headers = found.headers
    for _, value in headers:  # without a generator: this is done for each record
        if value is None:
            headers = [(name, value or b"") for name, value in headers]
            break
    return Record(found.topic, found.partition, found.offset, found.timestamp, found.key, found.value, headers)


class Outgoing(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    """None: the end of a key in a compacted topic. A message always has a body."""
    headers: Headers


class Commit(NamedTuple):
    """The commit of a group for one partition."""

    offset: int
    """Of the first record that is not settled."""
    metadata: str
    """The settled offsets beyond it, by `commit_metadata`; the text of another tool is ignored."""


Commits = Mapping[Part, Commit]


COMPRESSION: Final = "oms_h_compression"
"""The value is compressed so, as its producer says."""
SENT_AS: Final = "oms_d_compression"
"""The producer sent the body compressed so; the value is plain."""
STORED: Final = "oms_h_storeTimestamp"
"""Only where the record's own timestamp says something else: it was forwarded after a delay."""

DUE_AT: Final = "oms_d_due"
TOPIC: Final = "oms_d_topic"
PARTITION: Final = "oms_d_partition"
AGAIN: Final = "oms_d_again"
"""When a delayed record goes to which partition of which topic, and when to try that again."""
FIRST: Final = "oms_d_first"
"""Where a delayed record was stored first: topic, partition and offset."""
TRANSACTION: Final = "oms_d_transaction"
"""What a record of the topic of transactions says: an entry in JSON."""

_NATIVE: Final = {"content-type": "content_type", "traceparent": "traceparent", "tracestate": "tracestate"}
_ELSEWHERE: Final = frozenset(
    {"destination", "partition", "storeTimestamp", "messageKey", "compression", "deliveryCount"}
)
"""Fields that no header is written for, or not always."""

TEXTS: Final = (*text_headers(_ELSEWHERE), *((name, FIELD_INDEX[attribute]) for name, attribute in _NATIVE.items()))
"""What is written as text: the header's name, the field's place."""
NUMBERS: Final = number_headers(_ELSEWHERE)
"""What is written in digits."""
EVENT_PREFIX: Final = "ce_"
"""Of the headers of a CloudEvent."""
PLAIN_NAMES: Final = PlainNames({*_NATIVE, f"{EVENT_PREFIX}specversion"})
"""Headers of properties with `properties=plain`."""
READ: Final[Mapping[str, tuple[int, int | None]]] = {
    **header_fields(),
    **{name: (FIELD_INDEX[attribute], None) for name, attribute in _NATIVE.items()},
}
"""What is read: place and largest number of each header; None: it is text."""

_NEW: Final = tuple(Message("", b""))
_DESTINATION: Final = FIELD_INDEX["destination"]
_BODY: Final = FIELD_INDEX["body"]
_PROPERTIES: Final = FIELD_INDEX["properties"]
_MESSAGE_ID: Final = FIELD_INDEX["message_id"]
_BORN: Final = FIELD_INDEX["born_timestamp"]
_COMPRESSION: Final = FIELD_INDEX["compression"]
_PARTITION: Final = FIELD_INDEX["partition"]
_STORED: Final = FIELD_INDEX["store_timestamp"]
_KEY: Final = FIELD_INDEX["message_key"]

_PROPERTY: Final = len(PROPERTY_PREFIX)
_SHORT: Final = NAME_BYTES_MAX // 4
"""A name of so many characters is short enough in any script."""
_GZIP: Final = GZIP.encode()
_DIGITS_MAX: Final = 19


def to_record(message: Message, topic: str, header_of: PropertyHeaders = prefixed_header) -> Outgoing:
    """Write a complete message; `header_of` names its properties. Raises `ValueError` without partition or time."""
    if message.partition is None or message.store_timestamp is None:
        raise ValueError("a message is stored with its partition and storeTimestamp set")
    try:
        headers, key = _write(message, header_of), message.message_key
        raw_key = None if key is None else key.encode()
    except UnicodeEncodeError:
        return to_record(without_surrogates(message), topic, header_of)
    body = message.body if message.compression is None else _unpack(message, headers)
    return Outgoing(topic, message.partition, message.store_timestamp, raw_key, body, headers)


def from_record(record: Record, destination: str) -> Message:
    """Read a message from any record; a native record has the messageId `topic-partition-offset`."""
    topic, partition, offset, timestamp, key, value, headers = record
    values: list[Any] = list(_NEW)
    properties: dict[str, str] = {}
    unmapped = _read(headers, values, properties)
    values[_DESTINATION] = destination
    values[_BODY] = value or b""
    values[_PROPERTIES] = properties
    values[_PARTITION] = partition
    native = not values[_MESSAGE_ID]
    if key is not None and values[_KEY] is None:
        values[_KEY] = key_text(key) if native else as_text(key)
    if unmapped:
        unmapped = read_event(unmapped, values, properties, EVENT_PREFIX, native=native)
    if not values[_MESSAGE_ID]:
        values[_MESSAGE_ID] = f"{topic}-{partition}-{offset}"
    if timestamp >= 0:  # -1: none
        if values[_BORN] is None:
            values[_BORN] = timestamp
        if values[_STORED] is None:
            values[_STORED] = timestamp
    move_invalid(values, unmapped)
    if unmapped:
        _add_unmapped(values, properties, unmapped, native=native)
    return Message._make(values)


def _write(message: Message, header_of: PropertyHeaders) -> list[tuple[str, bytes]]:
    fields: tuple[Any, ...] = message
    headers = [(name, value.encode()) for name, place in TEXTS if (value := fields[place]) is not None]
    headers += [(name, b"%d" % value) for name, place in NUMBERS if (value := fields[place]) is not None]
    if message.properties or isinstance(header_of, EventHeaders):
        "".join(message.properties).encode()  # names are text to the client library, which must not trip over them
        headers += [(name, value.encode()) for name, value in property_headers(message, header_of)]
    if message.trace_id is not None and message.traceparent is None and (parent := traceparent_of(message.trace_id)):
        headers.append(("traceparent", parent.encode()))
    return headers


def _read(headers: Headers, values: list[Any], properties: dict[str, str]) -> Unmapped:
    """Sort the headers of the table into values and properties; returns the rest."""
    unmapped: Unmapped = []
    for name, raw in headers:
        slot = READ.get(name)
        try:
            if slot is not None:
                place, maximum = slot
                if maximum is None:
                    values[place] = raw.decode()
                    continue
                if raw.isdigit() and len(raw) <= _DIGITS_MAX and (number := int(raw)) <= maximum:
                    values[place] = number
                    continue
            elif name.startswith(PROPERTY_PREFIX):
                own = name[_PROPERTY:]
                if own and own not in properties and (len(own) <= _SHORT or len(own.encode()) <= NAME_BYTES_MAX):
                    properties[own] = raw.decode()
                    continue
        except UnicodeError:
            pass  # bytes that are no text
        unmapped.append((name, raw))
    return unmapped


def _unpack(message: Message, headers: list[tuple[str, bytes]]) -> bytes:
    """Return the body as Kafka keeps it: plain, for every native consumer, with a note for `from_record`.

    Kafka compresses whole batches better than a client one body. A consumer of the bridge that takes gzip gets gzip
    again; only a body that is not what it claims, or beyond `INFLATED_MAX`, stays as it is, claim and all.
    """
    plain = None
    if message.compression == GZIP:
        with suppress(NotGzip):
            plain = inflate(message.body)
    if plain is None:
        headers.append((COMPRESSION, str(message.compression).encode("utf-8", "replace")))
        return message.body
    headers.append((SENT_AS, _GZIP))
    return plain


def _add_unmapped(values: list[Any], properties: dict[str, str], unmapped: Unmapped, *, native: bool) -> None:
    """Keep headers that are not in the table: most become properties."""
    kept: Unmapped = []
    sent_as = claimed = False
    for name, raw in unmapped:
        if name.startswith(INTERNAL_PREFIX):
            sent_as |= name == SENT_AS
        elif name == COMPRESSION and raw == _GZIP:
            claimed = True
        elif name.startswith(PROPERTY_PREFIX) and name != PROPERTY_PREFIX:
            own = name[_PROPERTY:]
            if own in properties:  # the last one keeps the name
                kept.append((own, properties.pop(own).encode()))
            kept.append((own, raw))
        else:
            kept.append((name, raw))
    if sent_as:
        values[_COMPRESSION], values[_BODY] = GZIP, deflate(values[_BODY])
    elif claimed:
        if is_gzip(values[_BODY]):
            values[_COMPRESSION] = GZIP
        else:  # a consumer that takes gzip would fail to inflate it
            kept.append((COMPRESSION, _GZIP))
    add_properties(properties, kept, native=native)
