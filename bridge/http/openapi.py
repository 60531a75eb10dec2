"""The OpenAPI 3.1 document, built by loops over the tables the code itself runs on."""

from typing import Any, Final

from bridge import __version__
from bridge.errors import BridgeError, NotStored, QuotaExceeded
from bridge.http import schemas
from bridge.http.limits import Limits
from bridge.http.operations import ANY, OPERATIONS, Answer, Errors, Operation
from bridge.http.schemas import leaves, said
from bridge.http.vocabulary import FIELD_WORDS, PARAMETER_WORDS, Word
from bridge.message import FIELDS
from bridge.wire.problem import members
from bridge.wire.text import NAME_BYTES_MAX

Document = dict[str, Any]

_ABOUT: Final = (
    "The OpenMessaging HTTP binding as this bridge speaks it. User properties are headers x-oms-p-<name> of 1 to"
    f" {NAME_BYTES_MAX} bytes, every character outside a-z 0-9 . _ - written as %xx; OpenAPI has no way to list them. A"
    " value that is not printable ASCII travels extended (RFC 8187) under the header's name with * behind it. Any other"
    " x-oms- header is a 400. Unknown paths are 404, wrong methods 405. Every error is a problem document with a code."
)
_EXAMPLE: Final = {
    "header": {"destination": "orders"},
    "extensionHeader": {"messageKey": "customer-12", "priority": 9},
    "properties": {"region": "eu"},
    "data": "eyJpZCI6N30=",
}
_SET_BY_BRIDGE: Final = frozenset({"storeTimestamp", "storeHost", "deliveryCount"})


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
            path: {method.lower(): _operation(what, limits) for method, what in methods.items()}
            for path, methods in OPERATIONS.items()
        },
        "components": {
            "headers": _headers(limits),
            "schemas": {
                "Message": schemas.message_schema(),
                "Batch": schemas.batch_schema(limits),
                "Results": schemas.results_schema(),
                "Capabilities": schemas.capabilities_schema(),
                "Logs": schemas.logs_schema(),
                "Callback": schemas.callback_schema(),
                "Callbacks": {"type": "array", "items": _ref("schemas", "Callback")},
                "Problem": schemas.problem_schema(),
            },
            "examples": {cls.code: {"value": members(cls(said(cls)))} for cls in leaves(BridgeError)},
        },
    }


def _operation(what: Operation, limits: Limits) -> Document:
    produce = what.name == "produce"
    document: Document = {
        "operationId": what.name,
        "summary": what.summary,
        "description": what.description,
        "parameters": [*_asked(what, limits), *(_fields() if produce else ()), *_plain(what)],
        "responses": {
            **_answers(what.answers),
            **_failures((*ANY, *what.errors)),
        },
    }
    if produce:
        batch = {"schema": _ref("schemas", "Batch"), "examples": {"one": {"value": [_EXAMPLE]}}}
        document["requestBody"] = {
            "description": "The body of one message, of any content type, or the messages of a batch.",
            "content": {
                "application/octet-stream": {},
                "multipart/mixed": {"schema": {"type": "string"}},
                "application/json": batch,
            },
        }
    return document


def _asked(what: Operation, limits: Limits) -> list[Document]:
    """List what the operation asks for: headers and, where the query is read too, the same as query parameters."""
    values = schemas.parameter_schemas(limits)
    found: list[Document] = []
    for name in what.asks:
        described = _described(PARAMETER_WORDS[name], values[name])
        header = {"name": f"x-oms-{name}", "in": "header", **described}
        if name in what.required and what.query:
            header["description"] += f" Required, here or as the query parameter {name}."
        elif name in what.required:
            header["required"] = True
        found.append(header)
    if what.query:
        listed = {"explode": False}
        found += [
            {
                "name": name,
                "in": "query",
                "description": f"Instead of the header x-oms-{name}.",
                "schema": values[name],
                **(listed if values[name]["type"] == "array" else {}),
            }
            for name in what.asks
        ]
    return found


def _fields() -> list[Document]:
    return [
        {
            "name": f"x-oms-h-{field.name.lower()}",
            "in": "header",
            **_described(FIELD_WORDS[field.name], schemas.field_schema(field)),
        }
        for field in FIELDS
        if field.name not in _SET_BY_BRIDGE
    ]


def _plain(what: Operation) -> list[Document]:
    return [
        {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in what.plain.items()
    ]


def _headers(limits: Limits) -> Document:
    """Describe every header that a reply may carry."""
    values = {**schemas.parameter_schemas(limits), "receipt": {"type": "string"}}
    found = {f"x-oms-{name}": _described(word, values[name]) for name, word in PARAMETER_WORDS.items()}
    for field in FIELDS:
        found[f"x-oms-h-{field.name.lower()}"] = _described(FIELD_WORDS[field.name], schemas.field_schema(field))
    text = {"schema": {"type": "string"}}
    return found | {
        "retry-after": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}},
        "traceparent": {"description": "W3C trace context, as it was produced.", **text},
        "tracestate": {"description": "W3C trace context, as it was produced.", **text},
        "content-encoding": {"description": "gzip, for a consumer that accepts it.", **text},
        "content-security-policy": {"description": "The page needs no script and loads nothing.", **text},
    }


def _described(word: Word, schema: Document) -> Document:
    shown = {} if word.example is None or schema["type"] in ("array", "boolean") else {"example": word.example}
    return {"description": word.meaning, "schema": schema, **shown}


def _answers(answers: tuple[Answer, ...]) -> Document:
    """Describe each status; answers that share one differ in their media type."""
    documents: Document = {}
    for answer in answers:
        document = documents.setdefault(str(answer.status), {"description": answer.meaning})
        if answer.headers:
            document["headers"] = {name: _ref("headers", name) for name in answer.headers}
        if answer.media is not None:
            schema = {"schema": _ref("schemas", answer.schema)} if answer.schema else {}
            document.setdefault("content", {})[answer.media] = schema
    return documents


def _failures(errors: Errors) -> Document:
    """Group an operation's errors by their status."""
    by_status: dict[int, list[type[BridgeError]]] = {}
    for cls in errors:
        by_status.setdefault(cls.status, []).append(cls)
    return {str(status): _failure(by_status[status]) for status in sorted(by_status)}


def _failure(classes: list[type[BridgeError]]) -> Document:
    names = ["x-oms-error"]
    if any(issubclass(cls, (NotStored, QuotaExceeded)) for cls in classes):
        names.append("retry-after")
    if any(cls.retry_safe for cls in classes):
        names.append("x-oms-retry-safe")
    only = {"properties": {"code": {"enum": [cls.code for cls in classes]}}}
    return {
        "description": " ".join(said(cls) for cls in classes),
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
