"""The published contract, `bridge/http/openapi.yaml`, against the code it describes."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import schemathesis
import yaml

import bridge.http
from adapters.base import TransactionState
from bridge.allowed_targets import URL_MAX
from bridge.callbacks.registration import FAILURES_KEPT
from bridge.callbacks.registry import STATES, CallbackRegistry
from bridge.cloudevents import REQUIRED, SPEC_VERSION
from bridge.engine.destination_names import INTERNAL_PREFIXES, NAME_MAX
from bridge.engine.pull_and_prefetch import WAIT_MAX
from bridge.engine.push_consumer import CREDIT, CREDIT_MAX
from bridge.errors import encode_problem, error_classes
from bridge.http.data_port import routes
from bridge.http.description import asyncapi, console, openapi
from bridge.http.params import REQUIRE_HEADERS
from bridge.http.request_and_reply import (
    CALLBACK_BATCH_MAX,
    NACK_DELAY_MAX,
    RECEIPTS_MAX,
    REQUEST_ID_MAX,
    TRANSACTION_TIMEOUT,
    TRANSACTION_TIMEOUT_MAX,
    Limits,
)
from bridge.long_work import run_at_once
from bridge.message import DEFAULT_PRIORITY, FIELDS, LONG_MAX, PRIORITIES, Message
from bridge.settings.model import Settings
from bridge.wire import jsonform, log_block
from bridge.wire.callback_batch import FORMS
from bridge.wire.cloudevents import Mode
from bridge.wire.header_text import NAME_BYTES_MAX
from bridge.wire.headers import PARAMETERS, PROPERTIES_AS_HEADERS
from bridge.wire.query_fields import DURATIONS, QUERY_NAMES, REQUIRE
from tests.unit.api_document import COMPONENTS, DOCUMENT, LIMITS, OPERATIONS, at, engine, problems, resolved, validator

FILES: Final = Path(bridge.http.__file__).parent
ERRORS = error_classes()


def test_the_document_is_valid_openapi() -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.validate()
    assert sum(1 for _ in schema.get_all_operations()) == len(OPERATIONS)


def test_an_invalid_document_would_be_noticed() -> None:
    broken = json.loads(json.dumps(DOCUMENT))
    del broken["components"]["responses"]["Internal"]["description"]
    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_schema_is_valid_and_every_component_is_used() -> None:
    for schema in COMPONENTS["schemas"].values():
        validator(schema)
    references = set(re.findall(r'"#/components/([^"/]+/[^"/]+)', json.dumps(DOCUMENT)))
    by_name = {f"securitySchemes/{name}" for each in DOCUMENT["security"] for name in each}
    assert references | by_name == {f"{kind}/{name}" for kind, named in COMPONENTS.items() for name in named}


@pytest.mark.parametrize(("name", "built"), [("openapi.yaml", openapi), ("asyncapi.yaml", asyncapi)])
def test_only_what_the_file_marks_as_a_setting_depends_on_the_bridge(name: str, built: Any) -> None:  # noqa: ANN401
    text = (FILES / name).read_text("utf-8")
    assert yaml.safe_load(text) == built(LIMITS), "the file has the default limits and the version"
    changed = built(Limits(batch=1001, lease=30_001, max_lease=900_001))
    settings = re.findall(r"# setting (\w+)\.(\w+)$", text, re.MULTILINE)
    assert len(list(differences(built(LIMITS), changed))) == len(settings)
    for group, setting in settings:
        assert setting in Settings.model_fields[group].annotation.model_fields  # type: ignore[union-attr] # a model


def differences(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    if isinstance(one, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name])
    elif one != other:
        yield one, other


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    table = routes(engine(), CallbackRegistry(engine()), LIMITS, 16)
    served = {path: set(methods) for path, methods in table.items() if path not in console().keys() - {"/docs"}}
    assert {path: {m.upper() for m in methods} for path, methods in DOCUMENT["paths"].items()} == served
    assert len({operation["operationId"] for operation in OPERATIONS.values()}) == len(OPERATIONS)
    tags = [tag["name"] for tag in DOCUMENT["tags"]]
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == {*tags}


def test_every_field_is_described_where_it_travels() -> None:
    names = {f"x-oms-h-{field.name.lower()}" for field in FIELDS}
    produced = {p["name"]: p for p in OPERATIONS["/v1/messages", "post"]["parameters"]}
    assert names - produced.keys() == {"x-oms-h-storetimestamp", "x-oms-h-storehost", "x-oms-h-deliverycount"}
    delivered = OPERATIONS["/v1/messages", "get"]["responses"]["200"]["headers"]
    assert names <= delivered.keys()
    members = resolved(COMPONENTS["schemas"]["Message"])["properties"]
    for field in FIELDS:
        name, described = f"x-oms-h-{field.name.lower()}", members[field.section]["properties"][field.name]
        assert delivered[name]["schema"] == described
        if name in produced:
            assert produced[name]["description"] == described["description"]


def test_ranges_are_those_of_the_table() -> None:
    members = resolved(COMPONENTS["schemas"]["Message"])["properties"]
    produced = {p["name"]: p["schema"] for p in OPERATIONS["/v1/messages", "post"]["parameters"]}
    for field in FIELDS:
        schema = members[field.section]["properties"][field.name]
        for each in (schema, produced.get(f"x-oms-h-{field.name.lower()}", schema)):
            assert each.get("maximum") == field.maximum
            assert (each["type"] == "integer") is (field.maximum is not None)


def test_every_parameter_is_described() -> None:
    asked = {p["name"] for o in OPERATIONS.values() for p in o["parameters"] if p["in"] == "header"}
    answers = [answer for o in OPERATIONS.values() for answer in o["responses"].values()]
    answered = {name for answer in answers for name in answer.get("headers", ())}
    ours = {name.removeprefix("x-oms-") for name in asked | answered if re.match("x-oms-(?!h-)", name)}
    assert ours == PARAMETERS


def test_a_query_parameter_has_the_values_of_its_header() -> None:
    for (path, _), operation in OPERATIONS.items():
        headers = {p["name"]: p for p in operation["parameters"] if p["in"] == "header"}
        query = {p["name"]: p for p in operation["parameters"] if p["in"] == "query"}
        if "{destination}" in path:
            assert query.keys() == {*QUERY_NAMES, REQUIRE} - ({"id"} if "{messageId}" in path else set())
            meant = {name: f"x-oms-h-{QUERY_NAMES[name].lower()}" for name in query if name != REQUIRE}
            meant[REQUIRE] = "x-oms-require"
        else:
            meant = {name: f"x-oms-{name}" for name in query}
            assert not query or {*meant.values()} == {name for name in headers if name.startswith("x-oms-")}
        for name, header in meant.items():
            assert re.match(rf"As {header}[.,]", query[name]["description"])
            if name in DURATIONS and "{destination}" in path:
                assert query[name]["schema"] == COMPONENTS["schemas"]["Duration"]
            else:
                illustrated = headers[header]["schema"]
                assert query[name]["schema"] == {
                    key: illustrated[key] for key in illustrated if key not in {"default", "examples"}
                }


def test_every_error_is_described() -> None:
    described = {
        each["const"]: each["description"] for each in at("#/components/schemas/Problem/properties/code/oneOf")
    }
    assert {code: meaning[:4] for code, meaning in described.items()} == {e.code: f"{e.status}." for e in ERRORS}
    shown = {code for o in OPERATIONS.values() for answer in o["responses"].values() for code in problems(answer)}
    assert shown == described.keys() - {"method-not-allowed"}


def test_an_error_has_its_documented_status_and_form(subtests: pytest.Subtests) -> None:
    for cls in ERRORS:
        with subtests.test(cls=cls):
            headers, body = encode_problem(cls("Something."))
            validator(COMPONENTS["schemas"]["Problem"]).validate(json.loads(body))
            for operation in OPERATIONS.values():
                for status, answer in operation["responses"].items():
                    if cls.code in problems(answer):
                        assert status == str(cls.status)
                        assert {name.decode() for name, _ in headers} - {"content-type"} <= set(answer["headers"])


def test_limits_are_those_of_the_code(subtests: pytest.Subtests) -> None:
    features = [field.name for field in FIELDS if field.is_feature]
    prefixes = "|".join(prefix.replace(".", r"\.") for prefix in INTERNAL_PREFIXES)
    modes = [Mode.BINARY.value, Mode.STRUCTURED.value]
    values: dict[str, object] = {
        "schemas/Name/pattern": rf"^(?!\.{{1,2}}$)(?!{prefixes})[A-Za-z0-9._-]{{1,{NAME_MAX}}}$",
        "schemas/Long/maximum": LONG_MAX,
        "schemas/Requirable/enum": [*features, REQUIRE_HEADERS],
        "schemas/TransactionState/enum": [state.value for state in TransactionState],
        "schemas/Capabilities/properties/fields/required": features,
        "schemas/Event/properties/specversion/const": SPEC_VERSION,
        "schemas/Event/required": [*REQUIRED],
        "schemas/Receipts/properties/receipts/maxItems": RECEIPTS_MAX,
        "schemas/Callback/properties/state/enum": [*STATES],
        "schemas/Callback/properties/form/enum": [*FORMS, *modes],
        "schemas/Callback/properties/failures/maxItems": FAILURES_KEPT,
        "parameters/x-oms-transaction-timeout/schema/maximum": TRANSACTION_TIMEOUT_MAX,
        "parameters/x-oms-transaction-check/schema/maxLength": URL_MAX,
        "parameters/x-oms-callbackurl/schema/maxLength": URL_MAX,
        "parameters/x-oms-requestid/schema/maxLength": REQUEST_ID_MAX,
        "parameters/x-oms-receipt/schema/maxItems": RECEIPTS_MAX,
        "parameters/x-oms-delaymills/schema/maximum": NACK_DELAY_MAX,
        "parameters/x-oms-credit/schema/maximum": CREDIT_MAX,
        "parameters/x-oms-credit/schema/default": CREDIT,
        "parameters/x-oms-maxmessages/schema/maximum": LONG_MAX,
    }
    for pointer, value in values.items():
        with subtests.test(pointer):
            assert at(f"components/{pointer}") == value
    texts = {
        "info/description": f"1 to {NAME_BYTES_MAX} bytes",
        "components/parameters/x-oms-waitmills/description": f"more than {WAIT_MAX} counts as {WAIT_MAX}",
        "components/parameters/x-oms-transaction-timeout/description": f"by default {TRANSACTION_TIMEOUT};",
        "components/parameters/x-oms-maxmessages/description": f"at most {CALLBACK_BATCH_MAX}.",
        "components/parameters/x-oms-h-priority/description": (
            f"{PRIORITIES[0]} to {PRIORITIES[-1]}, {PRIORITIES[-1]} first."
            f" Default, and for other numbers: {DEFAULT_PRIORITY}."
        ),
        "components/schemas/Name/description": f"1 to {NAME_MAX} of",
    }
    for pointer, words in texts.items():
        with subtests.test(pointer):
            assert words in at(pointer)
    pull = OPERATIONS["/v1/messages", "get"]
    assert f"more than {PROPERTIES_AS_HEADERS} properties" in pull["description"]
    assert {jsonform.MEDIA_TYPE.decode(), Mode.STRUCTURED.value} <= pull["responses"]["200"]["content"].keys()
    assert [*OPERATIONS["/v1/log", "get"]["responses"]["200"]["content"]] == [log_block.MEDIA_TYPE]
    assert {mode.value for mode in Mode} - {Mode.BINARY.value} <= at("components/requestBodies/Payload/content").keys()


def test_every_message_that_the_schema_allows_can_be_read() -> None:
    batches = validator(COMPONENTS["schemas"]["Batch"])
    section: dict[str, dict[str, Any]] = {
        s: {f.name: "x" if f.maximum is None else 1 for f in FIELDS if f.section == s}
        for s in ("header", "extensionHeader")
    }
    section["header"]["compression"] = "gzip"
    section["extensionHeader"] |= dict.fromkeys(("contentType", "traceparent", "tracestate"), "text")
    item = {**section, "version": "1.0.0", "properties": {"a": "b", "n": 1.5}, "data": base64.b64encode(b"x").decode()}
    example = OPERATIONS["/v1/messages", "post"]["requestBody"]["content"]["application/json"]["examples"]["one"]
    for batch in ([item], [{"message": item}], example["value"], []):
        batches.validate(batch)
        assert all(isinstance(m, Message) for m in run_at_once(jsonform.decode_array(json.dumps(batch).encode(), 10)))
