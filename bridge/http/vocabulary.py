"""What each word of the binding means: the prose of the OpenAPI document. A test finds a word that is missing."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.http.messages import WAIT_MAX
from bridge.message import DEFAULT_PRIORITY, PRIORITIES


class Word(NamedTuple):
    """One header, without its prefix."""

    meaning: str
    example: str | int | None = None


FIELD_WORDS: Final[Mapping[str, Word]] = {
    "destination": Word("Queue or topic of the message. Without it, the request is a batch.", "orders"),
    "messageId": Word("Identity of the message; a UUIDv7 when the producer sets none.", "0198f0a2-order-7"),
    "bornTimestamp": Word("When the producer made the message, ms since 1970; else when it arrived.", 1767225600000),
    "bornHost": Word("Host of the producer; else its address.", "10.0.0.7:51234"),
    "qos": Word("0 at least once, 1 at most once, 2 exactly once.", 0),
    "compression": Word("The body is gzip; it is undone for consumers that do not accept gzip.", "gzip"),
    "partition": Word("Partition that shall hold the message; else its key decides, else they take turns.", 3),
    "storeTimestamp": Word("When the bridge took the message, ms since 1970. A producer's value is replaced.", None),
    "storeHost": Word("Bridge that took the message. A producer's value is replaced.", None),
    "messageKey": Word("Messages of one key share a partition and reach a group in stored order.", "customer-12"),
    "correlationId": Word("Carried to the consumer.", "request-77"),
    "traceId": Word("Carried; when absent, the trace id of traceparent.", "4bf92f3577b34da6a3ce929d0e0e4736"),
    "transactionId": Word("Carried to the consumer.", "tx-9"),
    "delayTime": Word("Deliver no earlier than this long after bornTimestamp, ms; due within 366 days.", 60000),
    "expireTime": Word("Do not deliver from then on, ms since 1970; at or before bornTimestamp: never expires.", None),
    "priority": Word(
        f"{PRIORITIES[0]} to {PRIORITIES[-1]}, {PRIORITIES[-1]} first; {DEFAULT_PRIORITY} when absent or outside.", 9
    ),
    "durability": Word("1: persisted before the 200. 0: need not be.", 1),
    "deliveryCount": Word("Which delivery to this group this is, 1 on the first. A producer's value is dropped.", 1),
}

PARAMETER_WORDS: Final[Mapping[str, Word]] = {
    "version": Word("Version of OpenMessaging, 1.x.y.", "1.0.0"),
    "require": Word("Fields that must be honoured; otherwise 422 and nothing is stored.", "delayTime"),
    "source": Word("Destination to consume from.", "orders"),
    "consumerid": Word("Consumer group.", "billing"),
    "ack": Word(
        "true: the message is leased until it is acknowledged. false: it is settled before it is sent.", "true"
    ),
    "waitmills": Word(
        f"A pull: how long to wait for a message, ms; more than {WAIT_MAX} counts as {WAIT_MAX}. A stream: end after"
        " this long without a message.",
        20000,
    ),
    "credit": Word("Unacknowledged messages allowed on the stream, or POSTs in flight to a callback.", 64),
    "maxmessages": Word("End the stream after so many messages; of a log, read no more at once.", 100),
    "log": Word("The log to read, as /v1/logs names it.", "00c0ffee00c0ffee/orders/3"),
    "callbackurl": Word("Where messages shall be posted; an empty value stops it.", "https://shop.example/orders"),
    "leasemills": Word("How long the message is this consumer's, ms from now.", 30000),
    "delaymills": Word("When the message is ready again, ms from now.", 5000),
    "receipt": Word("Receipts of leased messages, separated by commas.", "2f1c8e4a-1-5-0a1b2c3d4e5f6071"),
    "requestid": Word(
        "Under ack, a repeated pull with the same id gets the same message while its lease lives.", "p-1"
    ),
    "applied": Word(
        "What became of each field that asks for behaviour: native, emulated or ignored.", "priority=native"
    ),
    "offset": Word("The backend's own position of the message, where it is known; of a log, where to begin.", 41),
    "leaseuntil": Word("When the lease ends, ms since 1970.", 1767225630000),
    "error": Word("Code of the problem.", "lease-ended"),
    "retry-safe": Word("true: nothing was stored, and the same request may succeed later.", "true"),
}

CARRIED: Final[Mapping[str, str]] = {
    "contentType": "Media type of data.",
    "traceparent": "W3C trace context.",
    "tracestate": "W3C trace context; needs traceparent.",
}
"""Members of `extensionHeader` in the JSON form for what HTTP carries in headers of its own."""
