"""Retries of a produce: a message that its client names is stored once."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

from .conversation import Conversation, refused
from .streaming import pushing

KEY = "idempotency-key"


async def test_a_named_message_is_stored_once(talk: Conversation) -> None:
    """
    > A message with a messageId, or a request with `idempotency-key`, is stored once: a retry within `dedup.window`
    > gets the first reply with `x-oms-duplicate: true`.
    """
    for pairs, fields in (([], {"messageid": uuid4()}), ([(KEY, f'"{uuid4()}"')], {}), ([(KEY, "a")], {})):
        first, second = [await talk.produce(b"order", pairs, **fields) for _ in range(2)]
        assert "x-oms-duplicate" not in first.headers
        assert second.headers["x-oms-duplicate"] == "true"
        for name in ("messageid", "storetimestamp", "storehost", "partition"):
            assert second.headers.get(f"x-oms-h-{name}") == first.headers.get(f"x-oms-h-{name}")
        assert second.headers.get("x-oms-offset") == first.headers.get("x-oms-offset")
        taken = await talk.take()
        assert taken.headers["x-oms-h-messageid"] == first.headers["x-oms-h-messageid"]
        await talk.ack(taken.receipt)
        await talk.nothing()


async def test_another_body_under_the_same_name_is_refused(talk: Conversation) -> None:
    """
    > Another body under the same name is a 422.
    """
    await talk.produce(b"order", messageid="m")
    refused(await talk.post(b"another", messageid="m"), 422, "idempotency-mismatch")
    await talk.produce(b"order", [(KEY, "k")])
    refused(await talk.post(b"another", [(KEY, "k")]), 422, "idempotency-mismatch")
    for wrong in ('""', "x" * 256):
        refused(await talk.post(b"order", [(KEY, wrong)]), 400, "header-invalid")
    assert len(await talk.take_all(2)) == 2
    await talk.nothing()


async def test_copies_at_once_are_stored_once(talk: Conversation) -> None:
    """
    > A retry of a message that is still being stored waits for it.
    """
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(talk.beside()) for _ in range(5)]
        answers = await asyncio.gather(*(other.produce(b"order", messageid="m") for other in others))
    assert sum("x-oms-duplicate" not in answer.headers for answer in answers) == 1
    assert len({answer.headers["x-oms-h-storetimestamp"] for answer in answers}) == 1
    await talk.ack((await talk.take()).receipt)
    await talk.nothing()


async def test_the_messages_of_a_batch_have_names(talk: Conversation) -> None:
    """
    > In a batch, the key and the place name each message without a messageId.
    """
    header = {"destination": talk.destination}
    batch = [{"header": header | {"messageId": "m"}, "data": ""}, {"header": header, "data": ""}, {"header": header}]
    headers = {"x-oms-version": "1.0.0", KEY: "b"}
    first, second = [(await talk.http.post("/v1/messages", json=batch, headers=headers)).json() for _ in range(2)]
    assert ["duplicate" in result for result in first] == [False] * 3
    assert second == [result | {"duplicate": True} for result in first]
    assert len({result["messageId"] for result in first}) == 3
    assert len(await talk.take_all(3)) == 3
    await talk.nothing()


async def test_what_was_refused_is_not_remembered(talk: Conversation) -> None:
    """
    > What was refused is not remembered: a retry is stored.
    """
    refused(await talk.post(b"order", messageid="m", partition=10**6), 400, "partition-unknown")
    answer = await talk.produce(b"order", messageid="m")
    assert "x-oms-duplicate" not in answer.headers
    async with pushing(talk) as push:
        assert (await push.take()).body == b"order"
