"""The ladder of delay topics: never early, always there, over so many steps at most; and what travels with a record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.delay.schedule import (
    DUE,
    LEVELS,
    SPARE,
    Level,
    Waiting,
    first_hop,
    first_place,
    from_delayed,
    next_hop,
    onward,
    stored_at,
    to_delayed,
    waiting_of,
    wake,
)
from adapters.kafka.mapping import Outgoing, Part, Record, from_record, to_record
from adapters.kafka.names import Own
from bridge.message import Message

NOW = 1_700_000_000_000
HOPS_MAX = 15 + 7 * 7 + 1
YEAR = 366 * 24 * 3600 * 1000


def journey(goal: int, lateness: list[int], begun: int = NOW) -> tuple[int, int, list[Level]]:
    """Return when a record reaches its destination, since when it was in the last level, and over which levels.

    Each is looked at so much too late.
    """
    now, last, levels = begun, begun, list[Level]()
    while (level := next_hop(goal, now)) is not None:
        assert level == first_hop(goal, now)
        levels.append(level)
        last, at = now, wake(level, now, goal)
        assert now < at <= goal, "time goes on, and nobody looks too late"
        now = at + (lateness[len(levels) % len(lateness)] if lateness else 0)
    return now, last, levels


delays = st.one_of(st.integers(0, 20_000), st.integers(0, YEAR))


@given(delays, st.lists(st.integers(0, 5000), max_size=5))
def test_never_early_always_there(delay: int, lateness: list[int]) -> None:
    arrived, _, levels = journey(NOW + delay, lateness)
    assert NOW + delay <= arrived <= NOW + delay + max(lateness, default=0)
    assert len(levels) <= HOPS_MAX


@given(st.integers(SPARE + 1, 200_000), st.integers(0, 200_000), st.lists(st.integers(0, SPARE - 1), max_size=5))
def test_records_for_one_moment_meet_in_the_last_level_before_it(delay: int, later: int, lateness: list[int]) -> None:
    """However late each is looked at, up to `SPARE`: there they are put into the order of their publishing."""
    for begun in NOW, NOW + min(later, delay - SPARE):
        arrived, last, levels = journey(NOW + delay, lateness, begun)
        assert levels[-1] is DUE
        assert last < NOW + delay
        assert arrived >= NOW + delay


def test_the_bound_is_reached() -> None:
    """15 times the longest dwell is more than a year, 14 times and seven times each of the others is less."""
    delay = 15 * 8**7 * 1000 - 1 + SPARE
    assert delay < YEAR < 16 * 8**7 * 1000
    assert len(journey(NOW + delay, [])[2]) == 14 + 7 * 7 + 1


def test_levels(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, str]] = [
        (-1, "due"),
        (0, "due"),
        (999, "due"),
        (1000, "1s"),
        (7999, "1s"),
        (8000, "8s"),
        (64_000, "64s"),
        (512_000, "512s"),
        (4_096_000, "4096s"),
        (32_768_000, "32768s"),
        (262_144_000, "262144s"),
        (2_097_151_999, "262144s"),
        (2_097_152_000, "2097152s"),
        (YEAR, "2097152s"),
    ]
    for remaining, level in cases:
        with subtests.test(remaining=remaining, level=level):
            assert first_hop(NOW + remaining + SPARE, NOW).name == level


def test_names_of_topics() -> None:
    assert [Own("oms.").delay(level.name) for level in LEVELS] == [
        "oms.delay.2097152s",
        "oms.delay.262144s",
        "oms.delay.32768s",
        "oms.delay.4096s",
        "oms.delay.512s",
        "oms.delay.64s",
        "oms.delay.8s",
        "oms.delay.1s",
        "oms.delay.due",
    ]


def test_the_end_of_the_way() -> None:
    assert next_hop(NOW - 1, NOW) is None
    assert next_hop(NOW, NOW) is None
    assert next_hop(NOW + 1, NOW) == DUE


def test_a_record_is_looked_at_after_its_dwell_or_when_it_is_due() -> None:
    by_name = {level.name: level for level in LEVELS}
    assert wake(by_name["8s"], NOW, NOW + 60_000) == NOW + 8000
    assert wake(by_name["8s"], NOW, NOW + 5000) == NOW + 5000
    assert wake(DUE, NOW, NOW + 700) == NOW + 700
    assert wake(DUE, NOW, NOW + 3_600_000) == NOW + 1_500  # the clock was set back: it does not belong here any more


@given(st.lists(st.integers(0, 3_000_000), max_size=30), st.sampled_from(LEVELS[:-1]))
def test_records_of_a_level_wake_in_the_order_in_which_they_lie(steps: list[int], level: Level) -> None:
    """The forwarder looks only at the first record of a partition: no later record may be due before it."""
    wakes, now = [], NOW
    for step in steps:
        now += step
        due = now + level.dwell + step % 9973
        wakes.append(wake(level, now, due))
    assert wakes == sorted(wakes)


# What travels with a record

OUTGOING = Outgoing("orders", 3, NOW, b"k", b"body", [("oms_p_a", b"1"), ("a", b"\xff"), ("a", b"")])
PLACE = Part("oms.delay.8s", 1)


def lying(outgoing: Outgoing, timestamp: int | None = None) -> Record:
    at = outgoing.timestamp if timestamp is None else timestamp
    return Record(outgoing.topic, outgoing.partition, 5, at, outgoing.key, outgoing.value, outgoing.headers)


def test_a_delayed_record_knows_where_it_goes_and_when() -> None:
    delayed = to_delayed(OUTGOING, NOW + 9000, PLACE)
    assert delayed[:5] == (*PLACE, NOW, b"k", b"body")
    moved = onward(lying(delayed), Part("oms.delay.1s", 2), NOW + 8000)
    assert moved[:5] == ("oms.delay.1s", 2, NOW + 8000, b"k", b"body")
    assert first_place(lying(delayed)) == (PLACE, 5)
    put_off = onward(lying(moved), PLACE, NOW + 9000, NOW + 19_000)
    assert waiting_of(lying(put_off)) == Waiting(Part("orders", 3), NOW + 9000, NOW + 19_000)
    moved = onward(lying(put_off), PLACE, NOW + 9000)
    assert first_place(lying(moved)._replace(offset=9)) == (PLACE, 5), "its first place, not its second"
    waiting = waiting_of(lying(moved))
    assert waiting == Waiting(Part("orders", 3), NOW + 9000)
    assert (
        from_delayed(lying(put_off), waiting.final, NOW).headers
        == from_delayed(lying(moved), waiting.final, NOW).headers
    )
    final = from_delayed(lying(moved), waiting.final, NOW + 9000)
    assert final[:5] == ("orders", 3, NOW + 9000, b"k", b"body")
    assert [header for header in final.headers if header[0] != "oms_h_storeTimestamp"] == OUTGOING.headers


def test_a_record_says_when_it_was_published_or_nothing() -> None:
    assert stored_at(lying(OUTGOING._replace(headers=[("oms_h_storeTimestamp", b"7")]))) == 7
    for headers in ([], [("oms_h_storeTimestamp", b"x")]):
        assert stored_at(lying(OUTGOING._replace(headers=headers))) == 0


def test_a_record_without_a_value_goes_on_with_an_empty_one() -> None:
    record = lying(to_delayed(OUTGOING, NOW + 9000, PLACE))._replace(value=None)
    assert onward(record, PLACE, NOW).value == b""
    assert from_delayed(record, Part("orders", 3), NOW).value == b""


def test_a_message_comes_back_from_its_detour_as_it_was() -> None:
    message = Message("orders", b"body", {"a": "1"}, message_id="id-1", message_key="k", delay_time=9000, partition=3)
    message = message._replace(born_timestamp=NOW, store_timestamp=NOW)
    delayed = to_delayed(to_record(message, "orders"), message.due, PLACE)
    final = from_delayed(lying(delayed), Part("orders", 3), NOW + 9000)
    assert from_record(lying(final), "orders") == message
    assert not [name for name, _ in final.headers if name.startswith("oms_d_")]


def test_a_record_of_somebody_else_in_a_delay_topic(subtests: pytest.Subtests) -> None:
    cases: list[bytes | None] = [None, b"", b"\xff", b"-1", b"9" * 20]
    for value in cases:
        for name in ("oms_d_due", "oms_d_topic", "oms_d_partition"):
            with subtests.test(value=value, name=name):
                headers = [header for header in to_delayed(OUTGOING, NOW, PLACE).headers if header[0] != name]
                if value is not None:
                    headers.append((name, value))
                record = lying(OUTGOING._replace(headers=headers))
                if name == "oms_d_topic" and value in (b"-1", b"9" * 20):
                    assert waiting_of(record) == Waiting(Part(value.decode(), 3), NOW)
                else:
                    assert waiting_of(record) is None
