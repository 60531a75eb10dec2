"""Every operation of the data port: its parameters, its responses, its errors. The table behind OpenAPI and `/docs`."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.cloudevents import REQUIRED
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    CallbackRefused,
    ContentTypeUnsupported,
    DestinationInvalid,
    DestinationUnknown,
    Draining,
    FieldUnsupported,
    Forbidden,
    HeaderInvalid,
    HeaderMissing,
    HeaderRepeated,
    HeadersTooLarge,
    IdempotencyMismatch,
    Internal,
    LeaseEnded,
    LimitReached,
    NotAcceptable,
    NotFound,
    OutcomeUnknown,
    PartitionUnknown,
    QuotaExceeded,
    ReceiptInvalid,
    Refused,
    RequestMalformed,
    RequestTimeout,
    SignatureInvalid,
    TooManyInFlight,
    TransactionEnded,
    TransactionUnknown,
    VersionUnsupported,
)
from bridge.http.params import (
    DESTINATION_MESSAGE,
    DESTINATION_MESSAGES,
    TRANSACTION,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
)
from bridge.message import FIELDS
from bridge.wire import jsonform, log_block
from bridge.wire.cloudevents import Mode
from bridge.wire.query_fields import QUERY_NAMES, REQUIRE

Errors = tuple[type[BridgeError], ...]

COMMON_ERRORS: Final[Errors] = (RequestMalformed, HeaderInvalid, HeaderRepeated, Forbidden, HeadersTooLarge, Internal)
"""Errors of every operation."""
_BODY: Final[Errors] = (BodyInvalid, RequestTimeout, BodyTooLarge)
_VERSION: Final[Errors] = (HeaderMissing, VersionUnsupported)
_PUBLISH: Final[Errors] = (
    *(*_BODY, HeaderMissing, VersionUnsupported, SignatureInvalid),
    *(DestinationInvalid, DestinationUnknown, PartitionUnknown, ContentTypeUnsupported, Refused),
    *(FieldUnsupported, IdempotencyMismatch, QuotaExceeded, LimitReached, TooManyInFlight, BackendFull),
    *(BackendUnavailable, OutcomeUnknown, CallbackRefused, TransactionEnded),
)
_TRANSACTION: Final[Errors] = (*_VERSION, FieldUnsupported, BackendUnavailable)
_END: Final[Errors] = (
    *(*_TRANSACTION, *_BODY, TransactionUnknown, TransactionEnded, DestinationUnknown, PartitionUnknown, Refused),
    *(LimitReached, BackendFull, OutcomeUnknown),
)
_RECEIPT: Final[Errors] = (*_VERSION, DestinationInvalid, ReceiptInvalid, LeaseEnded)
_SETTLE: Final[Errors] = (*_RECEIPT, *_BODY, ContentTypeUnsupported)
_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_LARGE: Final = jsonform.MEDIA_TYPE.decode("ascii")
_STORED_HEADERS: Final = (
    *("x-oms-h-messageid", "x-oms-h-transactionid", "x-oms-h-storetimestamp", "x-oms-h-storehost", "x-oms-h-partition"),
    *("x-oms-offset", "x-oms-applied", "x-oms-duplicate", "x-oms-form"),
)
_DELIVERED_HEADERS: Final = (
    *(f"x-oms-h-{field.name.lower()}" for field in FIELDS),
    *("x-oms-receipt", "x-oms-leaseuntil", "x-oms-form", "traceparent", "tracestate", "content-encoding"),
)
_SET_BY_BRIDGE: Final = frozenset({"storeTimestamp", "storeHost", "deliveryCount"})
_FIELDS_BY_URL: Final = tuple(
    field.name for field in FIELDS if field.name not in _SET_BY_BRIDGE and field.name != "destination"
)
_PRODUCE_HEADERS: Final = {
    "idempotency-key": "Names the message, or the batch: a retry with the same key stores nothing again.",
    **{
        f"ce-{name}": "Of a CloudEvent in binary mode, whose attributes are headers `ce-NAME`, percent-encoded; its"
        " other attributes may follow."
        for name in REQUIRED
    },
    "content-encoding": "`gzip`, for one message: the same as `x-oms-h-compression: gzip`.",
    "traceparent": "W3C trace context, sent on to the consumer; an invalid one is ignored.",
    "tracestate": "Sent on with a valid `traceparent`.",
}
_BY_URL: Final = (
    "Each field may be a query parameter or a header; both with different values are a 400. `delay` and `expire` are"
    " durations such as `500ms`, `5s`, `2m`, `1h` or `7d`. Properties are headers `x-oms-p-NAME`. A batch is not taken"
    " here: `multipart/mixed` is the payload, too. CloudEvents are read as such, also a batch of them."
)
_TRANSACTION_PARAMETERS: Final = ("transaction", "transaction-timeout", "transaction-check")
_RECEIPTS: Final = (
    "The receipts are in `x-oms-receipt` or, if there are many, in the body; one of both is required. Several receipts"
    " are processed one by one: the response names those that failed. `x-oms-source` and"
    " `x-oms-consumerid` are optional; with them, a receipt of another group is a 400."
)


class Response(NamedTuple):
    """One response that is not an error."""

    status: int
    description: str
    headers: tuple[str, ...] = ("x-oms-version",)
    media_type: str | None = None
    schema: str | None = None
    """Name of the schema of its body."""


class Operation(NamedTuple):
    """One method of one path. Parameters are named without `x-oms-`; texts may contain code in backticks."""

    name: str
    summary: str
    description: str
    responses: tuple[Response, ...]
    errors: Errors = ()
    parameters: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    """The parameters that a client must send, as a header or, if `query` is set, in the query."""
    query: bool = False
    """Whether each parameter may be a query parameter instead of a header."""
    http_headers: Mapping[str, str] = {}
    """Ordinary HTTP headers of the request and their meaning."""
    fields: tuple[str, ...] = ()
    """The fields of a message that may be headers of the request."""
    path_fields: tuple[str, ...] = ()
    """The fields in the path, by their names there."""
    query_names: Mapping[str, str] = {}
    """Query parameters with names of their own, and the field or parameter that each of them sets."""
    line: str | None = None
    """Name of the schema of a line of the request's body."""
    body: str | None = None
    """Name of the schema of the request's body in JSON, which is optional."""


_STORED_BY_URL: Final = (
    Response(
        200,
        "Stored. Headers and body say where; for a batch of CloudEvents, the body is that of 207.",
        ("x-oms-version", *_STORED_HEADERS),
        _JSON,
        "StoredByUrl",
    ),
    Response(
        207,
        "A batch of CloudEvents of which at least one was not stored. One result for each, in order.",
        media_type=_JSON,
        schema="Results",
    ),
)
_TRANSACTION_REPLY: Final = (Response(200, "The transaction.", ("x-oms-version",), _JSON, "Transaction"),)
_EVENT_FRAMINGS: Final = "With the parameter `format=cloudevents`, each message is a CloudEvent"


OPERATIONS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "/v1/messages": {
        "POST": Operation(
            name="produce",
            summary="Store one message or a batch",
            description="With `x-oms-h-destination`, the request is one message: its fields and properties are"
            " headers, its body is the payload, of any content type. Without it, the request is a batch, and the"
            " content type says in which form: `multipart/mixed`, where each part is one message with the same headers,"
            " or `application/json`, an array. Each message of a batch is stored or refused on its own.\n\nUser"
            " properties are headers `x-oms-p-NAME`. Header names have no upper case: `x-oms-p-Region` becomes the"
            " property `region`. Write an upper-case letter as `%xx`: `x-oms-p-%52egion` is the property `Region`. The"
            " JSON form keeps names as they are.\n\nA CloudEvent is read as such, in binary, structured or batched"
            " mode; `x-oms-h-destination` names its destination.",
            responses=(
                Response(
                    200,
                    "Stored. For one message, the headers say where and the body is empty; for a batch, the body is"
                    " that of 207.",
                    ("x-oms-version", *_STORED_HEADERS),
                ),
                Response(
                    207,
                    "A batch of which at least one message was not stored. One result for each message, in order: where"
                    " it is stored, or a problem document.",
                    media_type=_JSON,
                    schema="Results",
                ),
            ),
            errors=_PUBLISH,
            parameters=("version", "require", *_TRANSACTION_PARAMETERS),
            required=("version",),
            fields=tuple(field.name for field in FIELDS if field.name not in _SET_BY_BRIDGE),
            http_headers=_PRODUCE_HEADERS,
        ),
        "GET": Operation(
            name="pull",
            summary="Get one message",
            description="Returns the ready message with the highest priority, oldest first. If none is ready, it waits"
            " for one as long as `x-oms-waitmills` says. `x-oms-receipt` acknowledges earlier messages of the same"
            " group first. The message has the form in which it was produced; its properties are `x-oms-p-NAME`"
            " headers. With more than 64 properties or 4 KiB of headers, which not every client reads, the body is the"
            f" message in the JSON form, `{_LARGE}`, and `x-oms-form` is `json`.",
            responses=(
                Response(200, "One message.", ("x-oms-version", *_DELIVERED_HEADERS), "*/*"),
                Response(200, "One message.", ("x-oms-version", *_DELIVERED_HEADERS), Mode.STRUCTURED.value, "Event"),
                Response(200, "One message.", ("x-oms-version", *_DELIVERED_HEADERS), _LARGE, "Delivered"),
                Response(204, "No message is ready, or none became ready in time."),
            ),
            errors=(
                *(*_RECEIPT, DestinationUnknown, TooManyInFlight, BackendUnavailable, Draining, OutcomeUnknown),
                *(BackendFull, Refused, LimitReached),
            ),
            parameters=("version", "source", "consumerid", "ack", "waitmills", "leasemills", "receipt", "requestid"),
            required=("version", "source", "consumerid"),
            query=True,
            http_headers={
                "accept": f"`{Mode.BINARY.value}` or `{Mode.STRUCTURED.value}`: the message is sent as a CloudEvent in"
                " binary or structured mode.",
                "accept-encoding": "With `gzip`, a body that is stored as gzip is sent as gzip.",
            },
        ),
    },
    DESTINATION_MESSAGES: {
        "POST": Operation(
            name="produceByUrl",
            summary="Store one message without any header",
            description=f"The body is the payload of one message, of any content type. {_BY_URL}",
            responses=_STORED_BY_URL,
            errors=_PUBLISH,
            parameters=("version", "require", *_TRANSACTION_PARAMETERS),
            fields=_FIELDS_BY_URL,
            path_fields=("destination",),
            query_names={**QUERY_NAMES, REQUIRE: REQUIRE},
            http_headers=_PRODUCE_HEADERS,
        ),
    },
    DESTINATION_MESSAGE: {
        "PUT": Operation(
            name="produceWithId",
            summary="Store one message under the id of its producer",
            description="As POST without the last part of the path, which is the messageId here. A repeated PUT"
            f" stores nothing within `dedup.window`. {_BY_URL}",
            responses=_STORED_BY_URL,
            errors=_PUBLISH,
            parameters=("version", "require", *_TRANSACTION_PARAMETERS),
            fields=tuple(name for name in _FIELDS_BY_URL if name != "messageId"),
            path_fields=("destination", "messageId"),
            query_names={
                **{name: field for name, field in QUERY_NAMES.items() if field != "messageId"},
                REQUIRE: REQUIRE,
            },
            http_headers=_PRODUCE_HEADERS,
        ),
    },
    "/v1/stream": {
        "POST": Operation(
            name="produceStream",
            summary="Store messages while the request is sent",
            description="Each line of the body is one message in the JSON form, and has a result on a line of the"
            " response, in the same order, as soon as it is stored or refused. A refused line does not end the stream."
            " The last line of the response says why the stream ended: `complete`, `draining` or the code of an error;"
            " a line without a result was not stored then. If this line is missing, the outcome of the lines without"
            " a result is unknown.",
            responses=(
                Response(200, "The results, while the body is sent.", ("x-oms-version",), _NDJSON, "ProduceStreamLine"),
            ),
            errors=(
                *_VERSION,
                *(ContentTypeUnsupported, LimitReached, TooManyInFlight, BackendUnavailable, Draining),
            ),
            parameters=("version", "require"),
            required=("version",),
            http_headers={"idempotency-key": "Names, with its number, each line without a messageId."},
            line="Message",
        ),
    },
    "/v1/transactions": {
        "GET": Operation(
            name="transactions",
            summary="List the open transactions",
            description="Those of all bridges on the backend, the oldest first.",
            responses=(Response(200, "The open transactions.", ("x-oms-version",), _JSON, "Transactions"),),
            errors=_TRANSACTION,
            parameters=("version",),
            required=("version",),
            query=True,
        )
    },
    TRANSACTION: {
        "GET": Operation(
            name="transaction",
            summary="Look a transaction up",
            description="A transaction that has ended is known for at least an hour.",
            responses=_TRANSACTION_REPLY,
            errors=(*_TRANSACTION, TransactionUnknown),
            parameters=("version",),
            required=("version",),
            query=True,
            path_fields=("transactionId",),
        )
    },
    TRANSACTION_COMMIT: {
        "POST": Operation(
            name="commitTransaction",
            summary="Commit a transaction",
            description="All its messages are stored, in the order in which they were prepared. A repeated commit also"
            " returns 200.",
            responses=_TRANSACTION_REPLY,
            errors=_END,
            parameters=("version",),
            required=("version",),
            query=True,
            path_fields=("transactionId",),
        )
    },
    TRANSACTION_ROLLBACK: {
        "POST": Operation(
            name="rollbackTransaction",
            summary="Roll a transaction back",
            description="All its messages are dropped. A repeated rollback also returns 200.",
            responses=_TRANSACTION_REPLY,
            errors=_END,
            parameters=("version",),
            required=("version",),
            query=True,
            path_fields=("transactionId",),
        )
    },
    "/v1/push": {
        "GET": Operation(
            name="push",
            summary="Get messages on one long response",
            description="The response stays open and carries many messages. `accept` chooses the framing:"
            " `multipart/mixed`, where each part is one message in the form of a produce, with its length;"
            " `application/x-ndjson`, where each line is one message in the JSON form with `receipt` and `leaseUntil`;"
            " `text/event-stream`, with the same lines as data.\n\nWith `x-oms-ack: true`, leases are extended while"
            " the stream is open. When it ends, messages that are not acknowledged are ready again at once. A stream"
            " ends with the closing delimiter, or with a line or event that gives the reason; a stream without this end"
            " was cut off. `x-oms-receipt` acknowledges earlier messages of the group first.",
            responses=(
                Response(200, "Messages, until the stream ends.", ("x-oms-version",), "multipart/mixed"),
                Response(200, "Messages, until the stream ends.", ("x-oms-version",), _NDJSON),
                Response(200, "Messages, until the stream ends.", ("x-oms-version",), "text/event-stream"),
            ),
            errors=(
                *(*_RECEIPT, NotAcceptable, DestinationUnknown, TooManyInFlight, BackendUnavailable, Draining),
                *(BackendFull, Refused, LimitReached, OutcomeUnknown),
            ),
            parameters=(
                *("version", "source", "consumerid", "ack", "credit", "maxmessages", "waitmills", "leasemills"),
                "receipt",
            ),
            required=("version", "source", "consumerid"),
            query=True,
            http_headers={
                "accept": f"The framing; `multipart/mixed` without a preference. {_EVENT_FRAMINGS}.",
                "last-event-id": "Sent by a browser that reconnects: the earlier stream ends, and without"
                " acknowledgement the messages after that event are sent again.",
            },
        ),
        "POST": Operation(
            name="register",
            summary="Have messages posted to a URL",
            description="From now on, the bridge posts the messages of the group to `x-oms-callbackurl`, in the form in"
            " which a pull returns them, and signed as Standard Webhooks says. A 2xx acknowledges a message. With"
            " `x-oms-maxmessages`, each POST is a batch of up to that number of messages. A second registration"
            " replaces the first; an empty URL stops the callback. Callbacks are disabled until the setting"
            " `callbacks.targets` names the allowed endpoints.",
            responses=(
                Response(201, "Registered.", ("x-oms-version",), _JSON, "Callback"),
                Response(
                    200, "Registered; it replaces an earlier registration.", ("x-oms-version",), _JSON, "Callback"
                ),
                Response(204, "Stopped, if there was a registration."),
            ),
            errors=(
                *(
                    *_VERSION,
                    DestinationInvalid,
                    *_BODY,
                    CallbackRefused,
                    LimitReached,
                    BackendFull,
                    BackendUnavailable,
                    Draining,
                ),
                *(Refused, OutcomeUnknown, NotAcceptable),
            ),
            parameters=("version", "source", "consumerid", "callbackurl", "credit", "maxmessages"),
            required=("version", "source", "consumerid", "callbackurl"),
            query=True,
            http_headers={
                "accept": f"The form of a batch; `multipart/mixed` without a preference. {_EVENT_FRAMINGS}, and"
                f" `{Mode.BATCHED.value}` is an array of them. Without `x-oms-maxmessages`: `{Mode.BINARY.value}` or"
                f" `{Mode.STRUCTURED.value}`, if each message is posted as a CloudEvent."
            },
        ),
    },
    "/v1/callbacks": {
        "GET": Operation(
            name="callbacks",
            summary="List the callbacks",
            description="Every registration of this bridge: its state, its counts and its latest failures.",
            responses=(Response(200, "The registrations, by name.", ("x-oms-version",), _JSON, "Callbacks"),),
        )
    },
    "/v1/ack": {
        "POST": Operation(
            name="ack",
            summary="Acknowledge messages",
            description="The group will not receive these messages again. A repeated acknowledgement also returns 204."
            f" {_RECEIPTS}",
            responses=(Response(204, "Acknowledged."),),
            errors=(*_SETTLE, BackendFull, BackendUnavailable, Refused, OutcomeUnknown),
            parameters=("version", "receipt", "source", "consumerid"),
            required=("version",),
            body="Receipts",
            query=True,
        )
    },
    "/v1/nack": {
        "POST": Operation(
            name="nack",
            summary="Return messages to the group",
            description="They are ready again after the delay; until then, later messages of the same keys wait."
            f" {_RECEIPTS}",
            responses=(Response(204, "Returned."),),
            errors=_SETTLE,
            parameters=("version", "receipt", "delaymills", "source", "consumerid"),
            required=("version",),
            body="Receipts",
            query=True,
        )
    },
    "/v1/extend": {
        "POST": Operation(
            name="extend",
            summary="Extend leases",
            description=f"The leases end the given time from now, which may be earlier than before. {_RECEIPTS}",
            responses=(Response(204, "Extended."),),
            errors=_SETTLE,
            parameters=("version", "receipt", "leasemills", "source", "consumerid"),
            required=("version",),
            body="Receipts",
            query=True,
        )
    },
    "/v1/logs": {
        "GET": Operation(
            name="logs",
            summary="List the logs",
            description="For each log, `EPOCH/DESTINATION/PARTITION`, the first offset kept and the next one. The epoch"
            " changes whenever offsets start again at 0. Logs are for programs that copy all messages, such as the"
            " mirror: there is no group, and nothing is acknowledged. Only the memory backend has logs here; read those"
            " of other backends with their own clients.",
            responses=(Response(200, "The logs that ever had a message.", ("x-oms-version",), _JSON, "Logs"),),
            errors=(*_VERSION, NotFound, BackendUnavailable),
            parameters=("version",),
            required=("version",),
            query=True,
        )
    },
    "/v1/log": {
        "GET": Operation(
            name="replay",
            summary="Read a log",
            description="The messages of one log from `x-oms-offset` on, at most `x-oms-maxmessages`, as one block:"
            " columns in JSON, then the bodies. The block says where the next one starts and which offsets had messages"
            " that no longer exist. An offset has the same message as long as the log has the same name.",
            responses=(Response(200, "The messages; none at the end.", ("x-oms-version",), log_block.MEDIA_TYPE),),
            errors=(*_VERSION, NotFound, DestinationUnknown, BackendUnavailable),
            parameters=("version", "log", "offset", "maxmessages"),
            required=("version", "log"),
            query=True,
        )
    },
    "/v1/capabilities": {
        "GET": Operation(
            name="capabilities",
            summary="What this bridge supports",
            description="For each field that requests a behaviour of the backend: native, emulated or unsupported. And"
            " the limits.",
            responses=(Response(200, "The same for every destination.", (), _JSON, "Capabilities"),),
        )
    },
    "/openapi.json": {
        "GET": Operation(
            name="openapi",
            summary="This description as OpenAPI 3.1",
            description="The OpenAPI document.",
            responses=(Response(200, "The document.", (), _JSON),),
        )
    },
    "/asyncapi.json": {
        "GET": Operation(
            name="asyncapi",
            summary="Messages and their channels as AsyncAPI 3.1",
            description="The AsyncAPI document.",
            responses=(Response(200, "The document.", (), _JSON),),
        )
    },
    "/docs": {
        "GET": Operation(
            name="docs",
            summary="This description as a page",
            description="One page without scripts that loads nothing else.",
            responses=(Response(200, "The page.", ("content-security-policy",), "text/html"),),
        )
    },
}
