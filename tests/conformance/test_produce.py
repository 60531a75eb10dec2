"""The replies to a produce."""

from typing import Any

import pytest

from .conversation import Conversation, Target, now, refused

pytestmark = pytest.mark.slow_on_brokers

CARRIED: dict[str, Any] = {
    "messagekey": "k",
    "priority": "7",
    "correlationid": "c",
    "traceid": "t",
    "transactionid": "x",
    "partition": "0",
    "durability": "1",
    "qos": "0",
    "delaytime": "1",
}
SPECIFIED = {
    "messagekey": "messageKey",
    "correlationid": "correlationId",
    "traceid": "traceId",
    "transactionid": "transactionId",
    "delaytime": "delayTime",
    "expiretime": "expireTime",
}


async def test_the_reply_says_where_the_message_is(talk: Conversation) -> None:
    """
    > One message: headers + body. `200` means stored as its durability asks.

    > The reply carries `x-oms-version`, `x-oms-h-messageid`, `-storetimestamp`, `-storehost`, `-partition`
    > where there is one, `x-oms-offset` (the backend's own position)
    """
    before = now()
    answer = await talk.produce(b"here")
    assert answer.headers["x-oms-version"].startswith("1.")
    assert before - 1 <= int(answer.headers["x-oms-h-storetimestamp"]) <= now()
    assert answer.headers["x-oms-h-storehost"]
    assert answer.content == b""
    for name in ("x-oms-h-partition", "x-oms-offset"):
        assert answer.headers.get(name, "0").isdigit()
    taken = await talk.take()
    for name in ("x-oms-h-messageid", "x-oms-h-storetimestamp", "x-oms-h-storehost"):
        assert taken.headers[name] == answer.headers[name]


async def test_offsets_of_a_partition_grow(talk: Conversation) -> None:
    """
    > The reply carries `x-oms-version`, `x-oms-h-messageid`, `-storetimestamp`, `-storehost`, `-partition`
    > where there is one, `x-oms-offset` (the backend's own position)
    """
    answers = [await talk.produce(messagekey="one lane") for _ in range(4)]
    if "x-oms-offset" not in answers[0].headers:
        pytest.skip("the backend reports no offset")
    offsets = [int(answer.headers["x-oms-offset"]) for answer in answers]
    assert offsets == sorted(set(offsets))


async def test_every_optional_field_is_accounted_for(bridge: Target, talk: Conversation) -> None:
    """
    > and `x-oms-applied`, for example `delayTime=emulated,priority=native,partition=ignored`: how each
    > optional field that the request carried was honoured.

    > and what neither can do is said (`x-oms-applied`, `/v1/capabilities`), never silently dropped.
    """
    answer = await talk.produce(**CARRIED, expiretime=now() + 60_000)
    applied = dict(pair.split("=") for pair in answer.headers["x-oms-applied"].split(","))
    declared = bridge.capabilities["fields"]
    assert set(applied) == {SPECIFIED.get(name, name) for name in (*CARRIED, "expiretime")}
    for name, how in applied.items():
        assert how == ("ignored" if declared[name] == "unsupported" else declared[name])


@pytest.mark.wire
async def test_a_message_without_wishes_has_nothing_to_account_for(talk: Conversation) -> None:
    """
    > and `x-oms-applied`, for example `delayTime=emulated,priority=native,partition=ignored`: how each
    > optional field that the request carried was honoured.
    """
    assert "x-oms-applied" not in (await talk.produce()).headers


async def test_a_field_that_cannot_be_honoured_can_be_insisted_on(bridge: Target, talk: Conversation) -> None:
    """
    > `x-oms-require: delayTime,priority` turns a field that cannot be honoured into a 422, nothing stored.
    """
    for name, how in bridge.capabilities["fields"].items():
        answer = await talk.post(name.encode(), [("x-oms-require", name)])
        if how == "unsupported":
            assert name in refused(answer, 422, "field-unsupported")
        else:
            assert answer.status_code == 200
    honoured = [n for n, how in bridge.capabilities["fields"].items() if how != "unsupported"]
    assert {t.body.decode() for t in await talk.take_all(len(honoured))} == set(honoured)
    await talk.nothing()


@pytest.mark.wire
async def test_a_value_that_is_ignored_cannot_be_insisted_on(
    bridge: Target, talk: Conversation, subtests: pytest.Subtests
) -> None:
    """
    > `x-oms-require: delayTime,priority` turns a field that cannot be honoured into a 422, nothing stored.
    """
    bridge.need("priority", "qos")
    fields: dict[str, Any]
    for require, fields in (("priority", {"priority": 11}), ("priority, qos", {"qos": 2})):
        with subtests.test(require):
            refused(await talk.post(b"", [("x-oms-require", require)], **fields), 422, "field-unsupported")
    await talk.nothing()


@pytest.mark.wire
async def test_insisting_on_an_unknown_field_is_refused(talk: Conversation) -> None:
    """
    > `x-oms-require: delayTime,priority` turns a field that cannot be honoured into a 422, nothing stored.
    """
    assert "colour" in refused(await talk.post(pairs=[("x-oms-require", "colour")]), 400, "header-invalid")
    await talk.nothing()


async def test_capabilities_name_every_field(bridge: Target) -> None:
    """
    > - `GET /v1/capabilities`: per backend and destination, each field: native, emulated or unsupported.

    > and what neither can do is said (`x-oms-applied`, `/v1/capabilities`), never silently dropped.
    """
    fields = bridge.capabilities["fields"]
    assert {SPECIFIED.get(name, name) for name in (*CARRIED, "expiretime", "compression")} == set(fields)
    assert set(fields.values()) <= {"native", "emulated", "unsupported"}
