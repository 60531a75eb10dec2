"""Leases: what a receipt is good for."""

import asyncio

import pytest

from .conversation import Conversation, now, refused


async def test_a_pull_with_ack_leases_the_message(talk: Conversation) -> None:
    """
    > - **Lease**: under `x-oms-ack: true` a delivery is a lease with a receipt.

    > Replies: `200` with one message in the produce form plus `x-oms-h-deliverycount`, and under `x-oms-ack: true`
    > also `x-oms-receipt` and `x-oms-leaseuntil`;

    > Ours: `x-oms-leasemills` (how long the message is mine, default 30 s),
    """
    await talk.produce(b"mine")
    before = now()
    taken = await talk.take(leasemills=5_000)
    assert before + 4_900 <= int(taken.headers["x-oms-leaseuntil"]) <= now() + 5_000
    assert taken.receipt
    await talk.nothing()


@pytest.mark.wire
async def test_the_lease_lasts_thirty_seconds_by_default(talk: Conversation) -> None:
    """
    > Ours: `x-oms-leasemills` (how long the message is mine, default 30 s),
    """
    await talk.produce()
    before = now()
    taken = await talk.take()
    assert before + 29_900 <= int(taken.headers["x-oms-leaseuntil"]) <= now() + 30_000


async def test_an_ack_ends_the_lease_for_good(talk: Conversation) -> None:
    """
    > Ack ends it;

    > with ack it is settled only by an ack (at least once).
    """
    await talk.produce(b"done")
    taken = await talk.take(leasemills=1_500)
    await talk.ack(taken.receipt)
    await talk.nothing(wait=1_700)


async def test_a_nack_makes_the_message_ready_again(talk: Conversation) -> None:
    """
    > nack, the lease's end,
    """
    await talk.produce(b"again")
    await talk.nack((await talk.take()).receipt)
    assert (await talk.take()).body == b"again"


async def test_a_nack_can_ask_for_a_pause(talk: Conversation) -> None:
    """
    > (nack: after its delay).

    > `nack` takes `x-oms-delaymills`, `extend` takes `x-oms-leasemills`.
    """
    await talk.produce(b"later")
    taken = await talk.take()
    before = now()
    await talk.nack(taken.receipt, delaymills=400)
    assert (await talk.take()).body == b"later"
    assert now() >= before + 400


async def test_the_end_of_a_lease_makes_the_message_ready_again(talk: Conversation) -> None:
    """
    > nack, the lease's end,

    > a receipt whose lease ended is `410`, and the message may be delivered again.
    """
    await talk.produce(b"again")
    taken = await talk.take(leasemills=200)
    until = int(taken.headers["x-oms-leaseuntil"])
    again = await talk.take()
    assert (again.body, again.count) == (b"again", 2)
    assert now() >= until - 1
    refused(await talk.settle("ack", taken.receipt), 410, "lease-ended")
    await talk.ack(again.receipt)


async def test_an_unacknowledged_message_comes_until_it_is_acknowledged(talk: Conversation) -> None:
    """
    > deliveryCount is 1 on the first delivery, and one more on each.

    > with ack it is settled only by an ack (at least once).
    """
    await talk.produce(b"stubborn")
    for count in (1, 2, 3):
        taken = await talk.take()
        assert taken.count == count
        await talk.nack(taken.receipt)
    last = await talk.take()
    assert last.count == 4
    await talk.ack(last.receipt)
    await talk.nothing()


async def test_the_count_belongs_to_the_group(talk: Conversation) -> None:
    """
    > deliveryCount is 1 on the first delivery, and one more on each.
    """
    await talk.produce()
    await talk.nack((await talk.take()).receipt)
    assert (await talk.take(consumerid="another")).count == 1
    assert (await talk.take()).count == 2


async def test_a_lease_can_be_extended(talk: Conversation) -> None:
    """
    > `nack` takes `x-oms-delaymills`, `extend` takes `x-oms-leasemills`.
    """
    await talk.produce(b"mine")
    taken = await talk.take(leasemills=1_500)
    await talk.extend(taken.receipt, 30_000)
    await talk.nothing(wait=1_700)
    await talk.ack(taken.receipt)


async def test_a_lease_can_be_cut_short(talk: Conversation) -> None:
    """
    > `nack` takes `x-oms-delaymills`, `extend` takes `x-oms-leasemills`.
    """
    await talk.produce(b"again")
    taken = await talk.take(leasemills=60_000)
    await talk.extend(taken.receipt, 100)
    again = await talk.take()
    assert (again.body, again.count) == (b"again", 2)


async def test_a_message_that_is_ready_again_wakes_a_waiting_pull(talk: Conversation) -> None:
    """
    > nack, the lease's end,
    """
    await talk.produce(b"again")
    taken = await talk.take()
    waiting = asyncio.create_task(talk.take())
    await asyncio.sleep(0.1)
    await talk.nack(taken.receipt)
    assert (await waiting).body == b"again"
