"""What each value may be: the schemas of the OpenAPI document."""

from collections.abc import Iterable, Mapping
from typing import Any

from bridge.callbacks.listing import STATES
from bridge.callbacks.registration import FAILURES_KEPT
from bridge.callbacks.targets import URL_MAX
from bridge.engine.consumer import CREDIT
from bridge.engine.names import INTERNAL_PREFIXES, NAME_MAX
from bridge.errors import BridgeError
from bridge.http.limits import NACK_DELAY_MAX, Limits
from bridge.http.messages import REQUEST_ID_MAX
from bridge.http.push import CREDIT_MAX
from bridge.http.vocabulary import CARRIED, FIELD_WORDS, PARAMETER_WORDS
from bridge.message import FIELDS, LONG_MAX, Field
from bridge.wire.parameters import RECEIPTS_MAX

Schema = dict[str, Any]

_LIMITS = ("body", "headers", "batch", "waitMills", "leaseMills", "nackDelayMills", "maxDeliveries")


def name_schema() -> Schema:
    """Describe the name of a destination or group."""
    internal = "|".join(prefix.replace(".", r"\.") for prefix in INTERNAL_PREFIXES)
    return {"type": "string", "pattern": rf"^(?!\.{{1,2}}$)(?!{internal})[A-Za-z0-9._-]{{1,{NAME_MAX}}}$"}


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
    asking = [field.name for field in FIELDS if field.asks]
    return {
        "version": {"type": "string", "pattern": r"^1\.[0-9]{1,9}\.[0-9]{1,9}$"},
        "require": {"type": "array", "items": {"enum": asking}},
        "source": name_schema(),
        "consumerid": name_schema(),
        "ack": {"type": "boolean", "default": False},
        "waitmills": whole(0, LONG_MAX) | {"default": 0},
        "credit": whole(1, CREDIT_MAX) | {"default": CREDIT},
        "maxmessages": whole(1, LONG_MAX),
        "log": {"type": "string", "minLength": 1},
        "callbackurl": {"type": "string", "maxLength": URL_MAX},
        "leasemills": whole(1, limits.max_lease) | {"default": limits.lease},
        "delaymills": whole(0, NACK_DELAY_MAX) | {"default": 0},
        "receipt": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": RECEIPTS_MAX},
        "requestid": {"type": "string", "minLength": 1, "maxLength": REQUEST_ID_MAX},
        "applied": {"type": "string"},
        "offset": whole(0, LONG_MAX),
        "leaseuntil": whole(0, LONG_MAX),
        "error": {"type": "string"},
        "retry-safe": {"type": "string", "enum": ["true"]},
    }


def whole(minimum: int, maximum: int) -> Schema:
    """Describe a whole number."""
    return {"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum}


def message_schema() -> Schema:
    """Describe the specification's JSON form of a message."""
    return closed(
        {
            "version": {"type": "string", "description": PARAMETER_WORDS["version"].meaning},
            "header": closed(_members("header"), required=["destination"]),
            "extensionHeader": closed(
                _members("extensionHeader")
                | {name: {"type": "string", "description": meaning} for name, meaning in CARRIED.items()}
            ),
            "properties": {
                "type": "object",
                "description": "User properties, kept exactly. A number becomes its JSON text.",
                "additionalProperties": {"type": ["string", "number"]},
            },
            "data": {"type": "string", "contentEncoding": "base64", "description": "The body."},
        },
        required=["header"],
    )


def closed(properties: Schema, *, required: Iterable[str] = ()) -> Schema:
    """Describe an object that has these members and no others."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def _members(section: str) -> Schema:
    return {
        field.name: field_schema(field) | {"description": FIELD_WORDS[field.name].meaning}
        for field in FIELDS
        if field.section == section
    }


def problem_schema() -> Schema:
    """Describe a problem document, with every code there is."""
    codes = [{"const": cls.code, "description": f"{cls.status}. {said(cls)}"} for cls in leaves(BridgeError)]
    document = {
        "type": {"type": "string", "description": "urn:openmessaging-bridge:problem: and the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"oneOf": codes, "description": "Stable; what a program decides upon."},
        "detail": {"type": "string", "description": "One sentence for a person."},
        "retrySafe": {"type": "boolean", "description": PARAMETER_WORDS["retry-safe"].meaning},
    }
    return closed(document, required=document)


def batch_schema(limits: Limits) -> Schema:
    """Describe the JSON form of a batch; the specification's own example wraps each message."""
    message = {"$ref": "#/components/schemas/Message"}
    wrapped = closed({"message": message}, required=["message"])
    return {"type": "array", "maxItems": limits.batch, "items": {"anyOf": [message, wrapped]}}


def results_schema() -> Schema:
    """Describe the reply to a batch."""
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    always = {"status": {"const": 200}, "messageId": text, "storeTimestamp": number, "storeHost": text}
    stored = closed(always | {"partition": number, "offset": number, "applied": text}, required=always)
    return {"type": "array", "items": {"anyOf": [stored, {"$ref": "#/components/schemas/Problem"}]}}


def capabilities_schema() -> Schema:
    """Describe the reply of /v1/capabilities."""
    support = {"enum": ["native", "emulated", "unsupported"]}
    fields = {field.name: support for field in FIELDS if field.asks}
    members = {
        "version": {"type": "string"},
        "fields": closed(fields, required=fields),
        "durable": {"type": "boolean", "description": "What is stored and settled survives the bridge."},
        "lateGroups": {"type": "boolean", "description": "A new group starts at the oldest message kept."},
        "sharedGroups": {"type": "boolean", "description": "Bridges on the same backend serve a group together."},
        "limits": closed({name: {"type": "integer", "minimum": 0} for name in _LIMITS}, required=_LIMITS),
    }
    return closed(members, required=members)


def logs_schema() -> Schema:
    """Describe the reply of /v1/logs."""
    pair = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    meaning = "By log: the first offset kept, and the next one."
    logs = {"type": "object", "additionalProperties": pair, "description": meaning}
    return closed({"logs": logs}, required=["logs"])


def callback_schema() -> Schema:
    """Describe one registration of a callback."""
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    failure = {"time": number, "messageId": text, "attempt": number, "reason": text}
    always = {
        "source": text,
        "consumerId": text,
        "url": text | {"description": "Without the value of its query."},
        "credit": number,
        "kept": text | {"description": "Where the registration is kept; memory: it ends with this bridge."},
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
    return closed(always | {"why": text, "until": number}, required=always)


def leaves(cls: type[BridgeError]) -> list[type[BridgeError]]:
    """Return every error that has a code, in the order of the tree."""
    below = [leaf for sub in cls.__subclasses__() for leaf in leaves(sub)]
    return [*([cls] if "code" in vars(cls) else []), *below]


def said(cls: type[BridgeError]) -> str:
    """Return an error's own sentence."""
    return (cls.__doc__ or cls.code).replace("\n", " ").replace("`", "")
