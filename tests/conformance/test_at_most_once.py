"""Pulls without ack."""

import asyncio

import pytest

from .conversation import Conversation, Target
from .frames import Frames

pytestmark = pytest.mark.slow_on_brokers


async def test_a_pull_without_ack_settles_the_message(talk: Conversation) -> None:
    """
    > Without ack the message is settled before it is sent (at most once);

    > Request headers: `x-oms-version`, `x-oms-consumerid` (the consumer group), `x-oms-source`, `x-oms-ack`
    > (default false),
    """
    await talk.produce(b"once")
    taken = await talk.take(ack=None, leasemills=100)
    assert (taken.body, taken.count) == (b"once", 1)
    assert "x-oms-receipt" not in taken.headers
    assert "x-oms-leaseuntil" not in taken.headers
    await talk.nothing(wait=400)


async def test_a_message_is_settled_before_its_first_byte_is_read(bridge: Target, talk: Conversation) -> None:
    """
    > - **At most once**: without ack the message is settled before its bytes are sent.
    """
    await talk.produce(b"never read")
    params = {
        "version": "1.0.0",
        "source": talk.destination,
        "consumerid": talk.group,
        "waitmills": "5000",
        "leasemills": "100",
    }
    pairs = [(f"x-oms-{name}".encode(), value.encode()) for name, value in params.items()]

    def take_headers_only() -> tuple[int | None, bytes]:
        with Frames(bridge.url, window=0) as frames:
            answer = frames.headers_of(frames.request("GET", "/v1/messages", pairs, b""))
            return answer.status, answer.body

    assert await asyncio.to_thread(take_headers_only) == (200, b"")
    await talk.nothing(wait=400)


@pytest.mark.wire
async def test_ack_false_means_no_ack(talk: Conversation) -> None:
    """
    > Without ack the message is settled before it is sent (at most once);
    """
    await talk.produce(b"once")
    assert "x-oms-receipt" not in (await talk.take(ack="false", leasemills=100)).headers
    await talk.nothing(wait=400)
