"""JSON schemas of every header and document of the data port in OpenAPI."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from adapters.base import TransactionState
from bridge.callbacks.allowed_targets import URL_MAX
from bridge.callbacks.registration import FAILURES_KEPT
from bridge.callbacks.registry import STATES
from bridge.cloudevents import REQUIRED, SPEC_VERSION
from bridge.engine.destination_names import INTERNAL_PREFIXES, NAME_MAX
from bridge.engine.push_consumer import CREDIT, CREDIT_MAX
from bridge.errors import BridgeError, error_classes
from bridge.http.openapi.header_descriptions_and_examples import (
    FIELD_DESCRIPTIONS,
    HTTP_MEMBERS,
    PARAMETER_DESCRIPTIONS,
)
from bridge.http.params import REQUIRE_HEADERS
from bridge.http.request_and_reply import (
    NACK_DELAY_MAX,
    RECEIPTS_MAX,
    REQUEST_ID_MAX,
    TRANSACTION_TIMEOUT,
    TRANSACTION_TIMEOUT_MAX,
    Limits,
)
from bridge.message import FIELDS, LONG_MAX, Field
from bridge.wire.callback_batch import FORMS
from bridge.wire.cloudevents import Mode

Schema = dict[str, Any]

_LIMITS = (
    *("body", "headers", "batch", "waitMills", "leaseMills", "nackDelayMills", "transactionMills", "maxDeliveries"),
)


_STATES: Final = [state.value for state in TransactionState]


DURATION: Final[Schema] = {
    "type": "string",
    "title": "number and ms, s, m, h or d",
    "pattern": "^[0-9]{1,19}(ms|[smhd])$",
}


def name_schema() -> Schema:
    """Describe the name of a destination or group."""
    internal = "|".join(prefix.replace(".", r"\.") for prefix in INTERNAL_PREFIXES)
    return {
        "type": "string",
        "title": f"1 to {NAME_MAX} of A-Z a-z 0-9 . _ -",
        "pattern": rf"^(?!\.{{1,2}}$)(?!{internal})[A-Za-z0-9._-]{{1,{NAME_MAX}}}$",
    }


def field_schema(field: Field) -> Schema:
    """Describe a header field's values."""
    if field.name == "destination":
        return name_schema()
    if field.name == "compression":
        return {"type": "string", "enum": ["gzip"]}
    if field.maximum is not None:
        return whole(0, field.maximum)
    return {"type": "string", "minLength": 1} if field.required else {"type": "string"}


def parameter_schemas(limits: Limits) -> Mapping[str, Schema]:
    """Describe the values of every header that is not a field."""
    features = [field.name for field in FIELDS if field.is_feature]
    return {
        "version": {"type": "string", "title": "1.x.y", "pattern": r"^1\.[0-9]{1,9}\.[0-9]{1,9}$"},
        "require": {"type": "array", "items": {"enum": [*features, REQUIRE_HEADERS]}},
        "source": name_schema(),
        "consumerid": name_schema(),
        "ack": {"type": "boolean", "default": False},
        "waitmills": whole(0, LONG_MAX),
        "credit": whole(1, CREDIT_MAX) | {"default": CREDIT},
        "maxmessages": whole(1, LONG_MAX),
        "log": {"type": "string", "minLength": 1},
        "callbackurl": {"type": "string", "maxLength": URL_MAX},
        "leasemills": whole(1, limits.max_lease) | {"default": limits.lease},
        "delaymills": whole(0, NACK_DELAY_MAX) | {"default": 0},
        "receipt": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": RECEIPTS_MAX},
        "requestid": {"type": "string", "minLength": 1, "maxLength": REQUEST_ID_MAX},
        "transaction": {"type": "string", "enum": ["prepare", "commit"]},
        "transaction-timeout": whole(1, TRANSACTION_TIMEOUT_MAX) | {"default": TRANSACTION_TIMEOUT},
        "transaction-check": {"type": "string", "maxLength": URL_MAX},
        "applied": {"type": "string"},
        "offset": whole(0, LONG_MAX),
        "duplicate": {"type": "string", "enum": ["true"]},
        "leaseuntil": whole(0, LONG_MAX),
        "error": {"type": "string"},
        "retry-safe": {"type": "string", "enum": ["true"]},
        "form": {"type": "string", "enum": ["json"]},
    }


def whole(minimum: int, maximum: int) -> Schema:
    """Describe a whole number."""
    return {"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum}


def message_schema() -> Schema:
    """Describe the specification's JSON form of a message."""
    return closed(
        {
            "version": {"type": "string", "description": PARAMETER_DESCRIPTIONS["version"].meaning},
            "header": closed(_members("header"), required=["destination"]),
            "extensionHeader": closed(
                _members("extensionHeader")
                | {name: {"type": "string", "description": meaning} for name, meaning in HTTP_MEMBERS.items()}
            ),
            "properties": {
                "type": "object",
                "description": "User properties; names keep their upper case. A number becomes its JSON text.",
                "additionalProperties": {"type": ["string", "number"]},
            },
            "data": {"type": "string", "contentEncoding": "base64", "description": "The body."},
        },
        required=["header"],
    )


def delivered_schema() -> Schema:
    """Describe a message in the JSON form with its lease, by references to the schema of a message."""
    members = {
        name: {"$ref": f"#/components/schemas/Message/properties/{name}"} for name in message_schema()["properties"]
    }
    lease = {
        "receipt": {"type": "string", "description": PARAMETER_DESCRIPTIONS["receipt"].meaning},
        "leaseUntil": {"type": "integer", "description": PARAMETER_DESCRIPTIONS["leaseuntil"].meaning},
    }
    return closed(members | lease, required=["header"])


def closed(properties: Schema, *, required: Iterable[str] = ()) -> Schema:
    """Describe an object with these members and no others."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def _members(section: str) -> Schema:
    return {
        field.name: field_schema(field) | {"description": FIELD_DESCRIPTIONS[field.name].meaning}
        for field in FIELDS
        if field.section == section
    }


def problem_schema() -> Schema:
    """Describe a problem document, with all codes."""
    codes = [{"const": cls.code, "description": f"{cls.status}. {summary(cls)}"} for cls in error_classes()]
    document = {
        "type": {"type": "string", "description": "urn:openmessaging-bridge:problem: and the code."},
        "title": {"type": "string", "description": "The code in words."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "code": {"oneOf": codes, "description": "Stable: programs decide by it."},
        "detail": {"type": "string", "description": "One sentence for a person."},
        "retrySafe": {"type": "boolean", "description": PARAMETER_DESCRIPTIONS["retry-safe"].meaning},
    }
    state = {"enum": _STATES, "description": "Of a transaction that has ended."}
    return closed(document | {"state": state}, required=document)


def batch_schema(limits: Limits) -> Schema:
    """Describe the JSON form of a batch; in the specification's example, each message has a wrapper."""
    message = {"$ref": "#/components/schemas/Message"}
    wrapped = closed({"message": message}, required=["message"])
    return {"type": "array", "maxItems": limits.batch, "items": {"anyOf": [message, wrapped]}}


def stored_schema() -> Schema:
    """Describe where one message is stored, or in which open transaction it is prepared."""
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    always = {"status": {"const": 200}, "messageId": text}
    stored = {"storeTimestamp": number, "storeHost": text}
    more = {"partition": number, "offset": number, "applied": text, "duplicate": {"const": True}, "transactionId": text}
    either = [{"required": list(stored)}, {"required": ["transactionId"]}]
    return closed(always | stored | more, required=always) | {"anyOf": either}


def results_schema() -> Schema:
    """Describe the reply to a batch."""
    either = [{"$ref": f"#/components/schemas/{name}"} for name in ("Stored", "Problem")]
    return {"type": "array", "items": {"anyOf": either}}


def receipts_schema() -> Schema:
    """Describe the body of a request that settles messages."""
    receipt = {"type": "string", "minLength": 1}
    return closed({"receipts": {"type": "array", "items": receipt, "maxItems": RECEIPTS_MAX}})


def produce_stream_line_schema() -> Schema:
    """Describe a line of the reply to a produce stream: the result of a message, or the end."""
    members = {
        name: {"$ref": f"#/components/schemas/Problem/properties/{name}"} for name in problem_schema()["properties"]
    }
    numbered = {"line": {"type": "integer", "minimum": 1}, **members}
    stored = {"$ref": "#/components/schemas/Stored"}
    return {"anyOf": [stored, closed(numbered, required=["line", *problem_schema()["required"]]), stream_end_schema()]}


def stream_end_schema() -> Schema:
    """Describe the last line of a stream."""
    return closed({name: {"type": "string"} for name in ("end", "detail")}, required=["end"])


def stored_by_url_schema() -> Schema:
    """Describe the reply to a produce by URL: of one message, or of a batch of CloudEvents."""
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Stored", "Results")]}


def event_schema() -> Schema:
    """Describe a CloudEvent in JSON. Its extensions are further members, whose names are letters and digits."""
    text = {"type": "string", "minLength": 1}
    core = {
        **dict.fromkeys(REQUIRED, text),
        "specversion": {"const": SPEC_VERSION},
        "time": {"type": ["string", "null"], "format": "date-time"},
        "datacontenttype": {"type": ["string", "null"]},
        "data": {"description": "JSON, or the text of a body that is not JSON."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    }
    extension = {"type": ["string", "boolean", "integer", "null"]}
    return {"type": "object", "properties": core, "required": [*REQUIRED], "additionalProperties": extension}


def capabilities_schema() -> Schema:
    """Describe the reply of /v1/capabilities."""
    support = {"enum": ["native", "emulated", "unsupported"]}
    fields = {field.name: support for field in FIELDS if field.is_feature}
    members = {
        "version": {"type": "string"},
        "fields": closed(fields, required=fields),
        "durable": {"type": "boolean", "description": "Stored and settled messages survive a restart of the bridge."},
        "lateGroups": {"type": "boolean", "description": "A new group starts at the oldest message kept."},
        "sharedGroups": {
            "type": "boolean",
            "description": "Bridges on the same backend share the messages of a group.",
        },
        "transactions": support | {"description": "Support for x-oms-transaction. native: all messages or none."},
        "dedup": closed(
            {
                "windowMills": {"type": "integer", "minimum": 0, "description": "0: no message is deduplicated."},
                "scope": {"const": "bridge", "description": "Bridges on one backend do not share what they remember."},
            },
            required=["windowMills", "scope"],
        ),
        "limits": closed({name: {"type": "integer", "minimum": 0} for name in _LIMITS}, required=_LIMITS),
    }
    return closed(members, required=members)


def transaction_schema() -> Schema:
    """Describe a transaction."""
    number = {"type": "integer", "minimum": 0}
    always = {
        "transactionId": {"type": "string"},
        "state": {"enum": _STATES},
        "began": number | {"description": "When its first message was prepared, ms since 1970."},
        "timeoutMills": number,
        "messages": number | {"description": "Prepared messages; 0 after the end."},
        "bytes": number,
    }
    return closed(always | {"check": {"type": "string"}}, required=always)


def logs_schema() -> Schema:
    """Describe the reply of /v1/logs."""
    pair = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    meaning = "For each log: the first offset kept, and the next one."
    logs = {"type": "object", "additionalProperties": pair, "description": meaning}
    return closed({"logs": logs}, required=["logs"])


def callback_schema() -> Schema:
    """Describe one registration of a callback."""
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    batch = {
        "maxMessages": number | {"description": "Most messages of one POST; absent: each POST is one message."},
        "form": {
            "enum": [*FORMS, Mode.BINARY.value, Mode.STRUCTURED.value],
            "description": "Media type of a batch, or mode of single CloudEvents.",
        },
    }
    failure = {"time": number, "messageId": text, "attempt": number, "reason": text}
    always = {
        "source": text,
        "consumerId": text,
        "url": text | {"description": "Without the values of its query."},
        "credit": number,
        "kept": text | {"description": "Where the registration is stored; memory: until the bridge stops."},
        "state": {"enum": [*STATES]},
        "inFlight": number,
        "delivered": number,
        "failed": number,
        "failures": {
            "type": "array",
            "maxItems": FAILURES_KEPT,
            "items": closed(failure | {"status": number}, required=failure),
        },
    }
    return closed(always | batch | {"why": text, "until": number}, required=always)


def summary(cls: type[BridgeError]) -> str:
    """Return the docstring of an error class on one line."""
    return (cls.__doc__ or cls.code).replace("\n", " ").replace("`", "")
