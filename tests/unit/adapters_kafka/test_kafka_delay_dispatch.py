"""What becomes of delayed records that are awake, also where some cannot be written."""

import logging

import pytest

from adapters.kafka.consume.settled_ranges import SPAN_MAX
from adapters.kafka.delay import dispatch, schedule
from adapters.kafka.delay.dispatch import FIRST_PAUSE, SHORT_PAUSE, TOPIC_IN_FLIGHT_MAX, Dispatch, Move
from adapters.kafka.delay.schedule import LEVELS, PendingDelays, first_place, to_delayed, waiting_of
from adapters.kafka.errors import RecordRefused
from adapters.kafka.mapping import Commit, Outgoing, Part, Record
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, BodyTooLarge, BridgeError, DestinationUnknown, Refused

NOW = 1_700_000_000_000
EIGHT = next(level for level in LEVELS if level.name == "8s")
HERE = Part("oms.delay.8s", 1)
DENIED = Refused("orders: no permission.")


class Bench:
    """A dispatch with one partition of a level, and topics that have as many partitions as the test says."""

    def __init__(self, topics: dict[str, int], *, strict_delay: bool = False) -> None:
        options = Options(servers=("nowhere",), hold=1_000, strict_delay=strict_delay)
        self.topics = {f"oms.delay.{level.name}": 4 for level in LEVELS} | topics
        self.pending = PendingDelays(options.forwarded_early)
        self.here = self.pending.hold(HERE, EIGHT, Commit(0, ""))
        self.purged: set[tuple[str, int]] = set()
        """Topic, and offset where a record was stored first."""
        self.dispatch = Dispatch(options, self.pending, self.topics.get, self._is_purged)
        self._offset = 0

    def lay(self, topic: str, due: int = NOW, partition: int = 0, expire: int | None = None) -> None:
        headers = [] if expire is None else [("oms_h_expireTime", b"%d" % expire)]
        self.lay_raw(to_delayed(Outgoing(topic, partition, NOW, b"k", b"", headers), due, HERE))

    def lay_raw(self, outgoing: Outgoing, offset: int | None = None, appended: int = NOW - 8_000) -> None:
        self._offset = self._offset if offset is None else offset
        record = Record(*HERE, self._offset, appended, outgoing.key, outgoing.value, outgoing.headers)
        self._offset += 1
        self.pending.add(record, waiting_of(record), NOW)

    def _is_purged(self, topic: str, record: Record) -> bool:
        return (topic, first_place(record)[1]) in self.purged

    def moves(self, now: int = NOW) -> list[Move]:
        return self.dispatch.moves(now)[0]

    def topics_at(self, now: int = NOW) -> list[str]:
        return [move.outgoing.topic for move in self.moves(now)]

    def forward(self, now: int = NOW) -> list[int]:
        """Let everything that can be sent be stored and committed; returns the offsets that it leaves."""
        offsets = []
        while moves := self.moves(now):
            for move in moves:
                assert self.dispatch.stored(move)
                self.dispatch.finished(move)
                offsets.append(move.pending.record.offset)
        return offsets

    @property
    def commit(self) -> Commit | None:
        return self.here.progress.commit()


def test_to_the_next_level_or_to_the_destination() -> None:
    bench = Bench({"orders": 3})
    for due in NOW + 70_000, NOW + 9_500, NOW + 1_001, NOW + 1_000, NOW - 5:
        bench.lay("orders", due, partition=2)
    moves = bench.moves()
    assert {(move.outgoing.topic, move.outgoing.partition, move.pending.record.offset) for move in moves} == {
        *(("orders", 2, 4), ("orders", 2, 3)),
        *(("oms.delay.due", 1, 2), ("oms.delay.8s", 1, 1), ("oms.delay.64s", 1, 0)),
    }
    assert {move.outgoing.timestamp for move in moves} == {NOW}
    assert [move.pending.record.offset for move in moves if move.outgoing.topic == "orders"] == [4, 3], (
        "the first due first"
    )
    for move in moves:
        assert bench.dispatch.stored(move)
    assert bench.commit == Commit(5, "")
    assert (bench.dispatch.moved, len(bench.pending)) == (5, 0)


def test_strict_goes_no_earlier_than_due() -> None:
    bench = Bench({"orders": 1}, strict_delay=True)
    bench.lay("orders", NOW + 1)
    bench.lay("orders", NOW)
    assert sorted(bench.topics_at()) == ["oms.delay.due", "orders"]


def test_expired_and_foreign_ones_are_settled_and_not_written() -> None:
    bench = Bench({"orders": 1})
    bench.lay("orders", expire=NOW)
    bench.lay("orders", expire=NOW + 1)
    bench.lay_raw(Outgoing("whatever", 0, NOW, None, b"of somebody else", []))
    moves, dropped = bench.dispatch.moves(NOW)
    assert [move.pending.record.offset for move in moves] == [1]
    assert (dropped, bench.dispatch.dropped, len(bench.pending)) == ({HERE}, 2, 1)
    bench.dispatch.stored(moves[0])
    assert bench.commit == Commit(3, "")


def test_a_topic_whose_partitions_are_not_known_yet_waits_and_holds_up_no_other() -> None:
    bench = Bench({"orders": 1})
    for topic in "new", "orders", "new":
        bench.lay(topic)
    assert bench.topics_at() == ["orders"]
    bench.topics["new"] = 1
    assert bench.topics_at() == ["new", "new"]


def test_so_many_of_a_topic_and_of_all_are_in_flight_until_they_are_committed() -> None:
    """So many a kill may double."""
    bench = Bench({f"t{number}": 1 for number in range(9)})
    for _ in range(TOPIC_IN_FLIGHT_MAX + 1):
        for number in range(9):
            bench.lay(f"t{number}")
    first, *others = moves = bench.moves()
    assert len(moves) == dispatch.IN_FLIGHT_MAX
    assert {move.outgoing.topic for move in moves} == {f"t{number}" for number in range(4)}
    bench.dispatch.stored(first)
    assert not bench.moves(), "it is not committed yet"
    bench.dispatch.finished(first)
    assert bench.topics_at() == ["t4"], "in turn"
    for move in others:
        bench.dispatch.stored(move)
        bench.dispatch.finished(move)
    assert len(bench.forward()) == 9 * (TOPIC_IN_FLIGHT_MAX + 1) - dispatch.IN_FLIGHT_MAX - 1


@pytest.mark.parametrize(("error", "pause"), [(DENIED, FIRST_PAUSE), (BackendUnavailable(""), SHORT_PAUSE)])
def test_a_topic_that_fails_is_tried_later_with_one_record_and_holds_up_no_other(
    error: BackendUnavailable | Refused, pause: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench({"orders": 1, "payments": 1})
    for topic in ["orders", "payments"] * 3:
        bench.lay(topic)
    with caplog.at_level(logging.INFO, "bridge.kafka"):
        for move in bench.moves():
            if move.outgoing.topic == "orders":
                bench.dispatch.failed(move, error, NOW)
            else:
                bench.dispatch.stored(move)
        assert bench.dispatch.refused == (pause == FIRST_PAUSE)
        bench.lay("orders")
        bench.lay("payments")
        assert bench.topics_at() == ["payments"]
        assert bench.topics_at(NOW + pause - 1) == []
        [first] = bench.moves(NOW + pause)
        assert (first.outgoing.topic, first.pending.record.offset) == ("orders", 0)
        bench.dispatch.stored(first)
        bench.dispatch.finished(first)
        assert bench.forward(NOW + pause) == [2, 4, 6], "in their order"
    said = [record.getMessage() for record in caplog.records]
    assert said == (
        [
            "Messages for orders cannot be forwarded now; the bridge retries. orders: no permission.",
            "Delayed messages are forwarded to orders again.",
        ]
        if error is DENIED
        else []
    )
    assert bench.dispatch.refused == 0


def test_a_topic_that_cannot_be_found_is_refused() -> None:
    bench = Bench({})
    bench.lay("gone")
    assert bench.moves() == []
    bench.dispatch.unusable("gone", DestinationUnknown("gone: there is no such topic."), NOW)
    bench.topics["gone"] = 1
    assert bench.moves() == []
    assert bench.dispatch.refused == 1
    assert bench.forward(NOW + FIRST_PAUSE) == [0]


@pytest.mark.parametrize("kind", [BodyTooLarge, RecordRefused])
def test_a_record_that_is_refused_holds_up_no_other(kind: type[BridgeError], caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench({"orders": 1})
    bench.lay("orders")
    bench.lay("orders", partition=1)
    bench.lay("orders")
    with caplog.at_level(logging.WARNING, "bridge.kafka"):
        for move in bench.moves():  # of a batch every record is refused
            bench.dispatch.failed(move, kind("orders: too large."), NOW)
        [large] = bench.moves(now := NOW + SHORT_PAUSE)
        bench.dispatch.failed(large, kind("orders: too large."), now)
    assert bench.dispatch.refused == 2
    assert bench.forward(now) == [2]
    assert [record.getMessage() for record in caplog.records] == [
        "A message for orders cannot be forwarded now; the bridge retries. It has no partition 1.",
        "A message for orders cannot be forwarded now; the bridge retries. orders: too large.",
    ]
    bench.lay("orders")
    assert bench.forward(now) == [3]
    bench.topics["orders"] = 2
    assert sorted(bench.forward(now + FIRST_PAUSE)) == [0, 1]
    assert (bench.dispatch.refused, bench.commit) == (0, Commit(4, ""))


def test_a_crowd_that_cannot_be_written_goes_to_a_delay_topic_again_and_out_of_the_way() -> None:
    bench = Bench({"orders": 1})
    crowd = schedule.RECORDS_MAX // 2 + 10
    for _ in range(crowd):
        bench.lay("orders")
    for move in bench.moves():
        bench.dispatch.failed(move, DENIED, NOW)
    away = bench.moves()
    assert {(move.outgoing.topic, move.outgoing.partition) for move in away} == {("oms.delay.8s", 1)}
    assert {dict(move.outgoing.headers)["oms_d_again"] for move in away} == {b"%d" % (NOW + 10_000)}
    for move in away:
        bench.dispatch.stored(move)
        bench.dispatch.finished(move)
    assert len(bench.forward()) + len(away) == 10, "only those too many"


def test_one_that_is_far_behind_goes_to_a_delay_topic_again() -> None:
    bench = Bench({"orders": 1})
    bench.lay("orders")
    bench.lay_raw(to_delayed(Outgoing("orders", 0, NOW, b"k", b"", []), NOW + 60_000, HERE), SPAN_MAX)
    first = next(move for move in bench.moves() if move.outgoing.topic == "orders")
    bench.dispatch.failed(first, DENIED, NOW)
    assert bench.topics_at() == ["oms.delay.8s"]


def test_a_delay_topic_that_fails_keeps_the_record_in_memory() -> None:
    bench = Bench({"orders": 1})
    for _ in range(schedule.RECORDS_MAX):
        bench.lay("orders", NOW + 60_000)
    for move in bench.moves():
        bench.dispatch.failed(move, BackendUnavailable(""), NOW)
    assert bench.moves() == []
    assert len(bench.pending) == schedule.RECORDS_MAX


def test_what_is_under_way_when_its_partition_goes_is_forgotten() -> None:
    bench = Bench({"orders": 1})
    for _ in range(TOPIC_IN_FLIGHT_MAX + 3):
        bench.lay("orders")
    one, other, *rest = bench.moves()
    bench.pending.drop(HERE)
    assert not bench.dispatch.stored(one)
    bench.dispatch.failed(other, DENIED, NOW)
    for move in rest:
        bench.dispatch.failed(move, BackendUnavailable(""), NOW)
    assert bench.moves(NOW + 60_000) == []
    again = bench.pending.hold(HERE, EIGHT, None)
    assert bench.pending.wanted(again, NOW)
    assert bench.commit == Commit(0, "")


def test_after_the_clock_was_set_back_nothing_waits_for_the_time_of_before() -> None:
    bench = Bench({"orders": 1})
    bench.lay("orders", NOW)
    [move] = bench.moves()
    bench.dispatch.failed(move, DENIED, NOW)
    early = NOW - 3_600_000
    bench.dispatch.clock_set_back(early)
    assert bench.topics_at(early + 8_000) == ["oms.delay.512s"]


def test_what_was_purged_is_dropped_also_where_the_topic_is_gone() -> None:
    bench = Bench({"orders": 1, "other": 1})
    for topic in ("gone", "orders", "orders", "other"):
        bench.lay(topic)
    bench.purged = {("gone", 0), ("orders", 2), ("other", 1)}
    assert [move.pending.record.offset for move in bench.moves()] == [1, 3]
    assert bench.dispatch.dropped == 2
    assert len(bench.pending) == 2, "those that are sent are open until they are stored"


def test_what_was_purged_while_it_waits_for_its_topic_is_dropped() -> None:
    bench = Bench({})
    bench.lay("orders")
    assert bench.moves() == []
    bench.purged = {("orders", 0)}
    assert bench.moves() == []
    assert (bench.dispatch.dropped, len(bench.pending)) == (1, 0)
