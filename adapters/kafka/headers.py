"""The one table of record headers: what each field of a message is called in Kafka, and where it stands in `Message`.

| in Kafka | in the message |
|---|---|
| `oms_h_<field>` | a header field, as UTF-8 text or as a number in plain digits |
| `oms_p_<name>`, with `properties=plain` `<name>` | a property, as UTF-8 text |
| `content-type`, `traceparent`, `tracestate` | the same, the usual names |
| the record's key, partition, timestamp | messageKey, partition, storeTimestamp; no header |
| the topic | destination; the caller says which, as a record may lie in a lane or a dead-letter topic |
| with `format=cloudevents` `ce_<attribute>` | a CloudEvent: its attributes, among them properties |
| `oms_d_<name>` | nothing: the bridge's own, never seen by a client |

deliveryCount is counted, never written. Any other header is a native producer's, and becomes a property.
"""

from collections.abc import Mapping
from typing import Final

from adapters.field_headers import FIELD_INDEX, header_fields, number_headers, text_headers
from adapters.plain_properties import PlainNames

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

TEXTS: Final = (
    *text_headers(_ELSEWHERE),
    *((name, FIELD_INDEX[attribute]) for name, attribute in _NATIVE.items()),
)
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
