"""Every operation of the data port: what it takes, what it answers, how it can fail."""

from collections.abc import Mapping
from typing import Final, NamedTuple

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
    Internal,
    LeaseEnded,
    NotAcceptable,
    NotFound,
    OutcomeUnknown,
    PartitionUnknown,
    QuotaExceeded,
    ReceiptInvalid,
    Refused,
    RequestTimeout,
    TooManyInFlight,
    VersionUnsupported,
)
from bridge.message import FIELDS
from bridge.wire import block

Errors = tuple[type[BridgeError], ...]

ANY: Final[Errors] = (HeaderInvalid, HeaderRepeated, Forbidden, HeadersTooLarge, Internal)
"""What the door itself may answer, whatever the operation."""
_BODY: Final[Errors] = (BodyInvalid, RequestTimeout, BodyTooLarge)
_SPOKEN: Final[Errors] = (HeaderMissing, VersionUnsupported)
_SETTLE: Final[Errors] = (*_SPOKEN, DestinationInvalid, ReceiptInvalid, LeaseEnded)
_JSON: Final = "application/json"
_STORED: Final = (
    *("x-oms-h-messageid", "x-oms-h-storetimestamp", "x-oms-h-storehost", "x-oms-h-partition"),
    *("x-oms-offset", "x-oms-applied"),
)
_DELIVERED: Final = (
    *(f"x-oms-h-{field.name.lower()}" for field in FIELDS),
    *("x-oms-receipt", "x-oms-leaseuntil", "traceparent", "tracestate", "content-encoding"),
)
_TOGETHER: Final = (
    "Several receipts are judged one by one: the reply names those that failed, the others are done. x-oms-source and"
    " x-oms-consumerid may stand beside them; a receipt of another group is then a 400."
)


class Answer(NamedTuple):
    """One answer that is no error."""

    status: int
    meaning: str
    headers: tuple[str, ...] = ("x-oms-version",)
    media: str | None = None
    schema: str | None = None
    """Name of its body's schema."""


class Operation(NamedTuple):
    """One method of one path. Headers are named without their prefix."""

    name: str
    summary: str
    description: str
    answers: tuple[Answer, ...]
    errors: Errors = ()
    asks: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    """Of those, what a client must send as a header; where the query is read too, it may stand there instead."""
    query: bool = False
    """Whether each of them may come as a query parameter instead."""
    plain: Mapping[str, str] = {}
    """Ordinary HTTP headers of the request that matter."""


OPERATIONS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "/v1/messages": {
        "POST": Operation(
            name="produce",
            summary="Store one message or a batch",
            description="With x-oms-h-destination the request is one message: its fields and properties are headers,"
            " its body is the request's, of any content type. Without, it is a batch, and its content type says which"
            " form: multipart/mixed, each part one message with the same headers, or application/json, an array."
            " Every message of a batch is judged on its own. User properties travel as x-oms-p-<name>; every header of"
            " text may come extended (RFC 8187) under its name with *.",
            answers=(
                Answer(
                    200,
                    "Stored: the message, and the reply has no body; or every message of the batch, and its body is"
                    " that of 207.",
                    ("x-oms-version", *_STORED),
                ),
                Answer(
                    207,
                    "A batch of which at least one message was not stored. One result per message, in order; a problem"
                    " document for each that was not.",
                    media=_JSON,
                    schema="Results",
                ),
            ),
            errors=(
                *_SPOKEN,
                *_BODY,
                *(DestinationInvalid, DestinationUnknown, PartitionUnknown, ContentTypeUnsupported, Refused),
                *(FieldUnsupported, QuotaExceeded, TooManyInFlight, BackendFull, BackendUnavailable, OutcomeUnknown),
            ),
            asks=("version", "require"),
            required=("version",),
            plain={
                "content-encoding": "gzip, for one message: the same as x-oms-h-compression.",
                "traceparent": "W3C trace context, carried to the consumer; an invalid one is ignored.",
                "tracestate": "Carried with a valid traceparent.",
            },
        ),
        "GET": Operation(
            name="pull",
            summary="Take one message",
            description="Hands out the best message that is ready for the group, waiting for one if asked to."
            " x-oms-receipt acknowledges earlier messages of the same group first. The message has the form in which"
            " it was produced; its properties are x-oms-p-<name> headers.",
            answers=(
                Answer(200, "One message.", ("x-oms-version", *_DELIVERED), "*/*"),
                Answer(204, "There is none, or none came in time."),
            ),
            errors=(
                *(*_SETTLE, DestinationUnknown, TooManyInFlight, BackendUnavailable, Draining, OutcomeUnknown),
                *(BackendFull, Refused),
            ),
            asks=("version", "source", "consumerid", "ack", "waitmills", "leasemills", "receipt", "requestid"),
            required=("version", "source", "consumerid"),
            query=True,
            plain={"accept-encoding": "With gzip, a body that was stored as gzip is handed on as it is."},
        ),
    },
    "/v1/push": {
        "GET": Operation(
            name="push",
            summary="Take messages as they come",
            description="Many messages on one response, which stays open. accept chooses the framing: multipart/mixed,"
            " each part one message in the form in which it is produced, with its length; application/x-ndjson, each"
            " line one message in the JSON form, with receipt and leaseUntil beside it; text/event-stream, the same"
            " lines as data. Under ack the leases live as long as the stream; what is not acknowledged when it ends is"
            " ready again at once. A stream ends with the closing delimiter, or a line or event that says why; one"
            " that stops without was broken off. x-oms-receipt acknowledges earlier messages of the group first.",
            answers=(
                Answer(200, "Messages, until the stream ends.", ("x-oms-version",), "multipart/mixed"),
                Answer(200, "Messages, until the stream ends.", ("x-oms-version",), "application/x-ndjson"),
                Answer(200, "Messages, until the stream ends.", ("x-oms-version",), "text/event-stream"),
            ),
            errors=(
                *(*_SETTLE, NotAcceptable, DestinationUnknown, TooManyInFlight, BackendUnavailable, Draining),
                *(BackendFull, Refused, OutcomeUnknown),
            ),
            asks=(
                "version",
                "source",
                "consumerid",
                "ack",
                "credit",
                "maxmessages",
                "waitmills",
                "leasemills",
                "receipt",
            ),
            required=("version", "source", "consumerid"),
            query=True,
            plain={
                "accept": "Which framing; multipart/mixed when it leaves the choice.",
                "last-event-id": "Of a browser that comes back: the stream of that event ends, and without ack what"
                " was sent after it is sent again.",
            },
        ),
        "POST": Operation(
            name="register",
            summary="Have messages posted to a URL",
            description="From now on the bridge posts the messages of the group to x-oms-callbackurl, in the form in"
            " which they are produced and signed as Standard Webhooks says. A 2xx acknowledges. Registering again"
            " replaces the URL, an empty one stops it. Off until the setting callbacks.targets names the endpoints.",
            answers=(
                Answer(201, "Registered.", ("x-oms-version",), _JSON, "Callback"),
                Answer(200, "Registered, in the place of an earlier one.", ("x-oms-version",), _JSON, "Callback"),
                Answer(204, "Stopped, if there was one."),
            ),
            errors=(
                *(*_SPOKEN, DestinationInvalid, *_BODY, CallbackRefused, BackendFull, BackendUnavailable, Draining),
                *(Refused, OutcomeUnknown),
            ),
            asks=("version", "source", "consumerid", "callbackurl", "credit"),
            required=("version", "source", "consumerid", "callbackurl"),
            query=True,
        ),
    },
    "/v1/callbacks": {
        "GET": Operation(
            name="callbacks",
            summary="List the callbacks",
            description="Every registration of this bridge: where it stands, what was delivered, what failed last.",
            answers=(Answer(200, "The registrations, by name.", ("x-oms-version",), _JSON, "Callbacks"),),
        )
    },
    "/v1/ack": {
        "POST": Operation(
            name="ack",
            summary="Settle messages for good",
            description=f"Acknowledging twice is 204. {_TOGETHER}",
            answers=(Answer(204, "Done."),),
            errors=(*_SETTLE, *_BODY, BackendFull, BackendUnavailable, Refused, OutcomeUnknown),
            asks=("version", "receipt", "source", "consumerid"),
            required=("version", "receipt"),
            query=True,
        )
    },
    "/v1/nack": {
        "POST": Operation(
            name="nack",
            summary="Give messages back",
            description=f"They are ready again after the delay, and their keys wait as long. {_TOGETHER}",
            answers=(Answer(204, "Done."),),
            errors=(*_SETTLE, *_BODY),
            asks=("version", "receipt", "delaymills", "source", "consumerid"),
            required=("version", "receipt"),
            query=True,
        )
    },
    "/v1/extend": {
        "POST": Operation(
            name="extend",
            summary="Keep messages longer",
            description=f"Their leases last the given time from now, longer or shorter than before. {_TOGETHER}",
            answers=(Answer(204, "Done."),),
            errors=(*_SETTLE, *_BODY),
            asks=("version", "receipt", "leasemills", "source", "consumerid"),
            required=("version", "receipt"),
            query=True,
        )
    },
    "/v1/logs": {
        "GET": Operation(
            name="logs",
            summary="List the logs that can be read again",
            description="By log, `<epoch>/<destination>/<partition>`, the first offset kept and the next one. The epoch"
            " is another whenever offsets begin anew. For whoever copies everything, as the mirror does: there is no"
            " group and nothing is settled. Only the memory backend has it; others are read by their own clients.",
            answers=(Answer(200, "The logs in which there ever was a message.", ("x-oms-version",), _JSON, "Logs"),),
            errors=(*_SPOKEN, NotFound, BackendUnavailable),
            asks=("version",),
            required=("version",),
            query=True,
        )
    },
    "/v1/log": {
        "GET": Operation(
            name="replay",
            summary="Read a log again",
            description="The messages of one log from x-oms-offset on, at most x-oms-maxmessages, as one block: columns"
            " in JSON, then the bodies. It says where to go on and which offsets held messages that are gone. The same"
            " offsets hold the same messages for as long as the log has its name.",
            answers=(Answer(200, "What is there; none at the end.", ("x-oms-version",), block.MEDIA_TYPE),),
            errors=(*_SPOKEN, NotFound, DestinationUnknown, BackendUnavailable),
            asks=("version", "log", "offset", "maxmessages"),
            required=("version", "log"),
            query=True,
        )
    },
    "/v1/capabilities": {
        "GET": Operation(
            name="capabilities",
            summary="What this bridge can do",
            description="For each field that asks for behaviour: native, emulated or unsupported. And the limits.",
            answers=(Answer(200, "The same for every destination.", (), _JSON, "Capabilities"),),
        )
    },
    "/openapi.json": {
        "GET": Operation(
            name="openapi",
            summary="This document",
            description="OpenAPI 3.1.",
            answers=(Answer(200, "The document.", (), _JSON),),
        )
    },
    "/docs": {
        "GET": Operation(
            name="docs",
            summary="This document, to be read",
            description="One page without scripts that loads nothing.",
            answers=(Answer(200, "The page.", ("content-security-policy",), "text/html"),),
        )
    },
}
