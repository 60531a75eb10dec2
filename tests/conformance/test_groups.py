"""Groups: who sees what."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from .conversation import Conversation, Target, connection

if TYPE_CHECKING:
    from tests.launch import Bridge


async def test_a_group_sees_every_message_once(talk: Conversation) -> None:
    """
    > Every group sees every message of a destination once, plus redeliveries.
    """
    bodies = {b"%d" % number for number in range(20)}
    for body in bodies:
        await talk.produce(body)
    assert {taken.body for taken in await talk.take_all(20)} == bodies
    await talk.nothing()


async def test_a_group_is_a_destination_and_a_consumer_id(talk: Conversation) -> None:
    """
    > - **Group**: (destination, consumerId).
    """
    other = f"{talk.destination}-other"
    await talk.produce(b"here")
    await talk.produce(b"there", destination=other)
    assert (await talk.take()).body == b"here"
    assert (await talk.take(source=other)).body == b"there"
    await talk.nothing()
    await talk.nothing(source=other)


async def test_one_consumer_id_on_many_destinations_misses_nothing_in_a_first_pull(talk: Conversation) -> None:
    """
    > - **Group**: (destination, consumerId).

    > A new group starts at the oldest message still kept
    """
    sources = [f"{talk.destination}-{number}" for number in range(5)]
    for source in sources:
        await talk.produce(source.encode(), destination=source)
    for source in sources:
        assert (await talk.take(source=source, waitmills=0)).body == source.encode()


async def test_two_groups_see_the_same_messages_independently(talk: Conversation) -> None:
    """
    > Every group sees every message of a destination once, plus redeliveries.
    """
    for body in (b"one", b"two", b"three"):
        await talk.produce(body)
    first = await talk.take_all(3, consumerid="first")
    second = await talk.take_all(3, consumerid="second")
    assert {t.body for t in first} == {t.body for t in second} == {b"one", b"two", b"three"}
    assert {t.count for t in second} == {1}


async def test_a_new_group_starts_at_the_oldest_message(bridge: Target, talk: Conversation) -> None:
    """
    > A new group starts at the oldest message still kept
    """
    if not bridge.capabilities["lateGroups"]:
        pytest.skip("the bridge declares that late groups miss what came before them")
    for number in range(5):
        await talk.produce(b"%d" % number, messagekey="one lane")
    await talk.take_all(5, consumerid="early")
    late = await talk.take_all(5, consumerid="late")
    assert [taken.body for taken in late] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_new_group_may_start_at_the_latest_message(launch: Callable[..., "Bridge"]) -> None:
    """
    > (configurable: `earliest` | `latest`).
    """
    bridge = launch(OMS_DELIVERY__NEW_GROUP="latest")
    async with connection(bridge.url) as http:
        talk = Conversation(http)
        await talk.produce(b"before it came")
        await talk.nothing()
        await talk.produce(b"after it came")
        assert (await talk.take()).body == b"after it came"
        await talk.nothing()


async def test_consumers_of_one_group_share_its_messages(talk: Conversation) -> None:
    """
    > Consumers of one group share its messages.
    """
    for number in range(12):
        await talk.produce(b"%d" % number)
    async with talk.beside() as second, talk.beside() as third:
        shares = await asyncio.gather(*(consumer.take_all(4) for consumer in (talk, second, third)))
    seen = [taken.body for share in shares for taken in share]
    assert sorted(seen, key=int) == [b"%d" % number for number in range(12)]


async def test_every_one_of_many_waiting_consumers_gets_a_message_of_its_own(talk: Conversation) -> None:
    """
    > Consumers of one group share its messages.
    """
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(talk.beside()) for _ in range(8)]
        waiting = [asyncio.create_task(consumer.take()) for consumer in consumers]
        await asyncio.sleep(0.1)
        for number in range(8):
            await talk.produce(b"%d" % number)
        assert len({taken.body for taken in await asyncio.gather(*waiting)}) == 8
