"""CloudEvents in and out, as a client sees them."""

import json
from typing import Any, Final

import httpx
import pytest

from .conversation import Conversation, refused

pytestmark = pytest.mark.wire

EVENT: Final[dict[str, Any]] = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "created", "subject": "ä b"}
STRUCTURED: Final = "application/cloudevents+json"


async def send(talk: Conversation, content_type: str, body: bytes, **headers: str) -> httpx.Response:
    """Produce by URL, and return whatever the bridge answers."""
    named = {"content-type": content_type} | {name.replace("_", "-"): value for name, value in headers.items()}
    return await talk.http.post(f"/v1/destinations/{talk.destination}/messages", headers=named, content=body)


async def test_each_mode_is_stored_as_a_message(talk: Conversation) -> None:
    """
    > Produce takes CloudEvents 1.0 in binary, structured and batched mode: `id`, `time` and `partitionkey` are
    > messageId, bornTimestamp and messageKey, other attributes are properties of the same name.
    """
    event = EVENT | {"time": "1970-01-01T00:00:01.5Z", "partitionkey": "k"}
    binary = {f"ce-{name}": str(value) for name, value in event.items()} | {"ce-subject": "%C3%A4%20b"}
    document = event | {"datacontenttype": "text/plain", "data": "x"}
    ids = []
    for content_type, body, headers in (
        ("text/plain", b"x", binary | {"ce-id": "7"}),
        (STRUCTURED, json.dumps(document | {"id": "8"}).encode(), {}),
        ("application/cloudevents-batch+json", json.dumps([document | {"id": "9"}]).encode(), {}),
    ):
        answer = await send(talk, content_type, body, **headers)
        assert answer.status_code == 200, answer.text
        taken = await talk.take()
        assert (taken.body, taken.headers["content-type"]) == (b"x", "text/plain")
        ids.append(taken.headers["x-oms-h-messageid"])
        fields = {"borntimestamp": "1500", "messagekey": "k"}
        assert {name: taken.headers[f"x-oms-h-{name}"] for name in fields} == fields
        assert {taken.headers[f"x-oms-p-{name}"] for name in ("source", "type")} == {"/shop", "created"}
        assert taken.headers["x-oms-p-subject*"] == "UTF-8''%C3%A4%20b"
        await talk.ack(taken.receipt)
    assert ids == ["7", "8", "9"]


async def test_what_is_no_event_is_refused(talk: Conversation) -> None:
    """
    > What is no event, or what no message can hold, is a 400.
    """
    missing = await send(talk, "text/plain", b"x", ce_id="7")
    assert "ce-specversion" in refused(missing, 400, "header-missing")
    for wrong in ({"specversion": "0.3"}, {"MyExtension": "x"}, {"time": "noon"}, {"extension": 1.5}, {"source": ""}):
        answer = await send(talk, STRUCTURED, json.dumps(EVENT | wrong).encode())
        assert next(iter(wrong)) in refused(answer, 400, "header-invalid")
    refused(await send(talk, STRUCTURED, b"[]"), 400, "body-invalid")
    await talk.nothing()


async def test_a_message_is_sent_as_an_event(talk: Conversation) -> None:
    """
    > Pull, push and callbacks send each message as an event if `accept` asks for it, also one that was not
    > produced as such.
    """
    accepts = ("application/cloudevents", STRUCTURED)
    for number, accept in enumerate(accepts):
        pairs = [("content-type", "application/json"), ("x-oms-p-region", "eu")]
        await talk.produce(b'{"a": 1}', pairs, messageid=number)
        taken = await talk.take([("accept", accept)])
        await talk.ack(taken.receipt)
        if accept == STRUCTURED:
            event = json.loads(taken.body)
            assert event.pop("data") == {"a": 1}
        else:
            event = {name.removeprefix("ce-"): value for name, value in taken.headers.items() if name.startswith("ce-")}
            assert taken.body == b'{"a": 1}'
        assert (event["specversion"], event["id"], event["region"]) == ("1.0", str(number), "eu")
        assert event["source"] == f"urn:openmessaging-bridge:destination:{talk.destination}"
        assert event["type"] == "io.openmessaging.message"
