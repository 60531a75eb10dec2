"""What cannot be written waits ever longer, and is tried with one record; one bad destination holds up no other."""

from adapters.kafka.delay.dispatch import (
    FIRST_PAUSE,
    LAST_PAUSE,
    SHORT_PAUSE,
    TOPIC_IN_FLIGHT_MAX,
    Backoff,
    TopicQueue,
)

NOW = 1_700_000_000_000


def test_pauses_of_what_is_refused_grow_up_to_a_minute() -> None:
    backoff, now, pauses = Backoff(), NOW, []
    for turn in range(6):
        assert backoff.refuse(now) is (turn == 0)
        pauses.append(backoff.until - now)
        now = backoff.until
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE, LAST_PAUSE, LAST_PAUSE]
    assert backoff.refused


def test_an_outage_is_waited_for_with_short_pauses_and_is_no_refusal() -> None:
    backoff = Backoff()
    for now in (NOW, NOW + SHORT_PAUSE):
        backoff.wait(now)
        assert (backoff.until, backoff.refused) == (now + SHORT_PAUSE, False)
    assert backoff.refuse(NOW), "it was not refused before"
    backoff.wait(NOW)
    assert backoff.until == NOW + SHORT_PAUSE
    assert not backoff.refuse(NOW), "it was"


def test_success_ends_it() -> None:
    queue = TopicQueue()
    queue.backoff.wait(NOW)
    assert not queue.succeeded()
    queue.backoff.refuse(NOW)
    assert queue.succeeded()
    assert not queue.succeeded()
    assert (queue.backoff.refused, queue.backoff.until) == (False, 0)


def test_what_is_tried_no_more_is_forgotten() -> None:
    queue = TopicQueue()
    assert queue.is_unused(NOW)
    queue.backoff.refuse(NOW)
    assert not queue.is_unused(NOW + FIRST_PAUSE + 600_000)
    assert queue.is_unused(NOW + FIRST_PAUSE + 600_001)
    queue.in_flight = 1
    assert not queue.is_unused(NOW + FIRST_PAUSE + 600_001)


def test_after_a_failure_one_record_is_tried_and_then_more_and_more() -> None:
    queue = TopicQueue()
    queue.succeeded()
    assert queue.limit == TOPIC_IN_FLIGHT_MAX
    queue.limit = 1
    limits = []
    while queue.limit < TOPIC_IN_FLIGHT_MAX:
        limits.append(queue.limit)
        queue.succeeded()
    assert limits == [1, 2, 4, 8, 16, 32]
