"""Priority among what is ready."""

import pytest

from .conversation import Conversation, Target, fetched


@pytest.fixture(autouse=True)
def _prioritised(bridge: Target) -> None:
    bridge.need("priority")


async def test_among_ready_messages_the_higher_priority_goes_first(talk: Conversation) -> None:
    """
    > - **Priority**: among messages ready for delivery the higher goes first.

    > Best effort, as the specification says: within the look-ahead window always,
    """
    await talk.join()
    for priority in (3, 9, 1, 7, 10, 2):
        await talk.produce(b"%d" % priority, priority=priority)
    await fetched()
    assert [int(t.body) for t in await talk.take_all(6)] == [10, 9, 7, 3, 2, 1]


async def test_messages_of_equal_priority_come_as_they_were_stored(talk: Conversation) -> None:
    """
    > - **Priority**: among messages ready for delivery the higher goes first.
    """
    await talk.join()
    for number in range(4):
        await talk.produce(b"%d" % number, messagekey="one lane", priority=8)
    await fetched()
    assert [t.body for t in await talk.take_all(4)] == [b"0", b"1", b"2", b"3"]


async def test_a_message_without_priority_counts_as_five(talk: Conversation) -> None:
    """
    > | priority | Integer 1..10, default 5; outside the range it is ignored (= 5), as the specification says |
    > client | ignored |
    """
    await talk.join()
    await talk.produce(b"four", priority=4)
    await talk.produce(b"none")
    await talk.produce(b"six", priority=6)
    await fetched()
    assert [t.body for t in await talk.take_all(3)] == [b"six", b"none", b"four"]


async def test_a_priority_outside_the_range_is_ignored_and_that_is_said(talk: Conversation) -> None:
    """
    > | priority | Integer 1..10, default 5; outside the range it is ignored (= 5), as the specification says |
    > client | ignored |
    """
    await talk.join()
    await talk.produce(b"four", priority=4)
    for outside in (0, 11, 2**31 - 1):
        answer = await talk.produce(b"outside", priority=outside)
        assert "priority=ignored" in answer.headers["x-oms-applied"], outside
    await talk.produce(b"six", priority=6)
    await fetched()
    taken = await talk.take_all(5)
    assert [t.body for t in taken] == [b"six", b"outside", b"outside", b"outside", b"four"]
    assert {t.headers.get("x-oms-h-priority", "5") for t in taken[1:4]} == {"5"}


async def test_a_nacked_message_competes_with_its_priority_again(talk: Conversation) -> None:
    """
    > - **Priority**: among messages ready for delivery the higher goes first.
    """
    await talk.join()
    await talk.produce(b"high", priority=9)
    await talk.produce(b"low", priority=2)
    await fetched()
    await talk.nack((await talk.take()).receipt)
    assert [t.body for t in await talk.take_all(2)] == [b"high", b"low"]


async def test_the_partitions_compete_by_priority_for_one_pull(bridge: Target, talk: Conversation) -> None:
    """
    > A pull serves whatever partition has something ready;

    > the heads of all partitions a bridge holds compete by priority.
    """
    bridge.need("messageKey")
    await talk.join()
    for priority in range(1, 11):
        await talk.produce(b"%d" % priority, messagekey=f"key {priority}", priority=priority)
    await fetched()
    assert [int(t.body) for t in await talk.take_all(10)] == list(range(10, 0, -1))
