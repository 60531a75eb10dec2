"""Messages whose time is over."""

import asyncio
from typing import Any

import httpx
import pytest

from .conversation import Conversation, Target, now


def expiring(milliseconds: int) -> dict[str, Any]:
    """Return the fields of a message that expires: with its birth, or one that arrives late would never expire."""
    born = now()
    return {"borntimestamp": born, "expiretime": born + milliseconds}


@pytest.fixture(autouse=True)
def _expiring(bridge: Target) -> None:
    bridge.need("expireTime")


async def test_an_expired_message_is_never_handed_out(talk: Conversation) -> None:
    """
    > - **Expiry**: never handed out after expireTime,
    """
    await talk.produce(b"short-lived", **expiring(200))
    await talk.produce(b"lasting")
    await asyncio.sleep(0.3)
    assert (await talk.take()).body == b"lasting"
    await talk.nothing()


async def test_a_message_that_expires_while_it_waits_in_the_bridge_is_not_handed_out(talk: Conversation) -> None:
    """
    > - **Expiry**: never handed out after expireTime,
    """
    await talk.join()
    await talk.produce(b"short-lived", **expiring(200))
    await asyncio.sleep(0.3)
    await talk.nothing()


async def test_a_message_is_handed_out_before_its_time_is_over(talk: Conversation) -> None:
    """
    > - **Expiry**: never handed out after expireTime,
    """
    expires = now() + 30_000
    await talk.produce(b"in time", expiretime=expires)
    taken = await talk.take()
    assert (taken.body, taken.headers["x-oms-h-expiretime"]) == (b"in time", str(expires))


async def test_an_expired_message_is_not_redelivered_after_a_nack(talk: Conversation) -> None:
    """
    > also not as a redelivery;
    """
    await talk.produce(b"short-lived", **expiring(1_500))
    taken = await talk.take()
    await asyncio.sleep(1.6)
    await talk.nack(taken.receipt)
    await talk.nothing()


async def test_an_expired_message_is_not_redelivered_after_its_lease(talk: Conversation) -> None:
    """
    > also not as a redelivery;
    """
    await talk.produce(b"short-lived", **expiring(1_500))
    await talk.take(leasemills=1_600)
    await talk.nothing(wait=1_800)


async def test_an_expiry_not_after_the_birth_means_never(talk: Conversation) -> None:
    """
    > `expireTime <= bornTimestamp` means it never expires.

    > | expireTime | Long, epoch ms; `<= bornTimestamp` means "never expires" | client | 400 |
    """
    born = now() - 10_000
    for before in (0, 1, 5_000):
        await talk.produce(b"%d before" % before, borntimestamp=born, expiretime=born - before)
    assert {taken.body for taken in await talk.take_all(3)} == {b"0 before", b"1 before", b"5000 before"}


async def test_a_message_that_expires_before_it_is_due_is_accepted_and_dropped(
    bridge: Target, talk: Conversation
) -> None:
    """
    > If it expires before it is due it is accepted and dropped,
    """
    bridge.need("delayTime")
    answer = await talk.produce(b"never", **expiring(200), delaytime=400)
    assert answer.headers["x-oms-h-messageid"]
    await talk.nothing(wait=700)


@pytest.mark.wire
async def test_expired_messages_are_counted(bridge: Target, talk: Conversation) -> None:
    """
    > and counted.
    """
    bridge.need("delayTime")
    if bridge.management is None:
        pytest.skip("the management port is not known")
    async with httpx.AsyncClient(base_url=bridge.management, trust_env=False) as management:
        before = await _expired(management)
        await talk.produce(b"never", **expiring(200), delaytime=400)
        assert await _expired(management) >= before + 1


async def _expired(management: httpx.AsyncClient) -> int:
    lines = (await management.get("/metrics")).text.splitlines()
    return int(next(float(line.split()[1]) for line in lines if line.startswith("oms_expired_total ")))
