"""Order per key."""

import asyncio

import pytest

from .conversation import Conversation, Target, fetched, now

KEY = "customer 7"


@pytest.fixture(autouse=True)
def _keyed(bridge: Target) -> None:
    bridge.need("messageKey")


async def test_messages_of_a_key_come_in_the_order_they_were_stored(talk: Conversation) -> None:
    """
    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while others
    > are in flight,
    """
    for number in range(10):
        await talk.produce(b"%d" % number, messagekey=KEY)
        await talk.produce(b"of another", messagekey=f"other {number}")
    taken = [t.body for t in await talk.take_all(20)]
    assert [body for body in taken if body != b"of another"] == [b"%d" % number for number in range(10)]


async def test_the_next_of_a_key_waits_while_others_are_in_flight(talk: Conversation) -> None:
    """
    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while others
    > are in flight,
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey=KEY)
    await talk.produce(b"free")
    first = {(await talk.take()).body: None for _ in range(2)}
    assert set(first) == {b"1", b"free"}
    await talk.nothing()


async def test_the_next_of_a_key_comes_once_the_one_before_is_settled(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey=KEY)
    first = await talk.take()
    await talk.nothing()
    await talk.ack(first.receipt)
    assert (await talk.take()).body == b"2"


async def test_order_holds_after_a_nack(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    for body in (b"1", b"2", b"3"):
        await talk.produce(body, messagekey=KEY)
    await talk.nack((await talk.take()).receipt)
    assert [(t.body, t.count) for t in await talk.take_all(3)] == [(b"1", 2), (b"2", 1), (b"3", 1)]


async def test_a_key_waits_out_the_delay_of_its_nacked_message(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey=KEY)
    await talk.nack((await talk.take()).receipt, delaymills=1_500)
    await talk.nothing(wait=200)
    assert [t.body for t in await talk.take_all(2)] == [b"1", b"2"]


async def test_order_holds_after_the_end_of_a_lease(talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    for body in (b"1", b"2"):
        await talk.produce(body, messagekey=KEY)
    assert (await talk.take(leasemills=200)).body == b"1"
    assert [(t.body, t.count) for t in await talk.take_all(2)] == [(b"1", 2), (b"2", 1)]


async def test_a_key_goes_on_when_its_first_message_expires(bridge: Target, talk: Conversation) -> None:
    """
    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    bridge.need("expireTime")
    await talk.produce(b"short-lived", messagekey=KEY, expiretime=now() + 300)
    await talk.produce(b"2", messagekey=KEY)
    await asyncio.sleep(0.4)
    assert (await talk.take()).body == b"2"


async def test_key_order_beats_priority(bridge: Target, talk: Conversation) -> None:
    """
    > Key order beats priority.
    """
    bridge.need("priority")
    await talk.join()
    await talk.produce(b"1", messagekey=KEY, priority=1)
    await talk.produce(b"2", messagekey=KEY, priority=10)
    await talk.produce(b"free", messagekey="another", priority=5)
    await fetched()
    assert [t.body for t in await talk.take_all(3)] == [b"free", b"1", b"2"]
