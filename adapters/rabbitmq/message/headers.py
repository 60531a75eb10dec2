"""The one table of headers and properties: what each field is called in RabbitMQ, and where it stands in `Message`.

| in RabbitMQ | in the message |
|---|---|
| header `oms_h_<field>` | a header field, as text or as a number |
| header `oms_p_<name>`, with `properties=plain` `<name>` | a property, as text |
| headers `traceparent`, `tracestate` | the same |
| property `message_id`, `correlation_id`, `content_type` | the same; beyond 255 bytes header `oms_h_…` |
| property `priority` | priority - 1 (4 if there is none), for the broker; the header says what it was |
| property `timestamp` | bornTimestamp in seconds; the header has the milliseconds |
| property `expiration` | how much time is left, unless it is delayed; the header says when it ends |
| property `delivery_mode` | 1 for durability 0 or qos 1, else 2 |
| property `content_encoding` | compression, if it is gzip |
| the routing key | partition |
| the exchange | destination; the caller says which |
| with `format=cloudevents` header `ce-<attribute>` | a CloudEvent: its attributes, among them properties |
| header `oms_d_<name>` | nothing: the bridge's own, never seen by a client |

deliveryCount is counted, never written. Any other header is a native producer's, and becomes a property; so do its
`reply_to`, `type`, `app_id`, `user_id`, `cluster_id`, a `priority` above 9, another `content_encoding` and the routing
key, as `amqp_reply_to` and so on. What the broker notes in a message (`x-death`, `x-delivery-count`, …) is left out.
"""

from collections.abc import Mapping
from typing import Final

from adapters.field_headers import (
    BROKER_FIELD_PREFIX,
    FIELD_INDEX,
    INTERNAL_PREFIX,
    header_fields,
    number_headers,
    text_headers,
)
from adapters.plain_properties import PlainNames

MESSAGE_ID: Final = f"{BROKER_FIELD_PREFIX}messageId"
CORRELATION_ID: Final = f"{BROKER_FIELD_PREFIX}correlationId"
CONTENT_TYPE: Final = f"{BROKER_FIELD_PREFIX}contentType"
"""No field of the specification: only where the property of that name has no room for it."""
STORED: Final = f"{BROKER_FIELD_PREFIX}storeTimestamp"
"""What every message of the bridge has."""
COMPRESSION: Final = f"{BROKER_FIELD_PREFIX}compression"

MARKER: Final = f"{INTERNAL_PREFIX}marker"
"""No message: the bridge found a place again by it."""
ATTEMPTS: Final = f"{INTERNAL_PREFIX}attempts"
"""How often a message had been delivered when its group put it off."""
ROUTING_KEY: Final = f"{INTERNAL_PREFIX}routing_key"
"""What a native producer published with, in a copy that lies in a queue under its name."""

NATIVE_PREFIX: Final = "amqp_"
NATIVE: Final = ("reply_to", "type", "app_id", "user_id", "cluster_id")
"""Properties that no field of the specification stands for."""

DELIVERY_COUNT: Final = "x-delivery-count"
ACQUIRED_COUNT: Final = "x-acquired-count"
BROKERS: Final = frozenset(
    {
        *("x-death", DELIVERY_COUNT, ACQUIRED_COUNT, "x-stream-offset"),
        *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
    }
)
"""What brokers themselves write into a message."""

_TRACE: Final = ("traceparent", "tracestate")
_ROUTING: Final = ("CC", "BCC")
"""What brokers route by; with text in it they close the channel."""
EVENT_PREFIX: Final = "ce-"
"""Of the headers of a CloudEvent."""
NATIVE_EVENT_PREFIXES: Final = (EVENT_PREFIX, "cloudEvents:", "cloudEvents_")
"""Those that native producers use: of the SDKs on AMQP 0-9-1, and of the AMQP binding, from which Spring takes them."""
EVENT_IDS: Final = tuple(f"{prefix}id" for prefix in NATIVE_EVENT_PREFIXES)
PLAIN_NAMES: Final = PlainNames({*_TRACE, *_ROUTING, *BROKERS, f"{EVENT_PREFIX}specversion"})
"""Headers of properties with `properties=plain`."""
_ELSEWHERE: Final = frozenset(
    {"destination", "partition", "compression", "deliveryCount", "messageId", "correlationId"}
)
"""Fields that no header is written for, or not always."""

TEXTS: Final = (
    *text_headers(_ELSEWHERE),
    *((name, FIELD_INDEX[name]) for name in _TRACE),
)
"""What is written as text: the header's name, the field's place."""
NUMBERS: Final = number_headers(_ELSEWHERE)
"""What is written as a number."""
READ: Final[Mapping[str, tuple[int, int | None]]] = {
    **header_fields(),
    **{name: (FIELD_INDEX[name], None) for name in _TRACE},
    CONTENT_TYPE: (FIELD_INDEX["content_type"], None),
}
"""What is read: place and largest number of each header; None: it is text."""
