"""The AsyncAPI 3.1 document: what messages the bridge receives and sends, from the same tables as OpenAPI."""

from typing import Any, Final, Literal, NamedTuple

from bridge import __version__
from bridge.http.openapi import schemas
from bridge.http.openapi.document import MESSAGE
from bridge.http.openapi.header_descriptions_and_examples import (
    FIELD_DESCRIPTIONS,
    HTTP_MEMBERS,
)
from bridge.http.openapi.operations import OPERATIONS
from bridge.http.params import DESTINATION_MESSAGES
from bridge.http.request_and_reply import Limits
from bridge.message import FIELDS
from bridge.wire import jsonform

Document = dict[str, Any]

_ABOUT: Final = (
    "Messages that the bridge receives from producers and sends to consumers. `/openapi.json` has all paths,"
    " headers and errors. A header value that is not printable ASCII is an extended value (RFC 8187) under the"
    " name followed by `*`."
)
_BINDING: Final = "0.3.0"
"""Version of AsyncAPI's HTTP binding."""


class _Operation(NamedTuple):
    """One operation of the bridge: it receives or sends messages on a channel."""

    channel: str
    action: Literal["receive", "send"]
    path: str
    method: str
    messages: tuple[str, ...]


_OPERATIONS: Final = {
    "produce": _Operation("messages", "receive", "/v1/messages", "POST", ("Message", "Batch")),
    "produceByUrl": _Operation("destination", "receive", DESTINATION_MESSAGES, "POST", ("Message",)),
    "produceStream": _Operation("produceStream", "receive", "/v1/stream", "POST", ("ProducedLine",)),
    "pull": _Operation("messages", "send", "/v1/messages", "GET", ("Message", "LargeMessage")),
    "push": _Operation("stream", "send", "/v1/push", "GET", ("Line",)),
    "callback": _Operation("callback", "send", "/v1/push", "POST", ("Message", "LargeMessage", "Batch")),
}
_CHANNELS: Final = {
    "messages": ("/v1/messages", "Produce with headers, and pull."),
    "destination": (DESTINATION_MESSAGES, "Produce by URL."),
    "produceStream": ("/v1/stream", "Messages on the lines of one request, with a result for each."),
    "stream": ("/v1/push", "Many messages on one response."),
    "callback": (None, "The URL of a registration; the bridge posts to it."),
}


def build(limits: Limits) -> Document:
    """Return the whole document."""
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "openmessaging-bridge",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/octet-stream",
        "servers": {
            "bridge": {
                "host": "{address}",
                "protocol": "http",
                "description": "The data port.",
                "variables": {"address": {"default": "127.0.0.1:8080"}},
            }
        },
        "channels": {name: _channel(name) for name in _CHANNELS},
        "operations": {name: _operation(operation) for name, operation in _OPERATIONS.items()},
        "components": {
            "messages": {
                "Message": {
                    "summary": "One message: its fields are headers, its body is the payload, of any content type.",
                    "headers": _headers(),
                    "payload": {},
                },
                "LargeMessage": {
                    "summary": "One message whose headers not every client could read.",
                    "contentType": jsonform.MEDIA_TYPE.decode("ascii"),
                    "payload": schemas.delivered_schema(),
                },
                "Batch": {
                    "summary": "Several messages as JSON; multipart/mixed is the other form.",
                    "contentType": "application/json",
                    "payload": schemas.batch_schema(limits),
                    "examples": [{"name": "one", "payload": [MESSAGE]}],
                },
                "ProducedLine": {
                    "summary": "One line of the request.",
                    "contentType": "application/x-ndjson",
                    "payload": schemas.message_schema(),
                    "examples": [{"name": "one", "payload": MESSAGE}],
                },
                "Line": {
                    "summary": "One line of the stream; multipart/mixed and text/event-stream are the other forms.",
                    "contentType": "application/x-ndjson",
                    "payload": _line(),
                },
            },
            "schemas": {"Message": schemas.message_schema()},
        },
    }


def _channel(name: str) -> Document:
    address, description = _CHANNELS[name]
    messages = {each for operation in _OPERATIONS.values() if operation.channel == name for each in operation.messages}
    document: Document = {
        "address": address,
        "description": description,
        "messages": {each: {"$ref": f"#/components/messages/{each}"} for each in sorted(messages)},
    }
    if address is not None:
        document["servers"] = [{"$ref": "#/servers/bridge"}]
        if "{destination}" in address:
            document["parameters"] = {"destination": {"description": FIELD_DESCRIPTIONS["destination"].meaning}}
    return document


def _operation(operation: _Operation) -> Document:
    described = OPERATIONS[operation.path][operation.method]
    channel = f"#/channels/{operation.channel}"
    return {
        "action": operation.action,
        "channel": {"$ref": channel},
        "summary": described.summary,
        "description": described.description,
        "bindings": {"http": {"method": operation.method, "bindingVersion": _BINDING}},
        "messages": [{"$ref": f"{channel}/messages/{each}"} for each in operation.messages],
    }


def _headers() -> Document:
    """Describe the headers of one message; those of properties follow a pattern."""
    fields = {
        f"x-oms-h-{field.name.lower()}": schemas.field_schema(field)
        | {"description": FIELD_DESCRIPTIONS[field.name].meaning}
        for field in FIELDS
    }
    others = {name: {"type": "string", "description": HTTP_MEMBERS[name]} for name in ("traceparent", "tracestate")}
    return {
        "type": "object",
        "properties": fields | others,
        "patternProperties": {"^x-oms-p-": {"type": "string", "description": "A user property."}},
    }


def _line() -> Document:
    """Describe a line of a stream: a message with its lease, or the end."""
    return {"oneOf": [schemas.delivered_schema(), schemas.stream_end_schema()]}
