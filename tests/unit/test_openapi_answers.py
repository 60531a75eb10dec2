"""What a bridge answers is what the OpenAPI document says, also to its examples, and the console at `/docs`."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from bridge.callbacks.registry import CallbackRegistry
from bridge.http.data_port import DataApp, routes
from bridge.http.description import CONTENT_SECURITY, asyncapi, console
from bridge.http.origin_policy import OriginPolicy
from bridge.metrics import BridgeMetrics
from tests.unit.api_document import COMPONENTS, DOCUMENT, LIMITS, OPERATIONS, engine, schema_of, validator

VERSION = {"x-oms-version": "1.0.0"}


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
            assert not validator(COMPONENTS["schemas"]["Batch"]).is_valid([item])
            answer = await client.post("/v1/messages", headers=VERSION, json=[item])
            assert answer.status_code == 207
            (result,) = answer.json()
            assert result["status"] == 400
            validator(schema_of("/v1/messages", "post", 207, "application/json")).validate(answer.json())


async def test_answers_have_the_documented_form(client: httpx.AsyncClient) -> None:
    batch = [{"header": {"destination": "orders"}, "extensionHeader": {"priority": 9}}, {"header": {}}]
    mixed = await client.post("/v1/messages", headers=VERSION, json=batch)
    capabilities = await client.get("/v1/capabilities")
    for path, method, answer in (("/v1/messages", "post", mixed), ("/v1/capabilities", "get", capabilities)):
        validator(schema_of(path, method, answer.status_code, "application/json")).validate(answer.json())
    single = await client.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": "orders"}, content=b"x")
    by_url = await client.post("/v1/destinations/orders/messages", params={"priority": "9"}, content=b"x")
    schema = schema_of("/v1/destinations/{destination}/messages", "post", 200, "application/json")
    validator(schema).validate(by_url.json())
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-ack": "true"}
    pulled = await client.get("/v1/messages", headers=pull)
    for answer, method in ((single, "post"), (pulled, "get")):
        assert answer.status_code == 200
        ours = {name for name in answer.headers if name.startswith("x-oms-")}
        assert ours <= set(OPERATIONS["/v1/messages", method]["responses"]["200"]["headers"])


async def test_the_lines_of_a_produce_stream_are_as_described(client: httpx.AsyncClient) -> None:
    line = validator(schema_of("/v1/stream", "post", 200, "application/x-ndjson"))
    body = b'{"header": {"destination": "orders"}, "extensionHeader": {"priority": 9}}\nnonsense\n'
    answer = await client.post("/v1/stream", headers=VERSION | {"content-type": "application/x-ndjson"}, content=body)
    found = [json.loads(each) for each in answer.text.splitlines()]
    assert [each.get("status", each.get("end")) for each in found] == [200, 400, "complete"]
    for each in found:
        line.validate(each)
    assert not line.is_valid({"status": 200})


async def test_the_documents_are_served(client: httpx.AsyncClient) -> None:
    for path, document in (("/openapi.json", DOCUMENT), ("/asyncapi.json", asyncapi(LIMITS))):
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == document
        assert (await client.get(path)).content == answer.content


async def test_the_console_loads_nothing_but_its_own_files(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.encode() == CONTENT_SECURITY
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text)
    assert {f"/{path}" for path in loaded} == console().keys() - {"/docs"} | {"/openapi.json"}
    for path in loaded:
        answer = await client.get(path)
        kind = {"js": "text/javascript", "css": "text/css", "json": "application/json"}[path.rpartition(".")[2]]
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)


async def test_an_example_works_when_it_is_sent_unchanged(client: httpx.AsyncClient) -> None:
    """Except those that need what a new bridge does not have: a transaction, a callback's target, a log's name."""

    async def send(path: str, method: str, receipt: str = "") -> httpx.Response:
        request = example_of(path, OPERATIONS[path, method])
        if receipt:
            request["headers"]["x-oms-receipt"] = receipt  # the console puts it into the form
        return await client.request(method, **request)

    statuses = {}
    for (path, method), operation in OPERATIONS.items():
        receipt = ""
        if operation["operationId"] in {"ack", "nack", "extend"}:
            await send("/v1/messages", "post")
            receipt = (await send("/v1/messages", "get")).headers["x-oms-receipt"]
        statuses[operation["operationId"]] = (await send(path, method, receipt)).status_code
    needing = {"transaction": 404, "commitTransaction": 404, "rollbackTransaction": 404, "register": 403, "replay": 404}
    needing["resourceMetadata"] = 404  # no identities
    settled = dict.fromkeys(("ack", "nack", "extend"), 204)
    assert statuses == dict.fromkeys(statuses, 200) | settled | needing


def example_of(path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Return the request that Swagger UI sends when nothing is changed in the form."""
    given: dict[str, dict[str, str]] = {"path": {}, "header": {}, "query": {}}
    for parameter in operation["parameters"]:
        value = parameter.get("example", parameter["schema"].get("default"))
        if value is not None:
            given[parameter["in"]][parameter["name"]] = value if isinstance(value, str) else json.dumps(value)
    content = None
    if body := operation.get("requestBody"):
        media, described = next(iter(body["content"].items()))
        given["header"]["content-type"] = media
        content = described["example"] if isinstance(described["example"], str) else json.dumps(described["example"])
    given["header"]["accept"] = next(iter(operation["responses"].get("200", {}).get("content", ())), "*/*")
    return {
        "url": path.format(**given["path"]),
        "headers": given["header"],
        "params": given["query"],
        "content": content,
    }
