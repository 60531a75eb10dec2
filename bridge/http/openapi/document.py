"""The OpenAPI 3.1 document, built from the tables of fields, parameters, operations and errors."""

from http import HTTPStatus
from typing import Any, Final

from bridge import __version__
from bridge.errors import BridgeError, LimitReached, NotStored, QuotaExceeded, error_classes, problem_members
from bridge.http.openapi import schemas
from bridge.http.openapi.header_descriptions_and_examples import (
    EXAMPLES,
    FIELD_DESCRIPTIONS,
    PARAMETER_DESCRIPTIONS,
    Description,
)
from bridge.http.openapi.operations import COMMON_ERRORS, OPERATIONS, Errors, Operation, Response
from bridge.http.openapi.schemas import summary
from bridge.http.request_and_reply import Limits
from bridge.message import FIELDS
from bridge.wire.cloudevents import Mode
from bridge.wire.header_text import NAME_BYTES_MAX
from bridge.wire.headers import REPLY_PARAMETERS
from bridge.wire.query_fields import DURATIONS

Document = dict[str, Any]

_ABOUT: Final = (
    "The OpenMessaging HTTP binding as this bridge speaks it.\n\n"
    "Fields of a message are headers `x-oms-h-NAME`. User properties are headers `x-oms-p-NAME`; OpenAPI cannot list"
    f" them. The name has 1 to {NAME_BYTES_MAX} bytes. Header names have no upper case, so write every character"
    " outside `a-z 0-9 . _ -` as `%xx` of its UTF-8: `x-oms-p-%52egion` is the property `Region`, but `x-oms-p-Region`"
    " is `region`.\n\n"
    "A value that is not printable ASCII is sent as an extended value (RFC 8187) under the header's name followed by"
    " `*`: `x-oms-h-messagekey*: UTF-8''m%C3%BCller`.\n\n"
    "An unknown `x-oms-` header is a 400, an unknown path a 404, a wrong method a 405. Every error is a problem"
    " document (RFC 9457) with a stable `code`."
)
MESSAGE: Final = {
    "header": {"destination": "orders"},
    "extensionHeader": {"messageKey": "customer-12", "priority": 9},
    "properties": {"region": "eu"},
    "data": "eyJpZCI6N30=",
}
EVENT: Final = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.created", "data": {"id": 7}}
_FIELD_BY_NAME: Final = {field.name: field for field in FIELDS}


def build(limits: Limits) -> Document:
    """Return the whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "openmessaging-bridge",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The data port."}],
        "paths": {
            path: {method.lower(): _operation(operation, limits) for method, operation in methods.items()}
            for path, methods in OPERATIONS.items()
        },
        "components": {
            "headers": _headers(limits),
            "schemas": {
                "Message": schemas.message_schema(),
                "Delivered": schemas.delivered_schema(),
                "Batch": schemas.batch_schema(limits),
                "Stored": schemas.stored_schema(),
                "StoredByUrl": schemas.stored_by_url_schema(),
                "Event": schemas.event_schema(),
                "Events": {"type": "array", "items": _ref("schemas", "Event"), "maxItems": limits.batch},
                "Results": schemas.results_schema(),
                "Receipts": schemas.receipts_schema(),
                "ProduceStreamLine": schemas.produce_stream_line_schema(),
                "Capabilities": schemas.capabilities_schema(),
                "Transaction": schemas.transaction_schema(),
                "Transactions": {"type": "array", "items": _ref("schemas", "Transaction")},
                "Logs": schemas.logs_schema(),
                "Callback": schemas.callback_schema(),
                "Callbacks": {"type": "array", "items": _ref("schemas", "Callback")},
                "Problem": schemas.problem_schema(),
            },
            "examples": {cls.code: {"value": problem_members(cls(summary(cls)))} for cls in error_classes()},
        },
    }


def _operation(operation: Operation, limits: Limits) -> Document:
    document: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [
            *_path_fields(operation),
            *_parameters(operation, limits),
            *_fields(operation),
            *_http_headers(operation),
            *_query_names(operation, limits),
        ],
        "responses": {**_responses(operation.responses), **_errors((*COMMON_ERRORS, *operation.errors))},
    }
    if examples := EXAMPLES.get(operation.name):
        document["x-codeSamples"] = [{"lang": "Shell", "label": title, "source": source} for title, source in examples]
    if operation.fields and operation.path_fields:
        document["requestBody"] = {
            "description": "The payload of the message, or CloudEvents.",
            "content": {"*/*": {}, **_events()},
        }
    elif operation.line is not None:
        document["requestBody"] = {
            "description": "A message on each line, without end.",
            "content": {"application/x-ndjson": {"schema": _ref("schemas", operation.line)}},
        }
    elif operation.body is not None:
        document["requestBody"] = {
            "description": "Receipts, instead of the header; the body may be empty.",
            "content": {"application/json": {"schema": _ref("schemas", operation.body)}},
        }
    elif operation.fields:
        batch = {"schema": _ref("schemas", "Batch"), "examples": {"one": {"value": [MESSAGE]}}}
        document["requestBody"] = {
            "description": "The payload of one message, of any content type, or the messages of a batch.",
            "content": {
                "application/octet-stream": {},
                "multipart/mixed": {"schema": {"type": "string"}},
                "application/json": batch,
                **_events(),
            },
        }
    return document


def _events() -> Document:
    return {
        Mode.STRUCTURED.value: {"schema": _ref("schemas", "Event"), "examples": {"one": {"value": EVENT}}},
        Mode.BATCHED.value: {"schema": _ref("schemas", "Events"), "examples": {"one": {"value": [EVENT]}}},
    }


def _parameters(operation: Operation, limits: Limits) -> list[Document]:
    """List the parameters as headers and, if the query is read too, once more as query parameters."""
    values = schemas.parameter_schemas(limits)
    documents: list[Document] = []
    for name in operation.parameters:
        described = _described(PARAMETER_DESCRIPTIONS[name], values[name])
        header = {"name": f"x-oms-{name}", "in": "header", **described}
        if name in operation.required and operation.query:
            header["description"] += f" Required, here or as the query parameter {name}."
        elif name in operation.required:
            header["required"] = True
        documents.append(header)
    if operation.query:
        not_exploded = {"explode": False}
        documents += [
            {
                "name": name,
                "in": "query",
                "description": f"Instead of the header x-oms-{name}.",
                "schema": values[name],
                **(not_exploded if values[name]["type"] == "array" else {}),
            }
            for name in operation.parameters
        ]
    return documents


def _path_fields(operation: Operation) -> list[Document]:
    return [{"name": name, "in": "path", "required": True, **_field(name)} for name in operation.path_fields]


def _fields(operation: Operation) -> list[Document]:
    return [{"name": f"x-oms-h-{name.lower()}", "in": "header", **_field(name)} for name in operation.fields]


def _query_names(operation: Operation, limits: Limits) -> list[Document]:
    """List the query parameters that have names of their own."""
    values = schemas.parameter_schemas(limits)
    documents: list[Document] = []
    for name, meant in operation.query_names.items():
        if name in DURATIONS:
            schema = schemas.DURATION
        else:
            schema = values[meant] if meant in values else schemas.field_schema(_FIELD_BY_NAME[meant])
        header = f"x-oms-{meant}" if meant in values else f"x-oms-h-{meant.lower()}"
        duration = ", as a duration after bornTimestamp" if name in DURATIONS else ""
        description = f"Instead of the header {header}{duration}."
        not_exploded = {"explode": False} if schema["type"] == "array" else {}
        documents.append({"name": name, "in": "query", "description": description, "schema": schema, **not_exploded})
    return documents


def _field(name: str) -> Document:
    return _described(FIELD_DESCRIPTIONS[name], schemas.field_schema(_FIELD_BY_NAME[name]))


def _http_headers(operation: Operation) -> list[Document]:
    return [
        {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in operation.http_headers.items()
    ]


def _headers(limits: Limits) -> Document:
    """Describe every header of a response."""
    values = {**schemas.parameter_schemas(limits), "receipt": {"type": "string"}}
    found = {
        f"x-oms-{name}": _described(description, values[name])
        for name, description in PARAMETER_DESCRIPTIONS.items()
        if name in REPLY_PARAMETERS
    }
    for field in FIELDS:
        found[f"x-oms-h-{field.name.lower()}"] = _described(FIELD_DESCRIPTIONS[field.name], schemas.field_schema(field))
    text = {"schema": {"type": "string"}}
    return found | {
        "www-authenticate": {"description": "Webhook-Signature: the request must be signed.", **text},
        "retry-after": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}},
        "traceparent": {"description": "W3C trace context of the message.", **text},
        "tracestate": {"description": "W3C trace context of the message.", **text},
        "content-encoding": {"description": "gzip, for a consumer that accepts it.", **text},
        "content-security-policy": {"description": "Allows the page no script and no request.", **text},
    }


def _described(description: Description, schema: Document) -> Document:
    hidden = description.example is None or schema["type"] in ("array", "boolean")
    example = {} if hidden else {"example": description.example}
    return {"description": description.meaning, "schema": schema, **example}


def _responses(responses: tuple[Response, ...]) -> Document:
    """Describe each status; responses with the same status differ in their media type."""
    documents: Document = {}
    for response in responses:
        document = documents.setdefault(str(response.status), {"description": response.description})
        if response.headers:
            document["headers"] = {name: _ref("headers", name) for name in response.headers}
        if response.media_type is not None:
            schema = {"schema": _ref("schemas", response.schema)} if response.schema else {}
            document.setdefault("content", {})[response.media_type] = schema
    return documents


def _errors(errors: Errors) -> Document:
    """Group the errors of an operation by their status."""
    by_status: dict[int, list[type[BridgeError]]] = {}
    for cls in errors:
        by_status.setdefault(cls.status, []).append(cls)
    return {str(status): _error(by_status[status]) for status in sorted(by_status)}


def _error(classes: list[type[BridgeError]]) -> Document:
    names = ["x-oms-error"]
    if any(cls.status == HTTPStatus.UNAUTHORIZED for cls in classes):
        names.append("www-authenticate")
    if any(issubclass(cls, (NotStored, QuotaExceeded, LimitReached)) for cls in classes):
        names.append("retry-after")
    if any(cls.retry_safe for cls in classes):
        names.append("x-oms-retry-safe")
    only = {"properties": {"code": {"enum": [cls.code for cls in classes]}}}
    return {
        "description": " ".join(summary(cls) for cls in classes),
        "headers": {name: _ref("headers", name) for name in names},
        "content": {
            "application/problem+json": {
                "schema": {"allOf": [_ref("schemas", "Problem"), only]},
                "examples": {cls.code: _ref("examples", cls.code) for cls in classes},
            }
        },
    }


def _ref(kind: str, name: str) -> Document:
    return {"$ref": f"#/components/{kind}/{name}"}
