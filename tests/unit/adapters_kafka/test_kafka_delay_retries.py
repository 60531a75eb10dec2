"""What cannot be written waits ever longer, and is tried with one record; one bad destination holds up no other."""

from adapters.kafka.delay.dispatch import FIRST_PAUSE, LAST_PAUSE, SHORT_PAUSE, TOPIC_IN_FLIGHT_MAX, Place, Retries
from adapters.kafka.record import Part

NOW = 1_700_000_000_000
RECORD = Place(Part("oms.delay.due", 1), 5)


def test_pauses_of_what_is_refused_grow_up_to_a_minute() -> None:
    retries, now, pauses = Retries(), NOW, []
    for turn in range(6):
        assert retries.refuse("orders", now) is (turn == 0)
        pauses.append(retries.until("orders") - now)
        now = retries.until("orders")
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE, LAST_PAUSE, LAST_PAUSE]
    assert (retries.until("payments"), retries.refused) == (0, 1)


def test_an_outage_is_waited_for_with_short_pauses_and_is_no_refusal() -> None:
    retries = Retries()
    for now in (NOW, NOW + SHORT_PAUSE):
        retries.wait("orders", now)
        assert (retries.until("orders"), retries.refused) == (now + SHORT_PAUSE, 0)
    assert not retries.succeeded("orders", NOW)
    assert retries.refuse("orders", NOW), "it was not refused before"
    retries.wait("orders", NOW)
    assert not retries.refuse("orders", NOW), "it was"


def test_success_ends_it() -> None:
    retries = Retries()
    retries.refuse("orders", NOW)
    retries.refuse(RECORD, NOW)
    assert retries.succeeded("orders", NOW)
    assert not retries.succeeded("orders", NOW)
    retries.settled(RECORD)
    assert (retries.refused, retries.until("orders"), retries.until(RECORD)) == (0, 0, 0)


def test_what_nobody_tries_any_more_is_forgotten() -> None:
    retries = Retries()
    retries.refuse("gone", NOW)
    retries.refuse("orders", NOW + 600_000)
    retries.succeeded("payments", NOW + 600_000 + FIRST_PAUSE + 1)
    assert (retries.until("gone"), retries.refused) == (0, 1)


def test_after_a_failure_one_record_is_tried_and_then_more_and_more() -> None:
    retries = Retries()
    assert retries.limit("orders") == TOPIC_IN_FLIGHT_MAX
    retries.refuse(RECORD, NOW)
    retries.wait("orders", NOW)
    assert retries.limit("payments") == TOPIC_IN_FLIGHT_MAX
    limits = []
    while (limit := retries.limit("orders")) < TOPIC_IN_FLIGHT_MAX:
        limits.append(limit)
        retries.succeeded("orders", NOW)
    assert limits == [1, 2, 4, 8, 16, 32]
