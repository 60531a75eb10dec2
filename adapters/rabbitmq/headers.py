"""The table of headers and properties: the name of each field in RabbitMQ, and its place in `Message`.

| in RabbitMQ | in the message |
|---|---|
| header `oms_h_<field>` | a header field, as text or as a number |
| header `oms_p_<name>`, with `properties=plain` `<name>` | a property, as text |
| headers `traceparent`, `tracestate` | the same |
| property `message_id`, `correlation_id`, `content_type` | the same; beyond 255 bytes header `oms_h_…` |
| property `priority` | priority - 1 (4 if there is none), for the broker; the header has the field |
| property `timestamp` | bornTimestamp in seconds; the header has the milliseconds |
| property `expiration` | the time left, unless it is delayed; the header has the end |
| property `delivery_mode` | 1 for durability 0 or qos 1, else 2 |
| property `content_encoding` | compression, if it is gzip |
| the routing key | partition |
| the exchange | destination, passed by the caller |
| with `format=cloudevents` header `ce-<attribute>` | a CloudEvent: its attributes, among them properties |
| header `oms_d_<name>` | nothing: internal, not delivered to clients |

deliveryCount is counted, never written. Any other header is a native producer's, and becomes a property; so do its
`reply_to`, `type`, `app_id`, `user_id`, `cluster_id`, a `priority` above 9, another `content_encoding` and the routing
key, as `amqp_reply_to` and so on. Headers that the broker adds (`x-death`, `x-delivery-count`, …) are left out.
"""

from collections.abc import Mapping
from typing import Final

from adapters.field_headers import (
    BROKER_FIELD_PREFIX,
    INTERNAL_PREFIX,
    header_fields,
    number_headers,
    text_headers,
)
from adapters.property_names import PlainNames
from bridge.message import FIELD_INDEX

MESSAGE_ID: Final = f"{BROKER_FIELD_PREFIX}messageId"
CORRELATION_ID: Final = f"{BROKER_FIELD_PREFIX}correlationId"
CONTENT_TYPE: Final = f"{BROKER_FIELD_PREFIX}contentType"
"""Not a field of the specification: used if the text is too long for the property of that name."""
STORED: Final = f"{BROKER_FIELD_PREFIX}storeTimestamp"
"""Every message of the bridge has it."""
COMPRESSION: Final = f"{BROKER_FIELD_PREFIX}compression"

MARKER: Final = f"{INTERNAL_PREFIX}marker"
"""A mark of the bridge, not a message of a client."""
ATTEMPTS: Final = f"{INTERNAL_PREFIX}attempts"
"""How often a message had been delivered when its group deferred it."""
ROUTING_KEY: Final = f"{INTERNAL_PREFIX}routing_key"
"""The routing key of a native producer, in a copy that was published with the name of a queue."""

RESENT: Final = f"{INTERNAL_PREFIX}resent"
"""How often a message was sent again, because the connection was lost before RabbitMQ confirmed it."""

NATIVE_PREFIX: Final = "amqp_"
NATIVE: Final = ("reply_to", "type", "app_id", "user_id", "cluster_id")
"""Properties without a field of the specification."""

DELIVERY_COUNT: Final = "x-delivery-count"
ACQUIRED_COUNT: Final = "x-acquired-count"
BROKERS: Final = frozenset(
    {
        *("x-death", DELIVERY_COUNT, ACQUIRED_COUNT, "x-stream-offset"),
        *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
    }
)
"""Headers that brokers add to a message."""

_TRACE: Final = ("traceparent", "tracestate")
ROUTING: Final = ("CC", "BCC")
"""Headers that brokers use as more routing keys, from any publisher; if one is text, they close the channel."""
EVENT_PREFIX: Final = "ce-"
"""Prefix of the headers of a CloudEvent."""
NATIVE_EVENT_PREFIXES: Final = (EVENT_PREFIX, "cloudEvents:", "cloudEvents_")
"""Prefixes that native producers use: the SDKs on AMQP 0-9-1, and the AMQP binding, as in Spring."""
EVENT_IDS: Final = tuple(f"{prefix}id" for prefix in NATIVE_EVENT_PREFIXES)
PLAIN_NAMES: Final = PlainNames({*_TRACE, *ROUTING, *BROKERS, f"{EVENT_PREFIX}specversion"})
"""Headers of properties with `properties=plain`."""
_ELSEWHERE: Final = frozenset(
    {"destination", "partition", "compression", "deliveryCount", "messageId", "correlationId"}
)
"""Fields without a header, or with one only in some cases."""

TEXTS: Final = (
    *text_headers(_ELSEWHERE),
    *((name, FIELD_INDEX[name]) for name in _TRACE),
)
"""Headers written as text: name, and place of the field."""
NUMBERS: Final = number_headers(_ELSEWHERE)
"""Headers written as numbers."""
READ: Final[Mapping[str, tuple[int, int | None]]] = {
    **header_fields(),
    **{name: (FIELD_INDEX[name], None) for name in _TRACE},
    CONTENT_TYPE: (FIELD_INDEX["content_type"], None),
}
"""Headers that are read: place of the field, and the largest number; None: it is text."""
