"""HTTP itself, and the trace that travels along."""

import asyncio
import socket

import httpx
import pytest

from .conversation import Conversation, Target

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.wire
async def test_http2_with_prior_knowledge(talk: Conversation) -> None:
    """
    > - HTTP/2: cleartext with prior knowledge (a sidecar on loopback)
    """
    assert (await talk.produce()).http_version == "HTTP/2"


@pytest.mark.wire
async def test_http1_is_answered_too(bridge: Target, talk: Conversation) -> None:
    """
    > HTTP/1.1 is answered too, so that a plain `curl` works.
    """
    async with httpx.AsyncClient(base_url=bridge.url, trust_env=False, timeout=30) as http:
        plain = Conversation(http)
        plain.destination, plain.group = talk.destination, talk.group
        assert (await plain.produce(b"by curl")).http_version == "HTTP/1.1"
        taken = await plain.take([("X-OMS-RequestId", "r")])
        await plain.ack(taken.receipt)
    assert taken.body == b"by curl"
    await talk.nothing()


@pytest.mark.wire
async def test_an_upgrade_to_http2_is_not_taken(bridge: Target) -> None:
    """
    > No `Upgrade: h2c`.
    """
    if bridge.url.startswith("https"):
        pytest.skip("cleartext only")
    url = httpx.URL(bridge.url)
    host = f"{url.host}:{url.port or 80}"
    request = (
        f"GET /v1/capabilities HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade, http2-settings\r\n"
        "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    )

    def status_line() -> bytes:
        with socket.create_connection((url.host, url.port or 80), timeout=20) as plain:
            plain.sendall(request.encode("ascii"))
            return plain.recv(65536).partition(b"\r\n")[0]

    assert (await asyncio.to_thread(status_line)).startswith(b"HTTP/1.1 200")


@pytest.mark.wire
async def test_names_are_matched_whatever_their_case(bridge: Target, talk: Conversation) -> None:
    """
    > - Field names arrive in lower case over HTTP/2, so every name here is matched case-insensitively and sent
    > in lower case.
    """
    async with httpx.AsyncClient(base_url=bridge.url, trust_env=False, timeout=30) as http:
        headers = {"X-OMS-Version": "1.0.0", "X-Oms-H-Destination": talk.destination, "X-OMS-H-CorrelationId": "Kept"}
        answer = await http.post("/v1/messages", headers=headers)
        assert answer.status_code == 200
        assert all(raw == raw.lower() for raw, _ in answer.headers.raw if raw.lower().startswith(b"x-oms"))
    assert (await talk.take()).headers["x-oms-h-correlationid"] == "Kept"


async def test_a_trace_becomes_the_trace_id_and_is_handed_on(talk: Conversation) -> None:
    """
    > | messageKey, correlationId, traceId, transactionId | String | client | |
    """
    await talk.produce(pairs=[("traceparent", PARENT), ("tracestate", "vendor=1")])
    taken = await talk.take()
    assert taken.headers["x-oms-h-traceid"] == "0af7651916cd43dd8448eb211c80319c"
    assert (taken.headers["traceparent"], taken.headers["tracestate"]) == (PARENT, "vendor=1")


@pytest.mark.wire
async def test_a_trace_id_of_the_client_wins_over_the_trace(talk: Conversation) -> None:
    """
    > | messageKey, correlationId, traceId, transactionId | String | client | |
    """
    await talk.produce(pairs=[("traceparent", PARENT)], traceid="mine")
    taken = await talk.take()
    assert (taken.headers["x-oms-h-traceid"], taken.headers["traceparent"]) == ("mine", PARENT)


@pytest.mark.wire
async def test_a_trace_that_is_none_is_ignored(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > | messageKey, correlationId, traceId, transactionId | String | client | |
    """
    for parent in ("", "00-0-0-0", PARENT[:-1], f"ff{PARENT[2:]}", PARENT.upper(), f"{PARENT}-x"):
        with subtests.test(repr(parent)):
            await talk.produce(pairs=[("traceparent", parent)])
            taken = await talk.take(ack="false")
            assert "traceparent" not in taken.headers
            assert "x-oms-h-traceid" not in taken.headers
