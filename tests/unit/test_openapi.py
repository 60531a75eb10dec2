"""The published contract against the code it describes."""

import argparse
import base64
import json
import re
import shlex
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl

import httpx
import jsonschema_rs
import pytest
import schemathesis

from adapters.memory import connect
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.errors import encode_problem, error_classes
from bridge.http.data_port import DataApp, routes
from bridge.http.openapi.document import build
from bridge.http.openapi.header_descriptions_and_examples import (
    EXAMPLES,
    FIELD_DESCRIPTIONS,
    HTTP_MEMBERS,
    PARAMETER_DESCRIPTIONS,
)
from bridge.http.openapi.html_page import render
from bridge.http.openapi.operations import OPERATIONS
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import Limits
from bridge.long_work import run_at_once
from bridge.message import FIELDS, Message
from bridge.metrics import BridgeMetrics
from bridge.wire import jsonform
from bridge.wire.headers import PARAMETERS

LIMITS = Limits()
DOCUMENT = build(LIMITS)
ERRORS = error_classes()
VERSION = {"x-oms-version": "1.0.0"}


def engine() -> Engine:
    return Engine(connect("memory://"), SystemClock(), EngineOptions(store_host="here"))


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def problems(answer: dict[str, Any]) -> list[str]:
    """List the codes of an answer."""
    return list(answer.get("content", {}).get("application/problem+json", {}).get("examples", ()))


def schema_of(operation: dict[str, Any], status: int, media: str) -> dict[str, Any]:
    schema = operation["responses"][str(status)]["content"][media]["schema"]
    return {"$ref": "#/schema", "schema": schema, "components": DOCUMENT["components"]}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    served = engine()
    await served.start()
    app = DataApp(
        routes(served, CallbackRegistry(served), LIMITS, 16), OriginPolicy((), ()), LIMITS, BridgeMetrics(served)
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client
    await served.close()


def test_the_document_is_valid_openapi() -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.validate()
    assert sum(1 for _ in schema.get_all_operations()) == len(list(operations()))


def test_an_invalid_document_would_be_noticed() -> None:
    broken = json.loads(json.dumps(DOCUMENT))
    del broken["paths"]["/v1/ack"]["post"]["responses"]["204"]["description"]
    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_schema_is_valid_and_every_reference_leads_somewhere() -> None:
    for name in DOCUMENT["components"]["schemas"]:
        jsonschema_rs.validator_for(
            {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}, validate_formats=True
        )
    for reference in re.findall(r'"#/([^"]+)"', json.dumps(DOCUMENT)):
        place: Any = DOCUMENT
        for step in reference.split("/"):
            place = place[step]


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    table = routes(engine(), CallbackRegistry(engine()), LIMITS, 16)
    served = {path: set(methods) for path, methods in table.items()}
    assert {path: set(methods) for path, methods in OPERATIONS.items()} == served
    assert {path: {m.upper() for m in methods} for path, methods in DOCUMENT["paths"].items()} == served


def test_every_field_is_described_where_it_travels() -> None:
    assert set(FIELD_DESCRIPTIONS) == {field.name for field in FIELDS}
    names = {f"x-oms-h-{field.name.lower()}" for field in FIELDS}
    produced = {p["name"] for p in DOCUMENT["paths"]["/v1/messages"]["post"]["parameters"]}
    assert names - produced == {"x-oms-h-storetimestamp", "x-oms-h-storehost", "x-oms-h-deliverycount"}
    assert names <= set(DOCUMENT["paths"]["/v1/messages"]["get"]["responses"]["200"]["headers"])
    members = DOCUMENT["components"]["schemas"]["Message"]["properties"]
    for field in FIELDS:
        assert field.name in members[field.section]["properties"]


def test_every_word_of_the_vocabulary_is_described() -> None:
    assert set(PARAMETER_DESCRIPTIONS) == PARAMETERS
    asked = {p["name"] for _, _, o in operations() for p in o["parameters"] if p["in"] == "header"}
    answered = {
        name for _, _, o in operations() for answer in o["responses"].values() for name in answer.get("headers", ())
    }
    assert {f"x-oms-{name}" for name in PARAMETER_DESCRIPTIONS} <= asked | answered


def test_ranges_are_those_of_the_table() -> None:
    found = {p["name"]: p["schema"] for p in DOCUMENT["paths"]["/v1/messages"]["post"]["parameters"]}
    for field in FIELDS:
        schema = found.get(f"x-oms-h-{field.name.lower()}")
        if schema is not None:
            assert schema.get("maximum") == field.maximum
            assert (schema["type"] == "integer") is (field.maximum is not None)


def test_every_error_is_described_with_an_example() -> None:
    codes = {code["const"] for code in DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["oneOf"]}
    assert codes == {cls.code for cls in ERRORS} == set(DOCUMENT["components"]["examples"])
    elsewhere = {"method-not-allowed"}
    shown = {code for _, _, o in operations() for a in o["responses"].values() for code in problems(a)}
    assert shown == codes - elsewhere


def test_an_error_has_its_documented_status_and_form(subtests: pytest.Subtests) -> None:
    for cls in ERRORS:
        with subtests.test(cls=cls):
            headers, body = encode_problem(cls("Something."))
            validator = jsonschema_rs.validator_for(
                {"$ref": "#/components/schemas/Problem", "components": DOCUMENT["components"]}
            )
            validator.validate(json.loads(body))
            for _, _, operation in operations():
                for status, answer in operation["responses"].items():
                    if cls.code in problems(answer):
                        assert status == str(cls.status)
                        assert {name.decode() for name, _ in headers} - {"content-type"} <= set(answer["headers"])


def test_every_message_that_the_schema_allows_can_be_read() -> None:
    schema = {"$ref": "#/components/schemas/Batch", "components": DOCUMENT["components"]}
    validator = jsonschema_rs.validator_for(schema)
    section = {
        s: {f.name: "x" if f.maximum is None else 1 for f in FIELDS if f.section == s}
        for s in ("header", "extensionHeader")
    }
    section["header"]["compression"] = "gzip"
    section["extensionHeader"] |= dict.fromkeys(HTTP_MEMBERS, "text")
    item = {**section, "version": "1.0.0", "properties": {"a": "b", "n": 1.5}, "data": base64.b64encode(b"x").decode()}
    example = DOCUMENT["paths"]["/v1/messages"]["post"]["requestBody"]["content"]["application/json"]["examples"]["one"]
    for batch in ([item], [{"message": item}], example["value"], []):
        validator.validate(batch)
        assert all(isinstance(m, Message) for m in run_at_once(jsonform.decode_array(json.dumps(batch).encode(), 10)))


async def test_what_the_schema_forbids_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [
        {},
        {"header": {}},
        {"header": {"destination": "a/b"}},
        {"header": {"destination": "oms.x"}},
        {"header": {"destination": ".."}},
        {"header": {"destination": "o", "extra": "x"}},
        {"header": {"destination": "o"}, "extensionHeader": {"priority": -1}},
        {"header": {"destination": "o"}, "extensionHeader": {"delayTime": "1"}},
        {"header": {"destination": "o"}, "data": 5},
        {"header": {"destination": "o"}, "surplus": 1},
    ]
    for item in cases:
        with subtests.test(item=item):
            schema = {"$ref": "#/components/schemas/Batch", "components": DOCUMENT["components"]}
            assert not jsonschema_rs.validator_for(schema).is_valid([item])
            answer = await client.post("/v1/messages", headers=VERSION, json=[item])
            assert answer.status_code == 207
            (result,) = answer.json()
            assert result["status"] == 400
            schema = schema_of(DOCUMENT["paths"]["/v1/messages"]["post"], 207, "application/json")
            jsonschema_rs.validator_for(schema).validate(answer.json())


async def test_answers_have_the_documented_form(client: httpx.AsyncClient) -> None:
    batch = [{"header": {"destination": "orders"}, "extensionHeader": {"priority": 9}}, {"header": {}}]
    mixed = await client.post("/v1/messages", headers=VERSION, json=batch)
    capabilities = await client.get("/v1/capabilities")
    for path, method, answer in (("/v1/messages", "post", mixed), ("/v1/capabilities", "get", capabilities)):
        operation = DOCUMENT["paths"][path][method]
        schema = schema_of(operation, answer.status_code, "application/json")
        jsonschema_rs.validator_for(schema).validate(answer.json())
    described = DOCUMENT["paths"]["/v1/messages"]
    single = await client.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": "orders"}, content=b"x")
    by_url = await client.post("/v1/destinations/orders/messages", params={"priority": "9"}, content=b"x")
    schema = schema_of(DOCUMENT["paths"]["/v1/destinations/{destination}/messages"]["post"], 200, "application/json")
    jsonschema_rs.validator_for(schema).validate(by_url.json())
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-ack": "true"}
    pulled = await client.get("/v1/messages", headers=pull)
    for answer, operation in ((single, described["post"]), (pulled, described["get"])):
        assert answer.status_code == 200
        ours = {name for name in answer.headers if name.startswith("x-oms-")}
        assert ours <= set(operation["responses"]["200"]["headers"])


async def test_the_lines_of_a_produce_stream_are_as_described(client: httpx.AsyncClient) -> None:
    described = DOCUMENT["paths"]["/v1/stream"]["post"]
    line = jsonschema_rs.validator_for(schema_of(described, 200, "application/x-ndjson"))
    body = b'{"header": {"destination": "orders"}, "extensionHeader": {"priority": 9}}\nnonsense\n'
    answer = await client.post("/v1/stream", headers=VERSION | {"content-type": "application/x-ndjson"}, content=body)
    found = [json.loads(each) for each in answer.text.splitlines()]
    assert [each.get("status", each.get("end")) for each in found] == [200, 400, "complete"]
    for each in found:
        line.validate(each)
    assert not line.is_valid({"status": 200})


async def test_the_document_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == json.loads(json.dumps(DOCUMENT))
    assert (await client.get("/openapi.json")).content == answer.content


async def test_the_page_is_served_and_needs_nothing_else(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    page = Page(answer.text)
    assert not page.tags & {"script", "img", "iframe", "object", "embed", "form", "base", "link"}
    assert all(target.startswith("#") for target in page.targets)
    assert {target[1:] for target in page.targets} == page.ids
    for expected in (*(path for path, _, _ in operations()), *(cls.code for cls in ERRORS)):
        assert expected in page.words
    for field in FIELDS:
        assert f"x-oms-h-{field.name.lower()}" in page.words
        assert f"{field.section}.{field.name}" in page.words


async def test_every_example_is_on_the_page_and_gets_a_documented_answer(
    client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    page = Page((await client.get("/docs")).text)
    receipt = ""
    names = ("produce", "produceByUrl", "produceStream", "pull", "ack", "push", "register", "callbacks")
    for name in names:
        for example in EXAMPLES[name]:
            with subtests.test(example.title):
                assert example.command in page.words
                request = request_of(example.command.replace("RECEIPT", receipt))
                if name == "push":
                    request["params"].append(("waitmills", "0"))
                answer = await client.request(**request)
                receipt = answer.headers.get("x-oms-receipt", receipt)
                assert answer.status_code in {200, 204} or answer.json()["code"] == "callback-refused"
                if name == "push":
                    assert len(answer.text.splitlines()) == 5, "four messages and the end"
    assert set(EXAMPLES) == {*names}


def request_of(command: str) -> dict[str, Any]:
    """Return the request that a curl command of the examples sends."""
    parser = argparse.ArgumentParser()
    for option in ("-i", "-N", "-G"):
        parser.add_argument(option, action="store_true")
    for option in ("-H", "-d"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("-X")
    parser.add_argument("url")
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    assert program == "curl"
    given = parser.parse_args(arguments)
    body = "&".join(given.d)
    return {
        "method": given.X or ("POST" if body and not given.G else "GET"),
        "url": given.url,
        "headers": [tuple(header.split(": ", 1)) for header in given.H],
        "params": parse_qsl(body) if given.G else None,
        "content": None if given.G else body,
    }


def test_the_page_shows_no_regular_expression_and_no_empty_cell() -> None:
    page = render(DOCUMENT)
    assert "[A-Za-z0-9._-]" not in page
    assert not re.search(r"<t[dh]>(?=<t[dhr]>|</table>)", page)


def test_the_page_escapes_what_it_shows() -> None:
    hostile = json.loads(json.dumps(DOCUMENT).replace("Stored.", "<script>alert(1)</script>"))
    assert "script" not in Page(render(hostile)).tags


class Page(HTMLParser):
    """What stands in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        if identity := found.get("id"):
            self.ids.add(identity)
        self.targets += [found[name] or "" for name in ("href", "src", "action") if name in found]
        assert not any(name.startswith("on") for name in found)

    def handle_data(self, data: str) -> None:
        self.words += data + " "


def test_what_is_kept_for_it_is_small() -> None:
    tracemalloc.start()
    try:
        kept = (json.dumps(build(LIMITS)).encode(), render(build(LIMITS)).encode())
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, kept)) < 305_000
    assert held < 500_000
    assert peak < 2_000_000
