"""What cannot be written waits ever longer, is told of once, and is found among others."""

from adapters.kafka.delay.trouble import FIRST_PAUSE, TOGETHER, Place, Trouble
from adapters.kafka.record import Part

NOW = 1_700_000_000_000
RECORD = Place(Part("oms.delay.due", 1), 5)


def test_pauses_grow_up_to_a_minute_and_are_told_once() -> None:
    trouble, now, pauses = Trouble(), NOW, []
    for turn in range(6):
        assert trouble.put_off("orders", now) is (turn == 0)
        pauses.append(trouble.until("orders") - now)
        now = trouble.until("orders")
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE, 60_000, 60_000]
    assert (trouble.until("payments"), len(trouble)) == (0, 1)


def test_success_ends_it() -> None:
    trouble = Trouble()
    trouble.put_off("orders", NOW)
    trouble.put_off(RECORD, NOW)
    assert trouble.succeeded("orders", NOW)
    assert not trouble.succeeded("orders", NOW)
    trouble.settled(RECORD)
    assert len(trouble) == 0


def test_what_nobody_tries_any_more_is_forgotten() -> None:
    trouble = Trouble()
    trouble.put_off("gone", NOW)
    trouble.put_off("orders", NOW + 600_000)
    trouble.succeeded("payments", NOW + 600_000 + FIRST_PAUSE + 1)
    assert (trouble.until("gone"), len(trouble)) == (0, 1)


def test_care_grows_with_failures_and_goes_with_successes() -> None:
    trouble = Trouble()
    assert trouble.limit("orders") is None
    trouble.suspect({"orders", "payments"}, TOGETHER)
    assert trouble.limit("orders") == TOGETHER
    trouble.suspect({"orders"}, TOGETHER // 4)
    trouble.suspect({"orders"}, 0)
    assert (trouble.limit("orders"), trouble.limit("payments")) == (1, TOGETHER)
    limits = []
    while (limit := trouble.limit("orders")) is not None:
        limits.append(limit)
        trouble.succeeded("orders", NOW)
    assert limits == [1, 2, 4, 8, 16, 32, 64, 128, 256]
