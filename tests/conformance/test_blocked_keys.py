"""A key that cannot go on blocks only itself, however many of its messages are stored."""

import asyncio
import base64
from collections.abc import Iterable

import pytest

from .conversation import Conversation, Target

KEY = "blocked"
MANY = 1_300
"""More than the bridge fetches ahead."""
DAY = 86_400_000
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _keyed(bridge: Target, request: pytest.FixtureRequest) -> None:
    bridge.need("messageKey")
    if "rabbitmq" in request.node.name:
        pytest.skip("RabbitMQ does not fetch messages again yet (decision 0090)")


async def produce_many(talk: Conversation, messages: Iterable[tuple[str | None, bytes]]) -> None:
    """Store messages, each with its key, in their order."""
    batch = [
        {
            "header": {"destination": talk.destination},
            "extensionHeader": {} if key is None else {"messageKey": key},
            "data": base64.b64encode(body).decode("ascii"),
        }
        for key, body in messages
    ]
    headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
    size = max(1, min(500, (2 << 20) // max(len(str(each["data"])) for each in batch)))
    for first in range(0, len(batch), size):
        answer = await talk.http.post("/v1/messages", headers=headers, json=batch[first : first + size])
        assert answer.status_code == 200, answer.text


def numbered(key: str | None, count: int, padding: bytes = b"") -> list[tuple[str | None, bytes]]:
    return [(key, b"%d %b" % (number, padding)) for number in range(count)]


def others(count: int = 40) -> list[tuple[str | None, bytes]]:
    """Messages of many keys, so that every partition has some."""
    return [(f"free {number}", b"free %d" % number) for number in range(count)]


async def take_others(talk: Conversation) -> None:
    taken = await talk.take_all(len(others()))
    assert sorted(each.body for each in taken) == sorted(body for _, body in others())


async def test_a_nacked_message_holds_up_only_its_key(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    await produce_many(talk, numbered(KEY, MANY))
    await talk.nack((await talk.take()).receipt, delaymills=DAY)
    await produce_many(talk, others())
    await take_others(talk)


@pytest.mark.extended
async def test_the_messages_behind_a_lease_come_in_order_once_it_ends(talk: Conversation) -> None:
    """
    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while others
    > are in flight,
    """
    await produce_many(talk, numbered(KEY, MANY))
    first = await talk.take(leasemills=900_000)
    await produce_many(talk, others())
    await take_others(talk)
    await produce_many(talk, [(KEY, b"the last")])
    await talk.ack(first.receipt)
    taken = await talk.take_all(MANY)
    assert [each.body for each in taken] == [*(body for _, body in numbered(KEY, MANY)[1:]), b"the last"]
    assert {each.count for each in taken} == {1}
    await talk.nothing()


@pytest.mark.extended
async def test_large_messages_behind_a_lease_do_not_hold_up_others(talk: Conversation) -> None:
    """
    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while others
    > are in flight,
    """
    large = numbered(KEY, 90, bytes(1_000_000))
    await produce_many(talk, large)
    first = await talk.take(leasemills=900_000)
    await produce_many(talk, others())
    await take_others(talk)
    await talk.ack(first.receipt)
    taken = await talk.take_all(len(large) - 1)
    assert [each.body for each in taken] == [body for _, body in large[1:]]
    await talk.nothing()


@pytest.mark.extended
async def test_many_keys_with_a_few_messages_each(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    keys = [f"blocked {number}" for number in range(MANY // 2)]
    await produce_many(talk, [(key, b"%d" % number) for key in keys for number in range(3)])
    ends = asyncio.get_running_loop().time() + 40
    for _ in keys:
        taken = await talk.take()
        assert (taken.body, taken.count) == (b"0", 1)
        left = ends - asyncio.get_running_loop().time()
        await talk.nack(taken.receipt, delaymills=max(int(left * 1000), 1000))
    await produce_many(talk, others())
    await take_others(talk)
    seen = dict.fromkeys(keys, 0)
    async with asyncio.timeout(300):
        for _ in range(3 * len(keys)):
            taken = await talk.take(waitmills=50_000)
            key = taken.headers["x-oms-h-messagekey"]
            assert taken.body == b"%d" % seen[key]
            seen[key] += 1
            await talk.ack(taken.receipt)
    await talk.nothing()


@pytest.mark.extended
async def test_messages_without_a_key_that_wait_after_a_nack(talk: Conversation) -> None:
    """
    > nack, the lease's end,
    """
    await produce_many(talk, numbered(None, MANY))
    for _ in range(MANY):
        await talk.nack((await talk.take()).receipt, delaymills=DAY)
    await produce_many(talk, others())
    await take_others(talk)
