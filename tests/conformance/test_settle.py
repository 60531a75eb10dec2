"""Ack, nack, extend: the requests themselves."""

import asyncio

import pytest

from .conversation import Conversation, refused

HOW = ["ack", "nack", "extend"]


async def test_acknowledging_twice_is_done(talk: Conversation) -> None:
    """
    > `204` when done; acknowledging twice is 204;
    """
    await talk.produce()
    taken = await talk.take()
    for _ in range(3):
        answer = await talk.settle("ack", taken.receipt)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["x-oms-version"].startswith("1.")


async def test_several_receipts_are_settled_at_once(talk: Conversation) -> None:
    """
    > `x-oms-receipt` (one, or several separated by commas).
    """
    for number in range(5):
        await talk.produce(b"%d" % number)
    receipts = [(await talk.take(leasemills=2_000)).receipt for _ in range(5)]
    await talk.ack(", ".join(receipts))
    await talk.nothing(wait=2_100)


async def test_one_ended_lease_among_several_is_named_and_the_others_are_settled(talk: Conversation) -> None:
    """
    > `x-oms-receipt` (one, or several separated by commas).

    > a receipt whose lease ended is `410`, and the message may be delivered again.
    """
    for number in range(3):
        await talk.produce(b"%d" % number)
    taken = [await talk.take() for _ in range(3)]
    await talk.nack(taken[1].receipt)
    answer = await talk.settle("ack", ",".join(t.receipt for t in taken))
    detail = refused(answer, 410, "lease-ended")
    assert taken[1].receipt in detail
    assert taken[0].receipt not in detail
    assert [(t.body, t.count) for t in await talk.take_all(1)] == [(taken[1].body, 2)]
    await talk.nothing()


async def test_a_receipt_whose_lease_ended_is_a_410(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > a receipt whose lease ended is `410`, and the message may be delivered again.
    """
    await talk.produce(b"again")
    taken = await talk.take(leasemills=100)
    await asyncio.sleep(0.2)
    for how in HOW:
        with subtests.test(how):
            refused(await talk.settle(how, taken.receipt), 410, "lease-ended")
    assert (await talk.take()).body == b"again"


@pytest.mark.wire
async def test_an_acknowledged_message_cannot_be_taken_back(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Ack ends it;
    """
    await talk.produce()
    taken = await talk.take()
    await talk.ack(taken.receipt)
    for how in ("nack", "extend"):
        with subtests.test(how):
            refused(await talk.settle(how, taken.receipt), 410, "lease-ended")
    await talk.nothing()


@pytest.mark.wire
async def test_a_request_without_a_receipt_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > `x-oms-receipt` (one, or several separated by commas).
    """
    for how in HOW:
        with subtests.test(how):
            answer = await talk.http.post(f"/v1/{how}", headers={"x-oms-version": "1.0.0"})
            assert "x-oms-receipt" in refused(answer, 400, "header-missing")
            refused(await talk.settle(how, "a,,b"), 400, "header-invalid")


@pytest.mark.wire
async def test_a_receipt_of_nobody_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - Errors: `application/problem+json` (RFC 9457) with a stable `code`, repeated in `x-oms-error`;
    """
    for how in HOW:
        with subtests.test(how):
            refused(await talk.settle(how, "guessed"), 400, "receipt-invalid")
