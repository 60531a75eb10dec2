"""Receipts that are forged, stale, foreign or used twice."""

import json
import time
from itertools import product

import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, Pair, fresh, post, pull, pulling, refusal, store
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.http.streaming import LINES

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


JSON = (b"content-type", b"application/json; charset=utf-8")


def settle_in_body(frames: Frames, how: str, body: object, *more: Pair) -> Answer:
    pairs = [VERSION, JSON, *more]
    return frames.ask("POST", f"/v1/{how}", pairs, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_a_thousand_receipts_are_taken_in_the_body(frames: Frames) -> None:
    """Many servers and proxies refuse them as a header, nginx 200 of them."""
    target = fresh()
    item = {"header": {"destination": target.decode()}}
    assert post(frames, [VERSION, JSON], json.dumps([item] * 1000).encode()).status == 200
    push = [*pulling(target, LINES), (b"x-oms-credit", b"1000"), (b"x-oms-maxmessages", b"1000")]
    stream = frames.request("GET", "/v1/push", push, b"")
    receipts: list[str] = []
    while len(receipts) < 1000:
        lines = frames.body_of(stream).split(b"\n")[:-1]
        receipts = [json.loads(line)["receipt"] for line in lines if line]
        assert len(receipts) == 1000 or frames.grows(stream, len(frames.body_of(stream)), 30)
    assert settle_in_body(frames, "extend", {"receipts": receipts}, (b"x-oms-leasemills", b"60000")).status == 204
    assert settle_in_body(frames, "nack", {"receipts": receipts[:1]}).status == 204
    refusal(settle_in_body(frames, "ack", {"receipts": receipts}), 410, "lease-ended", receipts[0])
    again = pull(frames, target, (b"x-oms-waitmills", b"30000"))
    assert settle_in_body(frames, "ack", {"receipts": [again.headers[b"x-oms-receipt"].decode()]}).status == 204
    assert pull(frames, target, (b"x-oms-waitmills", b"100")).status == 204
    assert frames.answer(stream).ended == "complete", "all are settled"


def test_a_body_that_has_no_receipts_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    receipt = leased(frames, target)
    given = (b"x-oms-receipt", receipt)
    for body, more, status, code in (
        (b"{", (), 400, "body-invalid"),
        (b"[]", (), 400, "body-invalid"),
        ({"receipts": "a"}, (), 400, "body-invalid"),
        ({"receipts": [1]}, (), 400, "body-invalid"),
        ({"receipt": ["a"]}, (), 400, "body-invalid"),
        ({"receipts": ["a"] * 1001}, (), 400, "header-invalid"),
        ({"receipts": [""]}, (), 400, "header-invalid"),
        ({"receipts": []}, (), 400, "header-missing"),
        ({"receipts": ["a"]}, (given,), 400, "header-repeated"),
    ):
        for how in HOW:
            with subtests.test(f"{how} {body!r:.60}"):
                refusal(settle_in_body(frames, how, body, *more), status, code)
    for how in HOW:
        form = [VERSION, (b"content-type", b"application/x-www-form-urlencoded"), given]
        refusal(frames.ask("POST", f"/v1/{how}", form, b"a=b"), 415, "content-type-unsupported")
    assert settle_in_body(frames, "ack", {}, given).status == 204, "an empty object says nothing"
