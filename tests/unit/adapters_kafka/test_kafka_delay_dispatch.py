"""What becomes of records that are awake, also where some cannot be written."""

import logging

import pytest
from kafka import errors as kafka

from adapters.kafka.delay.dispatch import Dispatch
from adapters.kafka.delay.holding import Holding, Shelf
from adapters.kafka.delay.moving import MoveFailed
from adapters.kafka.delay.schedule import LEVELS
from adapters.kafka.delay.trouble import FIRST_PAUSE
from adapters.kafka.delay.waiting import to_delayed, waiting_of
from adapters.kafka.options import Options
from adapters.kafka.progress import SPAN_MAX
from adapters.kafka.record import Commit, Outgoing, Part, Record
from bridge.errors import DestinationUnknown

NOW = 1_700_000_000_000
EIGHT = next(level for level in LEVELS if level.name == "8s")
HERE = Part("oms.delay.8s", 1)


class Bench:
    """A dispatch with one partition of a level, and topics that are what the test says."""

    def __init__(self, *, strict_delay: bool = False) -> None:
        options = Options(servers=("nowhere",), hold=1_000, strict_delay=strict_delay)
        self.topics: dict[str, int] = {}
        self.asked: list[tuple[str, bool]] = []
        self.holding = Holding(0)
        self.shelf = Shelf(HERE, EIGHT, Commit(0, ""))
        self.holding.put(self.shelf)
        self.dispatch = Dispatch(options, self.holding, self._partitions)
        self._offset = 0

    def read_anew(self, committed: Commit) -> None:
        self.shelf, self._offset = Shelf(HERE, EIGHT, committed), committed.offset
        self.holding.put(self.shelf)

    def lay(self, topic: str, due: int, partition: int = 0, expire: int | None = None) -> None:
        headers = [] if expire is None else [("oms_h_expireTime", b"%d" % expire)]
        self.lay_raw(to_delayed(Outgoing(topic, partition, NOW, b"k", b"", headers), due, HERE))

    def lay_raw(self, outgoing: Outgoing) -> None:
        record = Record(*HERE, self._offset, NOW - 8_000, outgoing.key, outgoing.value, outgoing.headers)
        self._offset += 1
        self.holding.add(record, waiting_of(record))

    def batches(self, now: int = NOW) -> list[tuple[list[str], int]]:
        """Return where each batch goes, and how many it settles."""
        return [([record.topic for record in each.records], len(each.held)) for each in self.dispatch.batches(now)]

    def fail(self, reason: BaseException, now: int = NOW) -> None:
        [batch, *_] = self.dispatch.batches(now)
        self.dispatch.failed(MoveFailed(reason), batch)
        self.dispatch.blame(now)

    def _partitions(self, topic: str, anew: bool) -> frozenset[int]:
        self.asked.append((topic, anew))
        if topic not in self.topics and not topic.startswith("oms.delay"):
            raise DestinationUnknown(f"{topic}: there is no such topic.")
        return frozenset(range(self.topics.get(topic, 4)))


def test_to_the_next_level_or_to_the_destination() -> None:
    bench = Bench()
    bench.topics = {"orders": 3}
    for due in NOW + 70_000, NOW + 9_000, NOW + 1_001, NOW + 1_000, NOW - 5:
        bench.lay("orders", due, partition=2)
    [batch] = bench.dispatch.batches(NOW)
    gone = [(record.topic, record.partition) for record in batch.records]
    assert gone == [
        *(("orders", 2), ("orders", 2)),
        *(("oms.delay.due", 1), ("oms.delay.8s", 1), ("oms.delay.64s", 1)),
    ]
    assert {record.timestamp for record in batch.records} == {NOW}
    assert batch.commits() == {HERE: Commit(5, "")}


def test_strict_goes_no_earlier_than_due() -> None:
    bench = Bench(strict_delay=True)
    bench.topics = {"orders": 1}
    bench.lay("orders", NOW + 1)
    bench.lay("orders", NOW)
    assert bench.batches() == [(["orders", "oms.delay.due"], 2)]


def test_expired_and_foreign_ones_are_settled_and_not_written() -> None:
    bench = Bench()
    bench.topics = {"orders": 1}
    bench.lay("orders", NOW, expire=NOW)
    bench.lay("orders", NOW, expire=NOW + 1)
    bench.lay_raw(Outgoing("whatever", 0, NOW, None, b"of somebody else", []))
    assert bench.batches() == [(["orders"], 3)]


def test_a_topic_that_is_not_there_waits_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.topics = {"orders": 1}
    for topic in "gone", "orders", "gone":
        bench.lay(topic, NOW)
    with caplog.at_level(logging.WARNING, "bridge.kafka"):
        assert bench.batches() == [(["orders"], 1)]
    assert [record.getMessage() for record in caplog.records] == [
        "Messages for gone cannot be forwarded for now; this is tried again. gone: there is no such topic."
    ]
    assert bench.shelf.read_again == NOW + FIRST_PAUSE
    assert bench.asked == [("gone", False), ("orders", False)]


def test_a_partition_that_is_not_there_concerns_its_record_only() -> None:
    bench = Bench()
    bench.topics = {"orders": 1}
    bench.lay("orders", NOW, partition=1)
    bench.lay("orders", NOW, partition=0)
    assert bench.batches() == [(["orders"], 1)]
    assert bench.dispatch.put_off == 1


def test_a_topic_without_permission_is_named_by_the_brokers() -> None:
    bench = Bench()
    bench.topics = {"orders": 1, "secret": 1}
    for _ in range(3):
        bench.lay("secret", NOW)
        bench.lay("orders", NOW)
    bench.fail(kafka.TopicAuthorizationFailedError({"secret"}))
    for _ in range(2):
        bench.lay("secret", NOW)
        bench.lay("orders", NOW)
    assert bench.batches() == [(["orders"] * 2, 2)]
    assert ("orders", True) in bench.asked, "what was known is asked again"


def test_after_an_unclear_failure_each_topic_is_tried_by_itself_and_the_one_that_fails_waits() -> None:
    bench = Bench()
    bench.topics = {"orders": 1, "sick": 1}
    for topic in "sick", "orders":
        bench.lay(topic, NOW)
    bench.fail(kafka.KafkaTimeoutError())
    for topic in "sick", "orders":
        bench.lay(topic, NOW)
    first, _ = bench.dispatch.batches(NOW)
    assert first.topics == {"sick"}
    bench.dispatch.failed(MoveFailed(kafka.KafkaTimeoutError()), first)
    bench.dispatch.blame(NOW)
    for topic in "sick", "orders":
        bench.lay(topic, NOW)
    [other] = bench.dispatch.batches(NOW)
    assert other.topics == {"orders"}
    bench.dispatch.succeeded(other, NOW)
    for topic in "sick", "orders":
        bench.lay(topic, NOW + FIRST_PAUSE)
    assert bench.batches(NOW + FIRST_PAUSE) == [(["orders"], 1), (["sick"], 1)]


def test_a_record_that_is_refused_is_found_among_many() -> None:
    bench = Bench()
    bench.topics = {"orders": 1}
    committed, sizes, moved = Commit(0, ""), list[int](), list[int]()
    for _ in range(30):
        bench.read_anew(committed)  # as after each failure
        for _ in range(committed.offset, 16):
            bench.lay("orders", NOW)
        for batch in bench.dispatch.batches(NOW):
            offsets = [held.record.offset for held in batch.held]
            sizes.append(len(offsets))
            if 13 in offsets:
                bench.dispatch.failed(MoveFailed(kafka.MessageSizeTooLargeError()), batch)
                bench.dispatch.blame(NOW)
            else:
                bench.dispatch.succeeded(batch, NOW)
                committed = batch.commits()[HERE]
                moved += offsets
        if bench.dispatch.put_off:
            break
    assert moved == list(range(13))
    assert (sizes[0], sizes[-1]) == (16, 1)
    bench.read_anew(committed)
    for _ in range(committed.offset, 16):
        bench.lay("orders", NOW)
    assert [len(batch.held) for batch in bench.dispatch.batches(NOW)] == [1], "with care, but past the one"


@pytest.mark.parametrize("reason", [kafka.CommitFailedError(), kafka.ProducerFencedError()])
def test_nobody_is_blamed_for_what_is_between_bridges(reason: BaseException) -> None:
    bench = Bench()
    bench.topics = {"orders": 1}
    bench.lay("orders", NOW)
    bench.fail(reason)
    assert bench.dispatch.put_off == 0
    bench.lay("orders", NOW)
    assert bench.batches() == [(["orders"], 1)]


def test_an_open_record_far_behind_goes_to_the_end_of_where_it_lies() -> None:
    bench = Bench()
    bench.lay("gone", NOW)
    bench.shelf.reached = SPAN_MAX
    [batch] = bench.dispatch.batches(NOW)
    [record] = batch.records
    assert (record.topic, record.partition, record.timestamp) == (*HERE, NOW - 8_000)
    assert batch.commits() == {HERE: Commit(1, "")}
