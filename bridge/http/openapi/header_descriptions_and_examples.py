"""What OpenAPI says of each header in words, and example requests as curl commands; a test sends each of them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.engine.pull_and_prefetch import WAIT_MAX
from bridge.http.request_and_reply import (
    CALLBACK_BATCH_MAX,
)
from bridge.message import DEFAULT_PRIORITY, PRIORITIES


class Description(NamedTuple):
    """One header. Its name is given without the prefix."""

    meaning: str
    example: str | int | None = None


FIELD_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "destination": Description("Queue or topic of the message. Without it, the request is a batch.", "orders"),
    "messageId": Description(
        "Identity of the message, without control characters. Default: a UUIDv7.", "0198f0a2-order-7"
    ),
    "bornTimestamp": Description(
        "When the producer made the message, ms since 1970. Default: when the bridge received it.", 1767225600000
    ),
    "bornHost": Description("Host of the producer. Default: its address.", "10.0.0.7:51234"),
    "qos": Description("0 at least once, 1 at most once, 2 exactly once.", 0),
    "compression": Description("The body is gzip. It is inflated for consumers that do not accept gzip.", "gzip"),
    "partition": Description("Partition to store the message in. Default: by its key; without a key, in rotation.", 3),
    "storeTimestamp": Description("When the bridge stored the message, ms since 1970. A producer's value is replaced."),
    "storeHost": Description("Bridge that stored the message. A producer's value is replaced."),
    "messageKey": Description(
        "Messages of one key share a partition and reach a group in stored order.", "customer-12"
    ),
    "correlationId": Description("Sent on to the consumer.", "request-77"),
    "traceId": Description(
        "Sent on to the consumer. Default: the trace id of traceparent.", "4bf92f3577b34da6a3ce929d0e0e4736"
    ),
    "transactionId": Description(
        "Sent on to the consumer. With x-oms-transaction: the transaction of the message; default: a UUIDv7.", "tx-9"
    ),
    "delayTime": Description(
        "Deliver no earlier than this long after bornTimestamp, ms. At most 366 days from now.", 60000
    ),
    "expireTime": Description(
        "Do not deliver from this time on, ms since 1970. At or before bornTimestamp: never expires."
    ),
    "priority": Description(
        f"{PRIORITIES[0]} to {PRIORITIES[-1]}, {PRIORITIES[-1]} first. Default, and for other numbers:"
        f" {DEFAULT_PRIORITY}.",
        9,
    ),
    "durability": Description("1: persisted before the 200. 0: not necessarily.", 1),
    "deliveryCount": Description(
        "Number of this delivery to the group; the first is 1. A producer's value is dropped.", 1
    ),
}

PARAMETER_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "version": Description("Version of OpenMessaging.", "1.0.0"),
    "require": Description(
        "Fields that must be honoured, and headers: consumers get the message as headers, not in the JSON form. If one"
        " cannot, 422, and nothing is stored.",
        "delayTime",
    ),
    "source": Description("Destination to consume from.", "orders"),
    "consumerid": Description("Consumer group.", "billing"),
    "ack": Description(
        "true: the message is leased until it is acknowledged. false: it is settled before it is sent.", "true"
    ),
    "waitmills": Description(
        f"Pull: how long to wait for a message, ms, by default 0; more than {WAIT_MAX} counts as {WAIT_MAX}. Push: end"
        " the stream after this time without a message, by default never.",
        20000,
    ),
    "credit": Description(
        "Push: unacknowledged messages allowed; without this header 64, or as many as were settled in the last 0.1 s."
        " Callback: POSTs in flight.",
        64,
    ),
    "maxmessages": Description(
        "Push: end the stream after this number of messages. Callback: messages of one POST, at most"
        f" {CALLBACK_BATCH_MAX}. Log: messages in one block.",
        100,
    ),
    "log": Description("The log to read, as /v1/logs names it.", "00c0ffee00c0ffee/orders/3"),
    "callbackurl": Description(
        "URL to post messages to; an empty value stops the callback.", "https://shop.example/in"
    ),
    "leasemills": Description("Duration of the lease from now, ms.", 30000),
    "delaymills": Description("Time from now until the message is ready again, ms.", 5000),
    "receipt": Description("Receipts of leased messages, separated by commas.", "2f1c8e4a-1-5-0a1b2c3d4e5f6071"),
    "requestid": Description(
        "With ack: a repeated pull with the same id returns the same message while its lease lasts.", "p-1"
    ),
    "transaction": Description(
        "prepare: the message is stored, and no consumer gets it before the transaction is committed. commit: the"
        " transaction is committed with the message.",
        "prepare",
    ),
    "transaction-timeout": Description(
        "How long the transaction may stay open after its first message, ms; then it is checked or rolled back.", 60000
    ),
    "transaction-check": Description(
        "URL that is asked after the timeout whether to commit.", "https://shop.example/transactions"
    ),
    "applied": Description(
        "For each field that requests a behaviour of the backend: native, emulated or ignored.", "priority=native"
    ),
    "offset": Description("Position of the message in the backend, if it is known. Log: where to start.", 41),
    "duplicate": Description("true: an earlier message of the same name was stored, and this one was not.", "true"),
    "leaseuntil": Description("End of the lease, ms since 1970.", 1767225630000),
    "error": Description("Code of the problem.", "lease-ended"),
    "form": Description(
        "json: the body has what is usually in the headers, as not every client could read them: of a pull, the message"
        " in the JSON form with its receipt; of a produce, the result.",
        "json",
    ),
    "retry-safe": Description("true: nothing was stored, and the same request may succeed later.", "true"),
}

HTTP_MEMBERS: Final[Mapping[str, str]] = {
    "contentType": "Media type of data.",
    "traceparent": "W3C trace context.",
    "tracestate": "W3C trace context; only with traceparent.",
}
"""Members of `extensionHeader` in the JSON form that are ordinary HTTP headers in the other forms."""


class Example(NamedTuple):
    """One request."""

    title: str
    command: str


EXAMPLES: Final[Mapping[str, tuple[Example, ...]]] = {
    "produce": (
        Example(
            "One message: the fields and properties are headers, the body is the payload",
            """\
curl -i http://localhost:8080/v1/messages \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-h-destination: orders' \\
  -H 'x-oms-h-messagekey: customer-12' \\
  -H 'x-oms-p-region: eu' \\
  -H 'content-type: application/json' \\
  -d '{"id": 7}'""",
        ),
        Example(
            "A batch of two messages in JSON; data is the body in base64",
            """\
curl http://localhost:8080/v1/messages \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'content-type: application/json' \\
  -d '[{"header": {"destination": "orders"}, "data": "eyJpZCI6IDh9"},
       {"header": {"destination": "orders"}, "data": "eyJpZCI6IDl9"}]'""",
        ),
    ),
    "produceByUrl": (
        Example(
            "The body is the payload, the fields are query parameters; no header is needed",
            """\
curl -i 'http://localhost:8080/v1/destinations/alerts/messages?key=disk&delay=5s' \\
  -d '{"disk": "full"}'""",
        ),
    ),
    "produceStream": (
        Example(
            "A message on each line; the response has a line for each while more are sent, for example from a pipe",
            """\
curl -N http://localhost:8080/v1/stream \
  -H 'x-oms-version: 1.0.0' \
  -H 'content-type: application/x-ndjson' \
  -d '{"header": {"destination": "orders"}, "data": "eyJpZCI6IDEwfQ=="}'""",
        ),
    ),
    "pull": (
        Example(
            "One message of the group billing, leased until it is acknowledged; waits up to 5 s for it",
            """\
curl -i http://localhost:8080/v1/messages \\
  -G -H 'x-oms-version: 1.0.0' \\
  -d source=orders -d consumerid=billing \\
  -d ack=true -d waitmills=5000""",
        ),
    ),
    "ack": (
        Example(
            "RECEIPT: the value of x-oms-receipt in the reply to the pull",
            """\
curl -i -X POST http://localhost:8080/v1/ack \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-receipt: RECEIPT'""",
        ),
    ),
    "push": (
        Example(
            "All messages of the group audit, one line of JSON each, until the client ends the stream",
            """\
curl -N http://localhost:8080/v1/push \\
  -G -H 'x-oms-version: 1.0.0' \\
  -H 'accept: application/x-ndjson' \\
  -d source=orders -d consumerid=audit""",
        ),
    ),
    "register": (
        Example(
            "Post the messages of the group shop to a URL that callbacks.targets allows",
            """\
curl -i -X POST http://localhost:8080/v1/push \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-source: orders' \\
  -H 'x-oms-consumerid: shop' \\
  -H 'x-oms-callbackurl: https://shop.example/orders'""",
        ),
        Example(
            "The same in batches of up to 100 messages, as arrays of JSON",
            """\
curl -i -X POST http://localhost:8080/v1/push \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-source: orders' \\
  -H 'x-oms-consumerid: shop' \\
  -H 'x-oms-callbackurl: https://shop.example/orders' \\
  -H 'x-oms-maxmessages: 100' \\
  -H 'accept: application/json'""",
        ),
    ),
    "callbacks": (Example("Every registration with its state", "curl http://localhost:8080/v1/callbacks"),),
}
