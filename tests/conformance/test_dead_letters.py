"""Messages that were delivered too often."""

import pytest

from .conversation import Conversation, Taken, Target

MOST = 20
"""Deliveries that a test goes through; a bridge that allows more is not tested."""


@pytest.fixture
def most(bridge: Target) -> int:
    """Return how often the bridge delivers a message before it gives up."""
    deliveries = bridge.limit("maxDeliveries")
    if deliveries > MOST:
        pytest.skip(f"the bridge delivers {deliveries} times before it gives up")
    return deliveries


async def _refuse(talk: Conversation, times: int) -> Taken:
    for _ in range(times):
        taken = await talk.take()
        await talk.nack(taken.receipt)
    return taken


async def test_a_message_delivered_too_often_becomes_a_dead_letter(talk: Conversation, most: int) -> None:
    """
    > - **Dead letter**: after `max_deliveries`, with the reason;

    > After `max_deliveries` (default 16) a message goes to the dead-letter destination `<destination>.dlq` with
    > properties for the reason, the source and the count;
    """
    await talk.produce(b"poison \x00\xff", [("x-oms-p-kind", "order"), ("content-type", "text/x-poison")])
    last = await _refuse(talk, most)
    assert last.count == most
    letter = await talk.take(source=f"{talk.destination}.dlq", consumerid="undertaker")
    assert letter.body == b"poison \x00\xff"
    assert letter.count == 1
    said = {name: letter.headers[f"x-oms-p-oms-dead-letter-{name}"] for name in ("reason", "source", "group", "count")}
    assert said == {
        "reason": "max-deliveries",
        "source": talk.destination,
        "group": talk.group,
        "count": str(most),
    }
    kept = ("x-oms-h-messageid", "x-oms-h-borntimestamp", "x-oms-h-bornhost", "x-oms-p-kind", "content-type")
    assert [letter.headers[name] for name in kept] == [last.headers[name] for name in kept]
    await talk.nothing()


async def test_a_message_is_not_dead_before_its_last_delivery(talk: Conversation, most: int) -> None:
    """
    > - **Dead letter**: after `max_deliveries`, with the reason;
    """
    await talk.produce(b"saved")
    await _refuse(talk, most - 1)
    await talk.ack((await talk.take()).receipt)
    await talk.nothing()
    await talk.nothing(source=f"{talk.destination}.dlq", consumerid="undertaker")


async def test_a_dead_letter_lets_the_next_of_its_key_go_on(bridge: Target, talk: Conversation, most: int) -> None:
    """
    > - **Dead letter**: after `max_deliveries`, with the reason;
    """
    bridge.need("messageKey")
    for body in (b"poison", b"next"):
        await talk.produce(body, messagekey="k")
    await _refuse(talk, most)
    assert (await talk.take()).body == b"next"
    letter = await talk.take(source=f"{talk.destination}.dlq", consumerid="undertaker")
    assert letter.headers["x-oms-h-messagekey"] == "k"


async def test_a_dead_letter_of_one_group_is_still_alive_for_another(talk: Conversation, most: int) -> None:
    """
    > - **Dead letter**: after `max_deliveries`, with the reason;
    """
    await talk.produce(b"poison")
    await _refuse(talk, most)
    other = await talk.take(consumerid="another")
    assert (other.body, other.count) == (b"poison", 1)
