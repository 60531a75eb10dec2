"""Producers that send a body to a URL and nothing else."""

from collections.abc import Mapping

import httpx
import pytest

from .conversation import Conversation, refused


async def send(
    talk: Conversation,
    body: bytes,
    message_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **query: str,
) -> httpx.Response:
    """Send one message by URL, and return whatever the bridge answers."""
    path = f"/v1/destinations/{talk.destination}/messages"
    if message_id is None:
        return await talk.http.post(path, content=body, headers=headers, params=query)
    return await talk.http.put(f"{path}/{message_id}", content=body, headers=headers, params=query)


async def test_a_body_is_a_message(talk: Conversation) -> None:
    """
    > Any body, any content type, no header needed: the body is one message, a batch is payload.
    """
    bodies = {b"plain": None, b"[]": "application/json", b"--b--": "multipart/mixed; boundary=b", b"": "text/plain"}
    for body, content_type in bodies.items():
        answer = await send(talk, body, headers={"content-type": content_type} if content_type else None, key="k")
        assert answer.status_code == 200, answer.text
        taken = await talk.take()
        assert taken.body == body
        assert taken.headers["content-type"] == (content_type or "application/octet-stream")
        await talk.ack(taken.receipt)


async def test_the_reply_is_json_too(talk: Conversation) -> None:
    """
    > The reply has the headers of a produce, and the same as a JSON body.
    """
    answer = await send(talk, b"here", key="k")
    stored = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert stored["messageId"] == answer.headers["x-oms-h-messageid"]
    assert str(stored["storeTimestamp"]) == answer.headers["x-oms-h-storetimestamp"]
    for member, header in (("partition", "x-oms-h-partition"), ("offset", "x-oms-offset")):
        assert str(stored.get(member)) == str(answer.headers.get(header))
    assert stored["applied"] == answer.headers["x-oms-applied"]
    assert (await talk.take()).headers["x-oms-h-messageid"] == stored["messageId"]


async def test_a_producer_may_have_its_own_id(talk: Conversation) -> None:
    """
    > `PUT` with the messageId as the last part of the path is for producers with ids of their own.
    """
    answer = await send(talk, b"mine", "order%2F7%20b")
    assert answer.status_code == 200, answer.text
    assert answer.json()["messageId"] == "order/7 b"
    taken = await talk.take()
    assert (taken.headers["x-oms-h-messageid"], taken.body) == ("order/7 b", b"mine")
    refused(await send(talk, b"whose?", "a", id="b"), 400, "header-repeated")


async def test_fields_are_query_parameters_or_headers(talk: Conversation) -> None:
    """
    > Each field may be a query parameter with a short name or its header; both with different values are a
    > 400, and so is an unknown parameter.
    """
    headers = {"x-oms-h-correlationid": "c", "x-oms-h-messagekey": "k", "x-oms-p-region": "eu"}
    answer = await send(talk, b"x", headers=headers, key="k", id="7", transaction="t", born="12", host="h")
    assert answer.status_code == 200, answer.text
    taken = await talk.take()
    expected = {"messagekey": "k", "messageid": "7", "transactionid": "t", "correlationid": "c", "bornhost": "h"}
    assert {name: taken.headers[f"x-oms-h-{name}"] for name in expected} == expected
    assert (taken.headers["x-oms-h-borntimestamp"], taken.headers["x-oms-p-region"]) == ("12", "eu")
    await talk.ack(taken.receipt)
    assert "messageKey" in refused(await send(talk, b"x", headers=headers, key="other"), 400, "header-repeated")
    assert "`key`" in refused(await send(talk, b"x", kye="k"), 400, "header-invalid")
    await talk.nothing()


async def test_durations_have_a_unit(talk: Conversation) -> None:
    """
    > `delay` and `expire` are durations with a unit: `500ms`, `5s`, `2m`, `1h`, `7d`.
    """
    for expire in ("3600s", "60m", "1h"):
        answer = await send(talk, expire.encode(), expire=expire, delay="1ms", born="1")
        assert answer.status_code == 200, answer.text
    for expire in ("3600000", "1 h", "1.5h", "-1h", "0s"):
        refused(await send(talk, b"never", expire=expire), 400, "header-invalid")
    await talk.nothing()
    assert (await send(talk, b"lasts", expire="1h")).status_code == 200
    taken = await talk.take()
    lifetime = int(taken.headers["x-oms-h-expiretime"]) - int(taken.headers["x-oms-h-borntimestamp"])
    assert (taken.body, lifetime) == (b"lasts", 3_600_000)


@pytest.mark.wire
async def test_a_page_of_another_origin_cannot_produce_by_url(talk: Conversation) -> None:
    """
    > A web page of another origin cannot produce there, though it needs no `x-oms-` header.
    """
    pages = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    )
    for page in pages:
        form = {**page, "content-type": "text/plain"}
        refused(await send(talk, b"forged", headers=form), 403, "forbidden")
        refused(await send(talk, b"forged", "id", headers=form), 403, "forbidden")
    await talk.nothing()
