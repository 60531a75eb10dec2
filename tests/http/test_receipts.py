"""Receipts that are forged, stale, foreign or used twice."""

import time
from itertools import product

import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, Pair, fresh, pull, refusal, store
from tests.http.conftest import MOSTLY_HYPERCORN, Start

pytestmark = MOSTLY_HYPERCORN

HOW = ("ack", "nack", "extend")


def settle(frames: Frames, how: str, receipt: bytes, *more: Pair) -> Answer:
    return frames.ask("POST", f"/v1/{how}", [VERSION, (b"x-oms-receipt", receipt), *more])


def leased(frames: Frames, target: bytes, *more: Pair) -> bytes:
    store(frames, target)
    answer = pull(frames, target, *more)
    assert answer.status == 200, answer
    return answer.headers[b"x-oms-receipt"]


def still_leased(frames: Frames, target: bytes, receipt: bytes) -> None:
    assert pull(frames, target).status == 204
    assert settle(frames, "ack", receipt).status == 204


def test_a_forged_receipt_settles_nothing(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    receipt = leased(frames, target)
    epoch, group, lease, mac = receipt.split(b"-")
    forged = [
        b"-".join((epoch, group, b"%x" % (int(lease, 16) + 1), mac)),
        b"-".join((epoch, b"%x" % (int(group, 16) + 1), lease, mac)),
        b"-".join((epoch, group, lease, b"0" * len(mac))),
        b"-".join((epoch, group, lease, b"")),
        b"-".join((epoch, group, lease)),
        receipt + b"-",
        b"x" * 5000,
        b"-" * 3,
    ]
    for how, text in product(HOW, forged):
        with subtests.test(f"{how} {text[:60]!r}"):
            answer = settle(frames, how, text)
            if answer.status == 410:
                refusal(answer, 410, "lease-ended", "x-oms-receipt")
            else:
                refusal(answer, 400, "receipt-invalid", "x-oms-receipt")
    still_leased(frames, target, receipt)


def test_a_receipt_of_another_bridge_is_refused(start: Start, frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    receipt = leased(frames, target)
    with Frames(start(OMS_LOG__LEVEL="warning").url) as other:
        for how in HOW:
            with subtests.test(how):
                refusal(settle(other, how, receipt), 410, "lease-ended")
    still_leased(frames, target, receipt)


def test_a_receipt_of_another_group_than_the_one_named_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    receipt = leased(frames, target)
    named = [(b"x-oms-source", target), (b"x-oms-consumerid", b"another")]
    half = (b"x-oms-source", target)
    for how in HOW:
        with subtests.test(how):
            refusal(settle(frames, how, receipt, *named), 400, "receipt-invalid", "another group")
            refusal(settle(frames, how, receipt, half), 400, "header-missing", "x-oms-consumerid")
    refusal(pull(frames, target, (b"x-oms-receipt", receipt), group=b"another"), 400, "receipt-invalid")
    still_leased(frames, target, receipt)


def test_the_right_group_may_be_named(frames: Frames) -> None:
    target = fresh()
    receipt = leased(frames, target)
    assert settle(frames, "ack", receipt, (b"x-oms-source", target), (b"x-oms-consumerid", b"g")).status == 204


def test_a_stale_receipt_does_not_touch_the_next_lease(frames: Frames) -> None:
    target = fresh()
    stale = leased(frames, target, (b"x-oms-leasemills", b"50"))
    time.sleep(0.1)
    again = pull(frames, target)
    assert again.headers[b"x-oms-h-deliverycount"] == b"2"
    for how in HOW:
        refusal(settle(frames, how, stale), 410, "lease-ended", "delivered again")
    still_leased(frames, target, again.headers[b"x-oms-receipt"])


def test_acknowledging_twice_is_done_also_in_one_request(frames: Frames) -> None:
    receipt = leased(frames, fresh())
    for text in (b"%b,%b" % (receipt, receipt), receipt, b" %b , %b " % (receipt, receipt)):
        assert settle(frames, "ack", text.strip()).status == 204


def test_an_empty_receipt_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    for text in (b"", b",", b"a,", b" , "):
        with subtests.test(repr(text)):
            answer = settle(frames, "ack", text.strip())
            refusal(answer, 400, "header-invalid", "x-oms-receipt", "1000")


def test_good_receipts_are_settled_beside_bad_ones(frames: Frames) -> None:
    target = fresh()
    good = [leased(frames, target) for _ in range(2)]
    answer = settle(frames, "ack", b"%b,forged,%b" % tuple(good))
    refusal(answer, 400, "receipt-invalid", "forged", "Of 3 receipts")
    for receipt in good:
        refusal(settle(frames, "nack", receipt), 410, "lease-ended")


def test_a_pause_that_is_none_is_refused_and_the_lease_kept(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    receipt = leased(frames, target)
    for delay in (b"-1", b"x", b"86400001", b"", b"1.5"):
        with subtests.test(repr(delay)):
            answer = settle(frames, "nack", receipt, (b"x-oms-delaymills", delay))
            refusal(answer, 400, "header-invalid", "x-oms-delaymills")
    still_leased(frames, target, receipt)
