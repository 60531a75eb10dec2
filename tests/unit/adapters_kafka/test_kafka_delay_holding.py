"""What a forwarder holds in memory: in order, no more than it has to, and nothing twice."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.delay.holding import AHEAD, BYTES_MAX, RECORDS_MAX, Holding, Shelf
from adapters.kafka.delay.schedule import DUE, LEVELS
from adapters.kafka.delay.waiting import Waiting
from adapters.kafka.progress import SPAN_MAX
from adapters.kafka.record import Commit, Part, Record

NOW = 1_700_000_000_000
EIGHT = next(level for level in LEVELS if level.name == "8s")
FINAL = Part("orders", 0)
ALL = 1 << 30


def lying(offset: int, appended: int = NOW, part: int = 0, stored: int = NOW, size: int = 4) -> Record:
    headers = [("oms_h_storeTimestamp", b"%d" % stored)]
    return Record("oms.delay", part, offset, appended, b"k", b"x" * size, headers)


def holding(*parts: int, level: object = DUE, ahead: int = 0) -> Holding:
    held = Holding(ahead)
    for part in parts or (0,):
        held.put(Shelf(Part("oms.delay", part), level, None))  # type: ignore[arg-type] # of LEVELS
    return held


def shelf_of(held: Holding, part: int = 0) -> Shelf:
    return held.shelves[Part("oms.delay", part)]


def offsets(held: Holding, now: int, records: int = ALL, bytes_: int = ALL) -> list[int]:
    return [each.record.offset for each in held.take(now, records, bytes_)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30), st.integers(0, 60))
def test_what_is_due_comes_in_order_and_the_rest_stays(rows: list[tuple[int, int]], later: int) -> None:
    held = holding()
    for offset, (due, stored) in enumerate(rows):
        held.add(lying(offset, stored=stored), Waiting(FINAL, NOW + due))
    awake = sorted((due, stored, offset) for offset, (due, stored) in enumerate(rows) if due <= later)
    assert offsets(held, NOW + later) == [offset for *_, offset in awake]
    assert len(held) == len(rows) - len(awake)
    assert held.next_wake() == min((NOW + due for due, _ in rows if due > later), default=None)


def test_two_that_are_due_together_go_as_they_were_published_whichever_partition_they_lie_in() -> None:
    held = holding(0, 1)
    held.add(lying(7, stored=NOW - 1), Waiting(FINAL, NOW))
    held.add(lying(3, part=1, stored=NOW - 2), Waiting(FINAL, NOW))
    assert offsets(held, NOW) == [3, 7]


def test_the_last_stretch_is_left_ahead_of_time_and_a_level_is_not() -> None:
    for level, at in (DUE, NOW + 8_800), (EIGHT, NOW + 8_000):
        held = holding(level=level, ahead=200)
        held.add(lying(0), Waiting(FINAL, NOW + 9_000))
        assert held.next_wake() == at


def test_nothing_more_is_read_behind_a_record_that_waits_for_long() -> None:
    held = holding(0, 1, level=EIGHT)
    assert held.hungry(shelf_of(held), NOW)
    held.add(lying(0), Waiting(FINAL, NOW + 60_000))
    assert not held.hungry(shelf_of(held), NOW)
    assert held.hungry(shelf_of(held, 1), NOW)
    assert held.hungry(shelf_of(held), NOW + 8_000 - AHEAD)
    assert offsets(held, NOW + 8_000) == [0]
    assert held.hungry(shelf_of(held), NOW + 8_000)


def test_a_partition_holds_so_many() -> None:
    held = holding()
    for offset in range(RECORDS_MAX):
        assert held.hungry(shelf_of(held), NOW)
        held.add(lying(offset), Waiting(FINAL, NOW))
    assert not held.hungry(shelf_of(held), NOW)
    assert len(offsets(held, NOW, records=10)) == 10
    assert held.hungry(shelf_of(held), NOW)


def test_all_together_hold_so_much_but_each_may_hold_something() -> None:
    held = holding(0, 1, 2)
    for part in 0, 1:
        held.add(lying(0, part=part, size=BYTES_MAX // 2), Waiting(FINAL, NOW))
    assert [held.hungry(shelf_of(held, part), NOW) for part in range(3)] == [False, False, True]
    assert offsets(held, NOW, bytes_=1) == [0], "one at least"
    assert [held.hungry(shelf_of(held, part), NOW) for part in range(3)] == [True, True, True]


def test_what_is_dropped_is_forgotten_and_gives_room() -> None:
    held = holding(0, 1)
    held.add(lying(0, size=BYTES_MAX), Waiting(FINAL, NOW))
    held.add(lying(0, part=1), Waiting(FINAL, NOW + 1))
    assert not held.hungry(shelf_of(held, 1), NOW)
    held.drop(Part("oms.delay", 0))
    assert held.hungry(shelf_of(held, 1), NOW)
    assert (len(held), held.next_wake()) == (1, NOW + 1)


def test_settled_records_are_passed_over() -> None:
    first = Shelf(Part("oms.delay", 0), DUE, None)
    held = Holding(0)
    held.put(first)
    for offset in range(3):
        held.add(lying(offset), Waiting(FINAL, NOW))
    first.progress.settle(1)
    held.put(Shelf(first.part, DUE, first.progress.commit()))
    for offset in range(3):
        held.add(lying(offset), Waiting(FINAL, NOW))
    assert offsets(held, NOW) == [0, 2]


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    held = Holding(0)
    held.put(Shelf(Part("oms.delay", 0), DUE, Commit(1000, "")))
    held.add(lying(0), Waiting(FINAL, NOW))
    assert offsets(held, NOW) == [0]
    shelf_of(held).progress.settle(0)
    commit = shelf_of(held).progress.commit()
    assert commit is not None
    assert commit.offset == 1


def test_records_that_were_put_off_are_read_again() -> None:
    held = holding()
    held.add(lying(0), Waiting(FINAL, NOW))
    [taken] = held.take(NOW, ALL, ALL)
    taken.shelf.put_off(NOW + 5_000)
    taken.shelf.put_off(NOW + 9_000)
    assert held.next_wake() == NOW + 5_000
    assert held.to_read_again(NOW + 4_999) == []
    assert held.to_read_again(NOW + 5_000) == [taken.shelf]


def test_an_open_record_far_behind_is_seen() -> None:
    held = holding()
    for offset in 0, 1, SPAN_MAX // 2 + 1:
        held.add(lying(offset), Waiting(FINAL, NOW))
    assert [shelf_of(held).lags(offset) for offset in (0, 1, 2)] == [True, True, False]


def test_reading_stops_before_what_is_settled_no_longer_fits_beside_the_commit() -> None:
    held = holding()
    for offset in (*range(300), SPAN_MAX):
        assert held.hungry(shelf_of(held), NOW)
        held.add(lying(offset), Waiting(FINAL, NOW))
        held.take(NOW, ALL, ALL)
    assert not held.hungry(shelf_of(held), NOW)


def test_after_an_outage_what_was_due_first_goes_first() -> None:
    held = holding(level=EIGHT)
    held.add(lying(0, appended=NOW), Waiting(FINAL, NOW + 9_500))
    held.add(lying(1, appended=NOW + 10), Waiting(FINAL, NOW + 9_000))
    assert offsets(held, NOW + 60_000) == [1, 0]
