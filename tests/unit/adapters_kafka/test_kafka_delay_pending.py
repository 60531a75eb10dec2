"""What a forwarder holds in memory: in order, no more than it has to, and nothing twice."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.consume.settled_ranges import SPAN_MAX
from adapters.kafka.delay.schedule import (
    AHEAD,
    BYTES_MAX,
    DUE,
    LEVELS,
    RECORDS_MAX,
    DelayPartition,
    Level,
    PendingDelays,
    Waiting,
    size,
)
from adapters.kafka.mapping import Commit, Part, Record

NOW = 1_700_000_000_000
EIGHT = next(level for level in LEVELS if level.name == "8s")
FINAL = Part("orders", 0)
HOUR = 3_600_000


def lying(offset: int, appended: int = NOW, part: int = 0, stored: int = NOW, *, size: int = 4) -> Record:
    headers = [("oms_h_storeTimestamp", b"%d" % stored)]
    return Record("oms.delay", part, offset, appended, b"k", b"x" * size, headers)


def holding(*parts: int, level: Level = DUE, ahead: int = 0) -> PendingDelays:
    held = PendingDelays(ahead)
    for part in parts or (0,):
        held.hold(Part("oms.delay", part), level, None)
    return held


def at(held: PendingDelays, part: int = 0) -> DelayPartition:
    return held.partitions[Part("oms.delay", part)]


def taken(held: PendingDelays, now: int) -> list[int]:
    """Take what is awake, and be done with it."""
    found = held.take(now)
    for each in found:
        held.close(each)
    return [each.record.offset for each in found]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30), st.integers(0, 60))
def test_what_is_due_comes_in_order_and_the_rest_stays(rows: list[tuple[int, int]], later: int) -> None:
    held = holding()
    for offset, (due, stored) in enumerate(rows):
        held.add(lying(offset, stored=stored), Waiting(FINAL, NOW + due), NOW)
    awake = sorted((due, stored, offset) for offset, (due, stored) in enumerate(rows) if due <= later)
    assert taken(held, NOW + later) == [offset for *_, offset in awake]
    assert len(held) == len(rows) - len(awake)
    assert held.next_event(NOW) == min((NOW + due for due, _ in rows if due > later), default=None)


def test_two_that_are_due_together_go_as_they_were_published_whichever_partition_they_lie_in() -> None:
    held = holding(0, 1)
    held.add(lying(7, stored=NOW - 1), Waiting(FINAL, NOW), NOW)
    held.add(lying(3, part=1, stored=NOW - 2), Waiting(FINAL, NOW), NOW)
    assert taken(held, NOW) == [3, 7]


def test_two_that_nothing_tells_apart_go_as_they_were_read() -> None:
    held = holding(0, 1)
    for part in (1, 0):
        held.add(lying(0, part=part), Waiting(FINAL, NOW), NOW)
    assert [each.record.partition for each in held.take(NOW)] == [1, 0]


def test_the_last_stretch_is_left_ahead_of_time_and_a_level_is_not() -> None:
    for level, due, wakes in (DUE, NOW + 1_000, NOW + 800), (EIGHT, NOW + 9_000, NOW + 8_000):
        held = holding(level=level, ahead=200)
        held.add(lying(0), Waiting(FINAL, due), NOW)
        assert held.next_event(NOW) == wakes


def test_what_could_not_be_forwarded_sleeps_until_it_is_to_be_tried_again() -> None:
    held = holding(level=EIGHT)
    held.add(lying(0), Waiting(FINAL, NOW - 1, NOW + 5_000), NOW)
    assert held.next_event(NOW) == NOW + 5_000


def test_nothing_more_is_read_behind_a_record_that_waits_for_long() -> None:
    held = holding(0, 1, level=EIGHT)
    assert held.wanted(at(held), NOW)
    held.add(lying(0), Waiting(FINAL, NOW + 60_000), NOW)
    assert not held.wanted(at(held), NOW)
    assert held.wanted(at(held, 1), NOW)
    assert held.wanted(at(held), NOW + 8_000 - AHEAD)
    assert taken(held, NOW + 8_000) == [0]
    assert held.wanted(at(held), NOW + 8_000)


def test_a_partition_holds_so_many() -> None:
    held = holding()
    for offset in range(RECORDS_MAX):
        assert held.wanted(at(held), NOW)
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
    assert not held.wanted(at(held), NOW)
    one, *others = held.take(NOW)
    for each in others:
        held.put_back(each, NOW)
    assert not held.wanted(at(held), NOW), "it is being forwarded"
    held.close(one)
    assert held.wanted(at(held), NOW)


def test_a_partition_counts_what_it_holds() -> None:
    held = holding(0, 1)
    for offset in range(5):
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
    held.add(lying(0, part=1), Waiting(FINAL, NOW), NOW)
    first = held.take(NOW)[0]
    assert (at(held).open, at(held, 1).open, len(held)) == (5, 1, 6), "also those that are being forwarded"
    held.close(first)
    assert len(held) == 5
    assert held.next_event(NOW) is None
    held.put_back(first, NOW + 7)
    assert held.next_event(NOW) == NOW + 7


def test_a_partition_that_is_paused_is_read_again_in_time() -> None:
    held = holding(level=EIGHT)
    held.add(lying(0, appended=NOW - 4_000), Waiting(FINAL, NOW + HOUR), NOW)
    at(held).paused = True
    assert held.next_event(NOW) == NOW + 4_000 - AHEAD
    assert held.next_event(NOW + 4_000 - AHEAD) == NOW + 4_000, "it is time already"


def test_exactly_so_much_is_enough() -> None:
    held = holding(0, 1)
    held.add(lying(0), Waiting(FINAL, NOW), NOW)
    rest = BYTES_MAX - size(lying(0)) - size(lying(0, size=0))
    held.add(lying(0, part=1, size=rest - 1), Waiting(FINAL, NOW), NOW)
    assert held.wanted(at(held), NOW)
    held = holding(0, 1)
    held.add(lying(0), Waiting(FINAL, NOW), NOW)
    held.add(lying(0, part=1, size=rest), Waiting(FINAL, NOW), NOW)
    assert not held.wanted(at(held), NOW)


def test_all_together_hold_so_much_but_each_may_hold_something() -> None:
    held = holding(0, 1, 2)
    for part in 0, 1:
        held.add(lying(0, part=part, size=BYTES_MAX // 2), Waiting(FINAL, NOW + part), NOW)
    assert [held.wanted(at(held, part), NOW) for part in range(3)] == [False, False, True]
    assert taken(held, NOW) == [0]
    assert [held.wanted(at(held, part), NOW) for part in range(3)] == [True, True, True]


def test_what_is_dropped_is_forgotten_and_gives_room() -> None:
    held = holding(0, 1)
    held.add(lying(0, size=BYTES_MAX // 2), Waiting(FINAL, NOW), NOW)
    [under_way] = held.take(NOW)
    held.add(lying(1, size=BYTES_MAX // 2), Waiting(FINAL, NOW), NOW)
    held.add(lying(0, part=1), Waiting(FINAL, NOW + 1), NOW)
    assert not held.wanted(at(held, 1), NOW)
    held.drop(Part("oms.delay", 0))
    assert held.wanted(at(held, 1), NOW)
    held.close(under_way)
    assert (len(held), held.next_event(NOW)) == (1, NOW + 1)


def test_settled_records_are_passed_over() -> None:
    held = holding()
    for offset in range(3):
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
    at(held).progress.settle(1)
    held.hold(Part("oms.delay", 0), DUE, at(held).progress.commit())
    for offset in range(3):
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
    assert taken(held, NOW) == [0, 2]


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    held = PendingDelays(0)
    held.hold(Part("oms.delay", 0), DUE, Commit(1000, "")).paused = True
    held.add(lying(0), Waiting(FINAL, NOW), NOW)
    assert at(held).paused, "its consumer does not know of the new log"
    assert taken(held, NOW) == [0]
    at(held).progress.settle(0)
    assert at(held).progress.commit() == Commit(1, "")


def test_after_the_clock_was_set_back_a_record_stays_for_the_dwell_of_its_level() -> None:
    held = holding(level=EIGHT)
    held.add(lying(0), Waiting(FINAL, NOW + HOUR), NOW)
    held.clock_set_back(NOW - HOUR)
    assert held.next_event(NOW - HOUR) == NOW - HOUR + 8_000
    assert held.wanted(at(held), NOW - HOUR + 8_000 - AHEAD)
    held.add(lying(1), Waiting(FINAL, NOW + HOUR), NOW - HOUR + 5)
    assert taken(held, NOW - HOUR + 8_005) == [0, 1]


def test_an_open_record_far_behind_is_seen() -> None:
    held = holding()
    for offset in 0, 1, SPAN_MAX // 2 + 1:
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
    assert [at(held).lags(offset) for offset in (0, 1, 2)] == [True, True, False]


def test_reading_stops_before_what_is_settled_no_longer_fits_beside_the_commit() -> None:
    held = holding()
    for offset in (*range(300), SPAN_MAX):
        assert held.wanted(at(held), NOW)
        held.add(lying(offset), Waiting(FINAL, NOW), NOW)
        taken(held, NOW)
    assert not held.wanted(at(held), NOW)


def test_after_an_outage_what_was_due_first_goes_first() -> None:
    held = holding(level=EIGHT)
    held.add(lying(0, appended=NOW), Waiting(FINAL, NOW + 9_500), NOW)
    held.add(lying(1, appended=NOW + 10), Waiting(FINAL, NOW + 9_000), NOW)
    assert taken(held, NOW + 60_000) == [1, 0]
