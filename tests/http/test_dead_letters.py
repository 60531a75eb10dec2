"""Dead letters over HTTP: only the bridge writes them, and a client can produce one again."""

import json
from collections.abc import Iterator

import httpx
import pytest

from bridge.client import Client
from bridge.errors import Rejected
from bridge.message import Message
from tests.http.asking import fresh
from tests.http.conftest import Start
from tests.launch import Bridge

SETTINGS = """
destinations:
  hooked: {properties_from_headers: [oms-dead-letter-reason]}
"""
FORGED = "oms-dead-letter-reason"
HEADER = {"x-oms-version": "1.0.0", f"x-oms-p-{FORGED}": "x"}
LINE = {"version": "1.0.0", "header": {"destination": "forged"}, "properties": {FORGED: "x"}, "data": ""}
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/s",
    "type": "t",
    "omsproperties": json.dumps({FORGED: "x"}),
}
PART = f"--b\r\nx-oms-version: 1.0.0\r\nx-oms-h-destination: forged\r\nx-oms-p-{FORGED}: x\r\n\r\n\r\n--b--"


@pytest.fixture
def refusing(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    file = tmp_path_factory.getbasetemp() / "dead-letters.yaml"
    file.write_text(SETTINGS, "utf-8")
    return start(OMS_CONFIG=str(file))


@pytest.fixture
def http(refusing: Bridge) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=refusing.url, trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "content"),
    [
        ("POST", "/v1/messages", HEADER | {"x-oms-h-destination": "forged"}, ""),
        (
            "POST",
            "/v1/messages",
            HEADER | {"x-oms-h-destination": "forged", "x-oms-transaction": "prepare", "x-oms-h-transactionid": "t"},
            "",
        ),
        ("POST", "/v1/messages", {"x-oms-version": "1.0.0", "content-type": "application/json"}, json.dumps([LINE])),
        ("POST", "/v1/messages", {"x-oms-version": "1.0.0", "content-type": "multipart/mixed; boundary=b"}, PART),
        ("POST", "/v1/stream", {"x-oms-version": "1.0.0", "content-type": "application/x-ndjson"}, json.dumps(LINE)),
        (
            "POST",
            "/v1/destinations/forged/messages",
            {"content-type": "application/cloudevents+json"},
            json.dumps(EVENT),
        ),
        ("PUT", "/v1/destinations/forged/messages/id", {f"x-oms-p-{FORGED}": "x"}, ""),
        ("POST", "/v1/destinations/hooked/messages", {FORGED: "x"}, ""),
    ],
    ids=["single", "prepared", "JSON", "multipart", "stream", "event", "PUT", "webhook"],
)
def test_a_client_cannot_say_why_a_message_is_a_dead_letter(
    http: httpx.Client, method: str, path: str, headers: dict[str, str], content: str
) -> None:
    answer = http.request(method, path, headers=headers, content=content)
    assert "only the bridge sets properties that begin with oms-dead-letter-" in answer.text, answer.text
    assert '"code": "header-invalid"' in answer.text.replace('":"', '": "')
    for name in ("forged", "hooked"):
        pull = {"x-oms-version": "1.0.0", "x-oms-source": name, "x-oms-consumerid": "g"}
        assert http.get("/v1/messages", headers=pull).status_code == 204


async def test_a_client_produces_a_dead_letter_again(start: Start) -> None:
    bridge, name = start(OMS_DELIVERY__MAX_DELIVERIES="1"), fresh().decode()
    async with Client(bridge.url) as client:
        await client.produce(Message(name, b"body", properties={"colour": "red"}))
        first = await client.pull(name, "g")
        assert first is not None
        assert first.receipt is not None
        await client.nack(first.receipt)
        dead = await client.pull(f"{name}.dlq", "repair", wait_ms=30_000)
        assert dead is not None
        assert dead.receipt is not None
        again = dead.message._replace(destination=name, partition=None, message_id=None)
        with pytest.raises(Rejected, match="To produce a dead letter again, leave them out"):
            await client.produce(again)
        kept = {key: text for key, text in again.properties.items() if not key.startswith("oms-dead-letter-")}
        await client.produce(again._replace(properties=kept))
        await client.ack(dead.receipt)
        back = await client.pull(name, "g", wait_ms=30_000)
        assert back is not None
        assert (back.message.body, back.message.properties, back.delivery_count) == (b"body", {"colour": "red"}, 1)
