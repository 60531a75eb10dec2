"""Errors, limits and the other pages."""

import asyncio
import json

import httpx
import pytest

from .conversation import Conversation, Target, refused
from .frames import Answer, Frames

pytestmark = pytest.mark.wire


async def test_an_error_is_a_problem_document_with_a_stable_code(talk: Conversation) -> None:
    """
    > - Errors: `application/problem+json` (RFC 9457) with a stable `code`, repeated in `x-oms-error`;
    """
    answer = await talk.post(qos=9)
    assert "x-oms-h-qos" in refused(answer, 400, "header-invalid")
    assert {"type", "title", "status", "detail", "code"} <= set(answer.json())


async def test_what_does_not_exist_says_so(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - Errors: `application/problem+json` (RFC 9457) with a stable `code`, repeated in `x-oms-error`;
    """
    for method, path, status, code in (
        ("GET", "/", 404, "not-found"),
        ("POST", "/v1/message", 404, "not-found"),
        ("POST", "/v1/messages/", 404, "not-found"),
        ("GET", "/v1/ack", 405, "method-not-allowed"),
        ("DELETE", "/v1/messages", 405, "method-not-allowed"),
        ("PUT", "/v1/messages", 405, "method-not-allowed"),
    ):
        with subtests.test(f"{method} {path}"):
            answer = await talk.http.request(method, path, headers={"x-oms-version": "1.0.0"})
            assert path in refused(answer, status, code)
            assert ("allow" in answer.headers) == (status == 405)


async def test_a_refused_message_is_not_stored_and_the_client_can_tell(talk: Conversation) -> None:
    """
    > Three outcomes, and a client can tell them apart: **stored** (200), **not stored** (every 4xx, and 503
    > with `x-oms-retry-safe: true`), **unknown** (504, or a broken connection).
    """
    refused(await talk.post(b"no", qos=9), 400, "header-invalid")
    refused(await talk.post(b"no", [("x-oms-p-a", "1"), ("x-oms-p-a", "1")]), 400, "header-repeated")
    await talk.produce(b"yes")
    assert (await talk.take()).body == b"yes"
    await talk.nothing()


async def test_a_body_beyond_the_limit_is_refused(bridge: Target, talk: Conversation) -> None:
    """
    > - Limits, each configurable, each with its own code: body 4 MiB (413), headers 32 KiB (431),
    """
    limit = bridge.limit("body")
    if limit > 16 << 20:
        pytest.skip("the bridge takes bodies too large for this test")
    pairs = [(b"x-oms-version", b"1.0.0"), (b"x-oms-h-destination", talk.destination.encode())]

    def send(declared: list[tuple[bytes, bytes]]) -> Answer:
        with Frames(bridge.url) as frames:
            return frames.ask("POST", "/v1/messages", pairs + declared, bytes(limit + 1))

    # Frame by frame: httpx takes an answer that comes before the end of the body for a broken connection.
    for declared in ([], [(b"content-length", b"%d" % (limit + 1))]):
        answer = await asyncio.to_thread(send, declared)
        assert (answer.status, answer.headers[b"x-oms-error"]) == (413, b"body-too-large")
        assert str(limit) in json.loads(answer.body)["detail"]
    await talk.nothing()


async def test_headers_beyond_the_limit_are_refused(bridge: Target, talk: Conversation) -> None:
    """
    > - Limits, each configurable, each with its own code: body 4 MiB (413), headers 32 KiB (431),
    """
    limit = bridge.limit("headers")
    pairs = [(f"x-oms-p-n{number}", "x" * 1000) for number in range(limit // 1000 + 1)]
    assert str(limit) in refused(await talk.post(b"", pairs), 431, "headers-too-large")
    await talk.nothing()


async def test_the_management_port_says_whether_the_bridge_is_ready(bridge: Target) -> None:
    """
    > Management port: `/livez`, `/readyz` (says why not), `/metrics` (Prometheus), `/status`.
    """
    async with _management(bridge) as http:
        for path in ("/livez", "/readyz"):
            assert (await http.get(path)).status_code == 200
        assert "# TYPE oms_produced_total counter" in (await http.get("/metrics")).text
        assert (await http.get("/status")).json()["ready"] is True


async def test_the_management_port_has_no_messages(bridge: Target, talk: Conversation) -> None:
    """
    > (probes and metrics only, never messages).
    """
    await talk.produce(b"private", [("x-oms-p-secret", "sesame")])
    async with _management(bridge) as http:
        assert (await http.post("/v1/messages", headers={"x-oms-version": "1.0.0"})).status_code == 404
        pages = [(await http.get(path)).text for path in ("/status", "/metrics")]
    assert not any("private" in page or "sesame" in page for page in pages)
    for path in ("/metrics", "/status", "/readyz"):
        refused(await talk.http.get(path), 404, "not-found")


async def test_the_contract_is_published_as_openapi(talk: Conversation) -> None:
    """
    > - `GET /openapi.json`, `GET /asyncapi.json`, `GET /docs`.
    """
    document = (await talk.http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.")
    assert {"/v1/messages", "/v1/ack", "/v1/nack", "/v1/extend", "/v1/capabilities"} <= set(document["paths"])
    messages = (await talk.http.get("/asyncapi.json")).json()
    assert messages["asyncapi"].startswith("3.")
    assert {"produce", "pull", "push", "callback"} <= set(messages["operations"])
    page = await talk.http.get("/docs")
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")


def _management(bridge: Target) -> httpx.AsyncClient:
    if bridge.management is None:
        pytest.skip("the management port is not known")
    return httpx.AsyncClient(base_url=bridge.management, trust_env=False)
