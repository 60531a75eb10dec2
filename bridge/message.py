"""The OpenMessaging message, and the table of its header fields.

All codecs, checks and documents loop over `FIELDS`; a new field needs only a row there.
Specification: openmessaging/specification, "2.2 Message Format" and extensionHeader.md.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Final, Literal, NamedTuple

LONG_MAX: Final = 2**63 - 1
INTEGER_MAX: Final = 2**31 - 1

DEFAULT_PRIORITY: Final = 5
PRIORITIES: Final = range(1, 11)

AT_MOST_ONCE: Final = 1
"""The qos of a message that may be lost and must not be delivered twice."""

Section = Literal["header", "extensionHeader"]


class Field(NamedTuple):
    """One header field: its name in the specification, its section, its values, and whether a client must set it."""

    name: str
    attribute: str
    section: Section
    maximum: int | None = None
    """None: the field is a String. Else it is a whole number from 0 to this value."""
    required: bool = False
    """The binding marks it Required and a client can have it: required in strict mode."""
    is_feature: bool = False
    """The field requests a behaviour of the backend: `x-oms-applied` reports how it is honoured."""


FIELDS: Final = (
    Field("destination", "destination", "header", required=True),
    Field("messageId", "message_id", "header", required=True),
    Field("bornTimestamp", "born_timestamp", "header", LONG_MAX, required=True),
    Field("bornHost", "born_host", "header", required=True),
    Field("qos", "qos", "header", 2, is_feature=True),
    Field("compression", "compression", "header", is_feature=True),
    Field("partition", "partition", "extensionHeader", INTEGER_MAX, is_feature=True),
    Field("storeTimestamp", "store_timestamp", "extensionHeader", LONG_MAX),
    Field("storeHost", "store_host", "extensionHeader"),
    Field("messageKey", "message_key", "extensionHeader", is_feature=True),
    Field("correlationId", "correlation_id", "extensionHeader", is_feature=True),
    Field("traceId", "trace_id", "extensionHeader", is_feature=True),
    Field("transactionId", "transaction_id", "extensionHeader", is_feature=True),
    Field("delayTime", "delay_time", "extensionHeader", LONG_MAX, is_feature=True),
    Field("expireTime", "expire_time", "extensionHeader", LONG_MAX, is_feature=True),
    Field("priority", "priority", "extensionHeader", INTEGER_MAX, is_feature=True),
    Field("durability", "durability", "extensionHeader", 1, is_feature=True),
    Field("deliveryCount", "delivery_count", "extensionHeader", INTEGER_MAX),
)


class Message(NamedTuple):
    """One message. A field that is None was not set; the engine defines what that means.

    A named tuple and not a frozen dataclass: building it costs 1.1 us and `_replace` 0.8 us, with a dataclass 2.5 us
    and 6.2 us (23 fields, CPython 3.11); each happens once per request.
    Times are milliseconds since 1970 UTC; `delay_time` is milliseconds after `born_timestamp`.
    """

    destination: str
    body: bytes = b""
    properties: Mapping[str, str] = {}
    message_id: str | None = None
    born_timestamp: int | None = None
    born_host: str | None = None
    qos: int | None = None
    compression: str | None = None
    partition: int | None = None
    store_timestamp: int | None = None
    store_host: str | None = None
    message_key: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    transaction_id: str | None = None
    delay_time: int | None = None
    expire_time: int | None = None
    priority: int | None = None
    durability: int | None = None
    delivery_count: int | None = None
    content_type: str | None = None
    """Media type of the body. Not a field of the specification: it is the HTTP header content-type."""
    traceparent: str | None = None
    """W3C trace context, passed on unchanged beside traceId."""
    tracestate: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the body and characters of the headers: what the limits of bytes count."""
        size = len(self.body) + sum(map(len, filter(None, _texts_of(self))))
        if self.properties:
            size += sum(map(len, self.properties)) + sum(map(len, self.properties.values()))
        return size

    @property
    def due(self) -> int:
        """When the message may first be delivered, ms since 1970: "due = bornTimestamp + delayTime".

        0 without a delay, so that a message of a producer with a fast clock is not delayed.
        """
        return (self.born_timestamp or 0) + self.delay_time if self.delay_time else 0

    @property
    def expires(self) -> int | None:
        """From when on the message may not be delivered, ms since 1970. None: it does not expire.

        "If an earlier timestamp [than now] is set, the message will not be expired": a time at or before
        bornTimestamp means that it does not expire.
        """
        if self.expire_time is None or self.expire_time <= (self.born_timestamp or 0):
            return None
        return self.expire_time


FIELD_INDEX: Final = {name: index for index, name in enumerate(Message._fields)}
"""Index of each attribute in a `Message`."""

TEXTS: Final = tuple(
    FIELD_INDEX[attribute]
    for attribute in (
        *(field.attribute for field in FIELDS if field.maximum is None),
        *("content_type", "traceparent", "tracestate"),
    )
)
"""Indexes of the fields that are text."""
_texts_of: Final = itemgetter(*TEXTS)
