"""Batches in both forms."""

import base64
import gzip
import json

import httpx
import pytest

from .conversation import Conversation, Target, refused

pytestmark = pytest.mark.slow_on_brokers

BOUNDARY = "the-boundary"


def part(headers: dict[str, str], body: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"--{BOUNDARY}\r\n{head}\r\n".encode() + body + b"\r\n"


async def send_parts(talk: Conversation, *parts: bytes) -> httpx.Response:
    headers = {"x-oms-version": "1.0.0", "content-type": f"multipart/mixed; boundary={BOUNDARY}"}
    return await talk.http.post("/v1/messages", headers=headers, content=b"".join(parts) + f"--{BOUNDARY}--".encode())


async def send_json(talk: Conversation, *messages: object) -> httpx.Response:
    headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
    return await talk.http.post("/v1/messages", headers=headers, content=json.dumps(messages))


def in_json(destination: str, body: bytes, **more: object) -> dict[str, object]:
    return {"header": {"destination": destination}, "data": base64.b64encode(body).decode("ascii")} | more


async def test_a_multipart_batch_is_stored_part_by_part(talk: Conversation) -> None:
    """
    > Batch: the same path with `content-type: multipart/mixed; boundary=…`, each part one message in the
    > single form,

    > Reply: JSON, one result per message in request order (status, messageId, partition, offset or error); 200
    > when all were stored, else 207.
    """
    binary = bytes(range(256)) + b"\r\n\r\n--almost-the-boundary"
    common = {"x-oms-h-destination": talk.destination, "x-oms-h-messagekey": "one lane"}
    answer = await send_parts(
        talk,
        part(common | {"x-oms-h-messageid": "m-0", "x-oms-p-%4frder%49d": "7"}, binary),
        part(common | {"X-OMS-H-MessageId": "m-1", "content-type": "text/plain"}, b""),
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    results = answer.json()
    assert [(r["status"], r["messageId"]) for r in results] == [(200, "m-0"), (200, "m-1")]
    first, second = await talk.take_all(2)
    assert (first.body, first.headers["x-oms-p-%4frder%49d"]) == (binary, "7")
    assert (second.body, second.headers["content-type"]) == (b"", "text/plain")
    if "partition" in results[0]:
        assert first.headers["x-oms-h-partition"] == str(results[0]["partition"])


async def test_a_json_batch_is_stored_item_by_item(bridge: Target, talk: Conversation) -> None:
    """
    > or `application/json` with an array of messages in the specification's own JSON form (`header`,
    > `extensionHeader`, `properties`, `data` in base64).
    """
    bridge.need("priority", "messageKey")
    binary = bytes(range(256))
    answer = await send_json(
        talk,
        in_json(
            talk.destination,
            binary,
            extensionHeader={"messageKey": "Zürich", "priority": 7, "correlationId": "c"},
            properties={"OrderId": "7", "count": 3},
        ),
    )
    assert answer.status_code == 200, answer.text
    assert "priority=" in answer.json()[0]["applied"]
    taken = await talk.take()
    assert taken.body == binary
    said = ("x-oms-p-%4frder%49d", "x-oms-p-count", "x-oms-h-priority", "x-oms-h-messagekey*", "x-oms-h-correlationid")
    assert [taken.headers[name] for name in said] == ["7", "3", "7", "UTF-8''Z%C3%BCrich", "c"]


@pytest.mark.wire
async def test_one_bad_part_does_not_hold_up_the_others(talk: Conversation) -> None:
    """
    > Every message is judged on its own.

    > Reply: JSON, one result per message in request order (status, messageId, partition, offset or error); 200
    > when all were stored, else 207.
    """
    good = {"x-oms-h-destination": talk.destination}
    answer = await send_parts(
        talk, part(good, b"1"), part(good | {"x-oms-h-qos": "7"}, b"bad"), part({}, b"nowhere"), part(good, b"2")
    )
    assert answer.status_code == 207
    results = answer.json()
    assert [r["status"] for r in results] == [200, 400, 400, 200]
    assert [results[n]["code"] for n in (1, 2)] == ["header-invalid", "header-missing"]
    assert "x-oms-h-qos" in results[1]["detail"]
    assert {t.body for t in await talk.take_all(2)} == {b"1", b"2"}
    await talk.nothing()


@pytest.mark.wire
async def test_one_bad_item_does_not_hold_up_the_others(talk: Conversation) -> None:
    """
    > Every message is judged on its own.
    """
    bad: list[object] = [
        in_json(talk.destination, b"") | {"data": "not base64!"},
        in_json("..", b""),
        in_json(talk.destination, b"", colour="red"),
        in_json(talk.destination, b"", extensionHeader={"priority": "7"}),
        "no object",
    ]
    answer = await send_json(talk, in_json(talk.destination, b"1"), *bad, in_json(talk.destination, b"2"))
    assert answer.status_code == 207
    assert [r["status"] for r in answer.json()] == [200, 400, 400, 400, 400, 400, 200]
    assert {t.body for t in await talk.take_all(2)} == {b"1", b"2"}
    await talk.nothing()


async def test_a_batch_may_go_to_several_destinations(talk: Conversation) -> None:
    """
    > Every message is judged on its own.
    """
    other = f"{talk.destination}-other"
    answer = await send_json(talk, in_json(talk.destination, b"here"), in_json(other, b"there"))
    assert answer.status_code == 200
    assert (await talk.take()).body == b"here"
    assert (await talk.take(source=other)).body == b"there"


async def test_a_batch_keeps_its_order_per_key(talk: Conversation) -> None:
    """
    > Every message is judged on its own.
    """
    same = {"extensionHeader": {"messageKey": "k"}}
    await send_json(talk, *(in_json(talk.destination, b"%d" % number, **same) for number in range(50)))
    assert [int(t.body) for t in await talk.take_all(50)] == list(range(50))


@pytest.mark.wire
async def test_what_cannot_be_honoured_is_refused_in_a_batch_too(talk: Conversation) -> None:
    """
    > `x-oms-require: delayTime,priority` turns a field that cannot be honoured into a 422, nothing stored.
    """
    headers = {"x-oms-version": "1.0.0", "content-type": "application/json", "x-oms-require": "priority"}
    items = [in_json(talk.destination, b"", extensionHeader={"priority": 99})]
    answer = await talk.http.post("/v1/messages", headers=headers, content=json.dumps(items))
    assert answer.status_code == 207
    assert answer.json()[0]["status"] == 422
    await talk.nothing()


@pytest.mark.wire
async def test_a_body_that_is_no_array_is_refused_as_a_whole(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > or `application/json` with an array of messages in the specification's own JSON form (`header`,
    > `extensionHeader`, `properties`, `data` in base64).
    """
    headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
    for body in (b"", b"{", b"{}", b'"x"', b"[" * 100_000, b"\xff\xfe", b"[NaN]"):
        with subtests.test(repr(body[:20])):
            refused(await talk.http.post("/v1/messages", headers=headers, content=body), 400, "body-invalid")


@pytest.mark.wire
async def test_a_batch_that_ends_too_early_stores_nothing(talk: Conversation) -> None:
    """
    > Batch: the same path with `content-type: multipart/mixed; boundary=…`, each part one message in the
    > single form,
    """
    headers = {"x-oms-version": "1.0.0", "content-type": f"multipart/mixed; boundary={BOUNDARY}"}
    content = part({"x-oms-h-destination": talk.destination}, b"cut")
    refused(await talk.http.post("/v1/messages", headers=headers, content=content), 400, "body-invalid")
    await talk.nothing()


@pytest.mark.wire
async def test_a_part_may_be_compressed(bridge: Target, talk: Conversation) -> None:
    """
    > Batch: the same path with `content-type: multipart/mixed; boundary=…`, each part one message in the
    > single form,
    """
    bridge.need("compression")
    packed = gzip.compress(b"text " * 100)
    good = {"x-oms-h-destination": talk.destination, "x-oms-h-messagekey": "k"}
    answer = await send_parts(
        talk,
        part(good | {"x-oms-h-compression": "gzip"}, packed),
        part(good | {"content-encoding": "gzip"}, packed),
        part(good | {"content-encoding": "br"}, packed),
    )
    assert [r["status"] for r in answer.json()] == [200, 200, 415]
    assert [t.body for t in await talk.take_all(2)] == [b"text " * 100] * 2
