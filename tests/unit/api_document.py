"""The OpenAPI document of a bridge with the default limits, and its operations with every reference resolved."""

from typing import Any, Final

import jsonschema_rs

from adapters.memory import connect
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.http.description import openapi
from bridge.http.request_and_reply import Limits

LIMITS: Final = Limits()
DOCUMENT: Final = openapi(LIMITS)
COMPONENTS: Final = DOCUMENT["components"]


def engine() -> Engine:
    return Engine(connect("memory://"), SystemClock(), EngineOptions(store_host="here"))


def resolved(node: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a part of the document with each reference replaced by what it leads to."""
    if isinstance(node, list):
        return [resolved(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return resolved(at(node["$ref"]) | {name: value for name, value in node.items() if name != "$ref"})
    return {name: resolved(value) for name, value in node.items()}


def at(pointer: str) -> Any:  # noqa: ANN401 - JSON
    """Return the part of the document to which a pointer such as `#/components/schemas` leads."""
    place: Any = DOCUMENT
    for step in pointer.removeprefix("#/").split("/"):
        place = place[step]
    return place


OPERATIONS: Final = {
    (path, method): {"parameters": []} | resolved(operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def problems(answer: dict[str, Any]) -> list[str]:
    """List the codes of an answer."""
    problem = answer.get("content", {}).get("application/problem+json")
    return problem["schema"]["allOf"][1]["properties"]["code"]["enum"] if problem else []


def validator(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - a validator
    return jsonschema_rs.validator_for(
        {"$ref": "#/schema", "schema": schema, "components": COMPONENTS}, validate_formats=True
    )


def schema_of(path: str, method: str, status: int, media: str) -> dict[str, Any]:
    schema: dict[str, Any] = OPERATIONS[path, method]["responses"][str(status)]["content"][media]["schema"]
    return schema
