"""Transactions: prepared messages, and the two ways in which they end."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

import httpx
import pytest

from .conversation import PATIENCE, Conversation, Pairs, Target, refused

pytestmark = pytest.mark.needs("transactions")

PREPARE: Pairs = (("x-oms-transaction", "prepare"),)
COMMIT: Pairs = (("x-oms-transaction", "commit"),)


@pytest.fixture
def name(bridge: Target) -> str:
    """Return the id of a transaction that no other test uses."""
    if bridge.capabilities["transactions"] == "unsupported":
        pytest.skip("the bridge has no transactions")
    return f"tx {uuid4().hex}"


async def end(talk: Conversation, name: str, how: str) -> httpx.Response:
    path = f"/v1/transactions/{name.replace(' ', '%20')}/{how}"
    return await talk.http.post(path, headers={"x-oms-version": "1.0.0"})


async def ended(talk: Conversation, name: str, how: str, state: str) -> None:
    answer = await end(talk, name, how)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["state"], found["messages"], found["bytes"], "check" in found) == (state, 0, 0, False)


async def test_prepared_messages_become_visible_together(talk: Conversation, name: str) -> None:
    """
    > `x-oms-transaction: prepare` stores a message, and no consumer gets it before the commit.

    > `POST /v1/transactions/{transactionId}/commit` makes the messages of a transaction visible, in the order in which
    > they were prepared, in all their destinations.
    """
    async with talk.beside() as other:
        other.destination += "-2"
        for talking in (talk, other):
            await talking.join()
        for number in range(4):
            for talking in (talk, other):
                answer = await talking.produce(b"%d" % number, PREPARE, transactionid=name, messagekey="k")
                assert answer.headers["x-oms-h-transactionid"] == name
                assert "x-oms-h-storetimestamp" not in answer.headers
                assert "transactionId=" in answer.headers["x-oms-applied"]
        for talking in (talk, other):
            await talking.nothing()
        await ended(talk, name, "commit", "committed")
        for talking in (talk, other):
            taken = await talking.take_all(4)
            assert [each.body for each in taken] == [b"0", b"1", b"2", b"3"]
            assert {each.headers["x-oms-h-transactionid"] for each in taken} == {name}
            await talking.nothing()


async def test_a_message_commits_its_transaction(talk: Conversation, name: str) -> None:
    """
    > `x-oms-transaction: commit` on a message commits its transaction with it.
    """
    await talk.produce(b"first", PREPARE, transactionid=name, messagekey="k")
    answer = await talk.produce(b"last", COMMIT, transactionid=name, messagekey="k")
    assert int(answer.headers["x-oms-h-storetimestamp"]) > 0
    assert [each.body for each in await talk.take_all(2)] == [b"first", b"last"]


async def test_a_rollback_drops_everything(talk: Conversation, name: str) -> None:
    """
    > `POST /v1/transactions/{transactionId}/rollback` drops them.
    """
    await talk.join()
    for number in range(3):
        await talk.produce(b"%d" % number, PREPARE, transactionid=name)
    await ended(talk, name, "rollback", "rolled-back")
    await talk.nothing()


async def test_an_end_is_final(talk: Conversation, name: str) -> None:
    """
    > Commit and rollback are final and may be repeated; the other end is then a 409 with the state.
    """
    for how, other, state in (("commit", "rollback", "committed"), ("rollback", "commit", "rolled-back")):
        own = f"{name} {how}"
        await talk.produce(b"x", PREPARE, transactionid=own)
        for _ in range(2):
            await ended(talk, own, how, state)
        for answer in (await end(talk, own, other), await talk.post(b"x", PREPARE, transactionid=own)):
            refused(answer, 409, "transaction-ended")
            assert answer.json()["state"] == state
    refused(await end(talk, f"{name} never", "commit"), 404, "transaction-unknown")
    assert len(await talk.take_all(1)) == 1
    await talk.nothing()


async def test_one_of_two_ends_wins(talk: Conversation, name: str) -> None:
    """
    > Of a commit and a rollback at the same time one wins.
    """
    names = [f"{name} {number}" for number in range(10)]
    for each in names:
        await talk.produce(each.encode(), PREPARE, transactionid=each)
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(talk.beside()) for _ in range(2)]
        answers = await asyncio.gather(
            *(
                end(other, each, how)
                for each in names
                for other, how in zip(others, ("commit", "rollback"), strict=True)
            )
        )
    won = []
    for each, committed, dropped in zip(names, answers[::2], answers[1::2], strict=True):
        assert sorted([committed.status_code, dropped.status_code]) == [200, 409]
        assert committed.json()["state"] == dropped.json()["state"], "both tell the same story"
        won += [each.encode()] if committed.status_code == httpx.codes.OK else []
    assert sorted(each.body for each in await talk.take_all(len(won))) == sorted(won)
    await talk.nothing()


async def test_the_timeout_rolls_back(talk: Conversation, name: str) -> None:
    """
    > A transaction that is open for longer than `x-oms-transaction-timeout` is rolled back.
    """
    await talk.produce(b"x", (*PREPARE, ("x-oms-transaction-timeout", "1")), transactionid=name)
    path = f"/v1/transactions/{name.replace(' ', '%20')}"
    async with asyncio.timeout(PATIENCE / 1000):
        while (await talk.http.get(path, headers={"x-oms-version": "1.0.0"})).json()["state"] == "open":  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    refused(await end(talk, name, "commit"), 409, "transaction-ended")
    await talk.nothing()


async def test_a_retry_prepares_nothing_twice(talk: Conversation, name: str) -> None:
    """
    > A message with a messageId that was prepared in the transaction before is not prepared again.
    """
    first, second = [await talk.produce(b"x", PREPARE, transactionid=name, messageid="m") for _ in range(2)]
    assert ("x-oms-duplicate" in first.headers, second.headers["x-oms-duplicate"]) == (False, "true")
    refused(await talk.post(b"y", PREPARE, transactionid=name, messageid="m"), 422, "idempotency-mismatch")
    await ended(talk, name, "commit", "committed")
    assert len(await talk.take_all(1)) == 1
    await talk.nothing()
