"""Pulling: waiting, repeating, acknowledging on the way."""

import asyncio
import time

import pytest

from .conversation import PATIENCE, Conversation, Target, refused
from .frames import Frames


async def test_a_pull_finds_nothing(talk: Conversation) -> None:
    """
    > `204` when there is none.

    > `x-oms-waitmills` (long poll, default 0, capped at 55 s).
    """
    answer = await talk.get()
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["x-oms-version"].startswith("1.")
    assert "content-length" not in answer.headers


async def test_a_waiting_pull_is_woken_by_a_message(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (long poll, default 0, capped at 55 s).
    """
    waiting = asyncio.create_task(talk.take())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await talk.produce(b"news")
    assert (await waiting).body == b"news"


@pytest.mark.wire
async def test_a_waiting_pull_waits_for_waitmills(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (long poll, default 0, capped at 55 s).
    """
    await talk.nothing(wait=0)
    begun = time.monotonic()
    await talk.nothing(wait=400)
    assert time.monotonic() - begun >= 0.395


@pytest.mark.wire
async def test_a_longer_wait_than_the_cap_is_accepted(bridge: Target, talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (long poll, default 0, capped at 55 s).
    """
    assert bridge.limit("waitMills") == 55_000
    waiting = asyncio.create_task(talk.take(waitmills=2**63 - 1))
    await asyncio.sleep(0.1)
    await talk.produce(b"news")
    assert (await waiting).body == b"news"


@pytest.mark.wire
async def test_many_pulls_wait_at_the_same_time(bridge: Target, talk: Conversation) -> None:
    """
    > A waiting pull costs no thread.
    """
    names = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "waitmills": "20000"}
    pairs = [(f"x-oms-{name}".encode(), value.encode()) for name, value in names.items()]

    def wait_for_all() -> list[bytes]:
        with Frames(bridge.url) as frames:
            streams = [frames.request("GET", "/v1/messages", pairs, b"") for _ in range(100)]
            time.sleep(0.2)
            for number in range(100):
                head = [(b"x-oms-version", b"1.0.0"), (b"x-oms-h-destination", talk.destination.encode())]
                assert frames.ask("POST", "/v1/messages", head, b"%d" % number).status == 200
            return [frames.answer(stream).body for stream in streams]

    assert set(await asyncio.to_thread(wait_for_all)) == {b"%d" % number for number in range(100)}


async def test_a_repeated_pull_returns_the_same_message(talk: Conversation) -> None:
    """
    > `x-oms-requestid` (a repeated pull with the same id returns the same message while its lease lives, so a
    > lost response loses nothing).
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey=body.decode())
    first = await talk.take(requestid="r-1")
    again = await talk.take(requestid="r-1")
    assert (again.body, again.count, again.receipt) == (first.body, 1, first.receipt)
    other = await talk.take(requestid="r-2")
    assert {first.body, other.body} == {b"1", b"2"}
    await talk.ack(first.receipt)
    await talk.ack(other.receipt)
    await talk.nothing()


@pytest.mark.wire
async def test_a_request_id_is_free_again_once_its_message_is_settled(talk: Conversation) -> None:
    """
    > `x-oms-requestid` (a repeated pull with the same id returns the same message while its lease lives, so a
    > lost response loses nothing).
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey="one lane")
    taken = [await talk.take(requestid="r")]
    await talk.ack(taken[0].receipt)
    taken.append(await talk.take(requestid="r"))
    assert [t.body for t in taken] == [b"1", b"2"]


@pytest.mark.wire
async def test_a_request_id_belongs_to_its_group(talk: Conversation) -> None:
    """
    > `x-oms-requestid` (a repeated pull with the same id returns the same message while its lease lives, so a
    > lost response loses nothing).
    """
    await talk.produce(b"1")
    first = await talk.take(requestid="r")
    other = await talk.take(requestid="r", consumerid="another")
    assert first.receipt != other.receipt


async def test_the_previous_message_is_acknowledged_on_the_way(talk: Conversation) -> None:
    """
    > `x-oms-receipt` (acknowledge the previous message in the same round trip),
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey="one lane")
    first = await talk.take(leasemills=2_000)
    second = await talk.take(receipt=first.receipt)
    assert second.body == b"2"
    await talk.nothing(wait=0, receipt=second.receipt)
    refused(await talk.settle("nack", first.receipt), 410, "lease-ended")
    await talk.nothing(wait=2_100)


async def test_a_receipt_that_cannot_be_acknowledged_delivers_nothing(talk: Conversation) -> None:
    """
    > `x-oms-receipt` (acknowledge the previous message in the same round trip),
    """
    for body in (b"1", b"2"):
        await talk.produce(body)
    first = await talk.take()
    await talk.nack(first.receipt)
    refused(await talk.get(receipt=first.receipt, waitmills=PATIENCE), 410, "lease-ended")
    assert {(t.body, t.count) for t in await talk.take_all(2)} == {
        (body, 2 if body == first.body else 1) for body in (b"1", b"2")
    }
