"""Delayed messages, by the real clock."""

import asyncio
import time

import pytest

from .conversation import Conversation, Target, now, refused

YEAR = 365 * 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def _delayed(bridge: Target) -> None:
    bridge.need("delayTime")


async def test_a_message_is_never_early(talk: Conversation) -> None:
    """
    > Never delivered early;

    > - **Delay**: due = bornTimestamp + delayTime.
    """
    for delay in (150, 400, 650):
        await talk.produce(b"%d" % delay, delaytime=delay)
    for _ in range(3):
        taken = await talk.take()
        due = int(taken.headers["x-oms-h-borntimestamp"]) + int(taken.headers["x-oms-h-delaytime"])
        assert time.time_ns() // 1_000_000 >= due
        await talk.ack(taken.receipt)
    await talk.nothing()


async def test_delayed_messages_come_in_the_order_they_are_due(talk: Conversation) -> None:
    """
    > - **Delay**: due = bornTimestamp + delayTime.
    """
    born = now()
    for delay in (1_500, 900, 1_200):
        await talk.produce(b"%d" % delay, borntimestamp=born, delaytime=delay)
    assert [t.body for t in await talk.take_all(3)] == [b"900", b"1200", b"1500"]


async def test_the_delay_counts_from_the_birth_that_the_client_names(talk: Conversation) -> None:
    """
    > - **Delay**: due = bornTimestamp + delayTime.

    > | delayTime | Long >= 0, ms from bornTimestamp | client | 400 |
    """
    born = now() - 60_000
    await talk.produce(b"soon", borntimestamp=born, delaytime=60_400)
    assert (await talk.take()).body == b"soon"
    assert now() >= born + 60_400


async def test_a_message_already_due_goes_at_once(talk: Conversation) -> None:
    """
    > A message already due goes at once.
    """
    await talk.produce(b"due", borntimestamp=now() - 10_000, delaytime=9_000)
    await talk.produce(b"no delay", delaytime=0)
    assert {t.body for t in await talk.take_all(2)} == {b"due", b"no delay"}


async def test_a_delayed_message_does_not_hold_up_the_others(talk: Conversation) -> None:
    """
    > A message already due goes at once.
    """
    await talk.produce(b"later", delaytime=1_500)
    await talk.produce(b"now")
    assert (await talk.take()).body == b"now"
    assert (await talk.take()).body == b"later"


async def test_a_delayed_message_wakes_a_waiting_pull(talk: Conversation) -> None:
    """
    > Never delivered early;
    """
    waiting = asyncio.create_task(talk.take())
    await asyncio.sleep(0.1)
    born = now()
    await talk.produce(b"later", borntimestamp=born, delaytime=400)
    assert (await waiting).body == b"later"
    assert now() >= born + 400


async def test_a_delay_of_a_year_is_accepted_and_not_delivered(talk: Conversation) -> None:
    """
    > any length up to a year.
    """
    await talk.produce(b"next year", delaytime=YEAR)
    await talk.nothing()


@pytest.mark.wire
async def test_a_delay_beyond_a_year_is_refused_not_forgotten(talk: Conversation) -> None:
    """
    > any length up to a year.
    """
    assert "delaytime" in refused(await talk.post(delaytime=2 * YEAR), 400, "header-invalid")
