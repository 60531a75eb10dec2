"""The window against a naive model: lists and linear searches, written from the sentences of the semantics alone."""

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.base import Delivery
from bridge.engine.window import Entry, Window
from bridge.errors import LeaseEnded
from bridge.message import Message

START: Final = 1_700_000_000_000
MAX_DELIVERIES: Final = 3


def delivery(position: int, attempts: int = 0, partition: int = 0, **fields: object) -> Delivery:
    message = Message("orders", born_timestamp=START)._replace(**fields)  # type: ignore[arg-type]
    return Delivery(message, partition, position, attempts)


class Life:
    """Keeps leases alive, and knows which."""

    def __init__(self) -> None:
        self.renewal = 0
        self.held: set[int] = set()

    def ended(self, entry: Entry) -> None:
        self.held.remove(entry.number)


@dataclass
class Record:
    """One message, as the model sees it."""

    delivery: Delivery
    attempts: int
    place: str = "delayed"
    joined: int = 0
    """When it took its place behind its key."""
    number: int = -1
    deadline: int = 0
    settling: bool = False
    entry: Entry | None = None
    keeper: Life | None = None
    revoked_leaving: bool = False
    """Whether it was revoked while it was leaving."""

    @property
    def priority(self) -> int:
        asked = self.delivery.message.priority
        return asked if asked is not None and 1 <= asked <= 10 else 5

    @property
    def lane(self) -> tuple[int, str] | None:
        key = self.delivery.message.message_key
        return None if key is None else (self.delivery.partition, key)


class WindowMachine(RuleBasedStateMachine):
    """Every operation on both; after each one they must agree on everything."""

    def __init__(self) -> None:
        super().__init__()
        self.mono, self.wall = 1000, START
        self.records: list[Record] = []
        self.acknowledged: set[int] = set()
        self.cut_short: list[int] = []
        """Leases that were revoked while their acknowledgement was being recorded."""
        self.numbers: list[int] = []
        self.position = self.joins = 0
        self.keepers = (Life(), Life())

    @initialize(limit=st.sampled_from((None, 1, MAX_DELIVERIES)))
    def begin(self, limit: int | None) -> None:
        self.limit = limit
        self.window = Window(limit)

    # The model.

    def open(self, *places: str) -> list[Record]:
        return [r for r in self.records if r.place != "gone" and (not places or r.place in places)]

    def join(self, record: Record) -> None:
        self.joins += 1
        record.place, record.joined = "here", self.joins

    def is_head(self, record: Record) -> bool:
        """The next message of a key waits until the one before it is settled."""
        if record.lane is None:
            return True
        behind = [r for r in self.open() if r.lane == record.lane and r.place != "delayed"]
        return min(behind, key=lambda r: r.joined) is record

    def ready(self) -> list[Record]:
        found = [r for r in self.open("here") if self.is_head(r) and not self.is_worn_out(r)]
        return sorted(found, key=lambda r: (-r.priority, r.delivery.position))

    def is_worn_out(self, record: Record) -> bool:
        return self.limit is not None and record.attempts >= self.limit

    def dead(self) -> list[Record]:
        return [r for r in self.open("here") if self.is_head(r) and self.is_worn_out(r)]

    def leased(self) -> list[Record]:
        return [r for r in self.open("leased") if r.deadline > self.mono or r.settling or self.renewal(r)]

    @staticmethod
    def renewal(record: Record) -> int:
        return record.keeper.renewal if record.keeper is not None and record.place == "leased" else 0

    def pass_time(self) -> None:
        for record in self.open("leased", "paused"):
            if record.deadline <= self.mono and not record.settling:
                if renewal := self.renewal(record):
                    record.deadline = self.mono + renewal
                else:
                    record.place = "here"
        due = [r for r in self.open("delayed") if r.delivery.message.due <= self.wall]
        for record in sorted(due, key=lambda r: (r.delivery.message.due, r.delivery.position)):
            self.join(record)
        self.window.advance(self.mono, self.wall)

    # The rules.

    @rule(
        given=st.lists(
            st.tuples(
                st.sampled_from((None, "a", "b", "")),
                st.integers(0, 1),
                st.sampled_from((None, 0, 1, 5, 9, 10, 99)),
                st.sampled_from((None, 0, 1, 700, 5000)),
                st.sampled_from((None, 0, START, START + 1, START + 900, START + 60_000)),
                st.integers(0, 2),
                st.binary(max_size=3),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def offer(self, given: list[tuple[str | None, int, int | None, int | None, int | None, int, bytes]]) -> None:
        deliveries = []
        for key, partition, priority, delay, expires, attempts, body in given:
            self.position += 1
            message = Message(
                "orders",
                body,
                born_timestamp=START,
                message_key=key,
                priority=priority,
                delay_time=delay,
                expire_time=expires,
            )
            record = Record(Delivery(message, partition, self.position, attempts), attempts)
            self.records.append(record)
            deliveries.append(record.delivery)
            if not delay or START + delay <= self.wall:
                self.join(record)
        self.window.offer(deliveries, self.wall)

    @rule(duration=st.sampled_from((1, 500, 30_000)), kept_by=st.sampled_from((None, 0, 1)))
    def lease(self, duration: int, kept_by: int | None) -> None:
        keeper = None if kept_by is None else self.keepers[kept_by]
        expired = []
        best = None
        while best is None and (ready := self.ready()):
            first = ready[0]
            message = first.delivery.message
            if message.expires is not None and message.expires <= self.wall:
                first.place = "gone"
                expired.append(first.delivery)
            else:
                best = first
        entry = self.window.lease(self.mono, self.wall, duration, keeper)
        assert self.window.expired == expired
        self.window.expired = []
        if best is None:
            assert entry is None
            return
        assert entry is not None
        assert entry.delivery is best.delivery
        best.place, best.entry, best.number = "leased", entry, entry.number
        best.attempts += 1
        best.deadline = self.mono + duration
        assert entry.number not in self.numbers, "a lease's number is never used twice"
        self.numbers.append(entry.number)
        best.keeper = keeper
        if keeper is not None:
            keeper.held.add(entry.number)

    @rule(which=st.integers(0, 1), renewal=st.sampled_from((0, 1, 500, 30_000)))
    def let_a_keeper_live_or_die(self, which: int, renewal: int) -> None:
        self.keepers[which].renewal = renewal

    @precondition(lambda self: self.leased())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.leased()))
        entry = self.window.find(record.number, self.mono)
        assert entry is not None
        assert entry is record.entry
        self.window.finish(entry)
        self.window.finish(entry)
        record.place = "gone"
        self.acknowledged.add(record.number)

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data(), delay=st.sampled_from((0, 0, 1, 2000)))
    def release(self, data: st.DataObject, delay: int) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.window.release(record.entry, self.mono, delay)
        record.place, record.deadline = ("paused", self.mono + delay) if delay else ("here", 0)

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data())
    def send_off(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.window.send_off(record.entry)
        record.place = "leaving"

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.window.undo(record.entry, self.mono, 0)
        record.place = "here"
        record.attempts -= 1

    @precondition(lambda self: self.leased())
    @rule(data=st.data(), duration=st.sampled_from((1, 700, 60_000)))
    def extend(self, data: st.DataObject, duration: int) -> None:
        record = data.draw(st.sampled_from(self.leased()))
        assert record.entry is not None
        record.deadline = self.mono + duration
        self.window.extend(record.entry, record.deadline)

    @precondition(lambda self: self.leased())
    @rule(data=st.data())
    def begin_settling(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.leased()))
        assert record.entry is not None
        record.settling = record.entry.settling = True

    @precondition(lambda self: any(r.settling for r in self.open("leased")))
    @rule(data=st.data())
    def abort_settling(self, data: st.DataObject) -> None:
        """A lease that should have ended meanwhile ends within a second."""
        record = data.draw(st.sampled_from([r for r in self.open("leased") if r.settling]))
        assert record.entry is not None
        record.settling = record.entry.settling = False
        self.mono += 1000
        self.pass_time()

    @rule(step=st.sampled_from((1, 499, 1000, 40_000)))
    def let_mono_pass(self, step: int) -> None:
        self.mono += step
        self.pass_time()

    @rule(step=st.sampled_from((1, 699, 6000, -2000)))
    def set_the_wall_clock(self, step: int) -> None:
        self.wall += step
        self.pass_time()

    @precondition(lambda self: self.window.dead)
    @rule()
    def bury(self) -> None:
        entry = self.window.bury()
        (record,) = [r for r in self.dead() if r.delivery is entry.delivery]
        record.place, record.entry = "leaving", entry

    @precondition(lambda self: any(r.place == "leaving" or r.revoked_leaving for r in self.records))
    @rule(data=st.data(), gone=st.booleans())
    def end_a_departure(self, data: st.DataObject, gone: bool) -> None:
        record = data.draw(st.sampled_from([r for r in self.records if r.place == "leaving" or r.revoked_leaving]))
        assert record.entry is not None
        if gone:
            self.window.left(record.entry)
        else:
            self.window.stays(record.entry, self.mono + 5000)
        if record.revoked_leaving:
            record.revoked_leaving = False
        elif gone:
            record.place = "gone"
        else:
            record.place, record.deadline, record.settling = "paused", self.mono + 5000, False

    @rule(partitions=st.sets(st.integers(0, 2)))
    def revoke(self, partitions: set[int]) -> None:
        """Another bridge has them from now on; they may come back, by `offer`."""
        gone = [r for r in self.open() if r.delivery.partition in partitions]
        expected = [
            r.delivery._replace(attempts=r.attempts - (r.place == "leased"))
            for r in gone
            if not (r.place == "leased" and r.settling)
        ]
        for record in gone:
            if record.place == "leased":
                if record.settling:
                    self.cut_short.append(record.number)
                if record.keeper is not None:
                    assert record.number in record.keeper.held
            record.revoked_leaving = record.place == "leaving"
            record.place = "gone"
        assert self.window.revoke(partitions) == expected

    @precondition(lambda self: self.cut_short)
    @rule(data=st.data())
    def record_an_acknowledgement_late(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.cut_short))
        assert self.window.acknowledged(number) is (number not in self.acknowledged)
        self.acknowledged.add(number)

    @precondition(lambda self: self.records and not self.open("leaving"))
    @rule()
    def surrender(self) -> None:
        expected = [
            r.delivery._replace(attempts=r.attempts - (r.place == "leased"))
            for r in self.open()
            if not (r.place == "leased" and r.settling)
        ]
        assert self.window.surrender() == expected
        for record in self.open():
            if record.keeper is not None and record.place == "leased" and record.settling:
                record.keeper.held.remove(record.number)  # whoever settles it finds it gone
            record.place = "gone"

    # What must hold after every step.

    @invariant()
    def the_sums_are_exact(self) -> None:
        assert self.window.size == len(self.open())
        assert self.window.bytes == sum(len(r.delivery.message.body) for r in self.open())
        assert self.window.ready == len(self.ready())
        assert self.window.paused == len(self.open("paused"))

    @invariant()
    def everything_is_in_exactly_one_place(self) -> None:
        window = self.window
        queued = [e for queue in window._lanes.values() if queue for e in queue]
        places = {
            "delayed": [e for _, _, e in window._due],
            "ready": [e for _, _, e in window._ready],
            "queued": queued,
            "leased": list(window.leases.values()),
            "paused": list(window._paused.values()),
            "dead": window.dead,
            "leaving": list(window._leaving),
        }
        expected = {
            "delayed": self.open("delayed"),
            "ready": self.ready(),
            "queued": [r for r in self.open("here") if not self.is_head(r)],
            "leased": self.open("leased"),
            "paused": self.open("paused"),
            "dead": self.dead(),
            "leaving": self.open("leaving"),
        }
        for place, entries in places.items():
            there = sorted((e.delivery.position, e.attempts) for e in entries)
            assert there == sorted((r.delivery.position, r.attempts) for r in expected[place]), place

    @invariant()
    def no_key_is_out_twice(self) -> None:
        out = [e.lane for e in self.window.leases.values() if e.lane is not None]
        assert len(out) == len(set(out))

    @invariant()
    def an_idle_key_costs_nothing(self) -> None:
        assert set(self.window._lanes) == {r.lane for r in self.open() if r.place != "delayed"} - {None}

    @invariant()
    def a_number_is_live_or_acknowledged_or_ended(self) -> None:
        live = {r.number: r.entry for r in self.leased()}
        for number in [*self.numbers, -1, 10**9]:
            if number in live:
                assert self.window.find(number, self.mono) is live[number]
            elif number in self.acknowledged:
                assert self.window.find(number, self.mono) is None
            else:
                with pytest.raises(LeaseEnded):
                    self.window.find(number, self.mono)

    @invariant()
    def a_keeper_is_told_of_each_end_and_of_nothing_else(self) -> None:
        for keeper in self.keepers:
            assert keeper.held == {r.number for r in self.open("leased") if r.keeper is keeper}

    @invariant()
    def leases_end_when_they_should(self) -> None:
        for record in self.open("leased"):
            assert record.entry is not None
            assert record.entry.deadline == record.deadline

    @invariant()
    def the_driver_is_woken_in_time(self) -> None:
        mono_at, wall_at = self.window.next_events()
        ends = [r.deadline for r in self.open("leased", "paused") if not r.settling]
        assert not ends or (mono_at is not None and mono_at <= min(ends))
        assert wall_at == min((r.delivery.message.due for r in self.open("delayed")), default=None)

    @invariant()
    def timers_are_bounded(self) -> None:
        assert len(self.window._timers) <= 2 * len(self.open("leased", "paused")) + 1027


TestWindowAgreesWithItsModel = WindowMachine.TestCase
TestWindowAgreesWithItsModel.settings = settings(max_examples=100, stateful_step_count=40)


# The sentences of the semantics, one by one.


def test_a_message_with_a_delay_is_never_delivered_early() -> None:
    window = Window(None)
    window.offer([delivery(1, delay_time=100)], START)
    window.advance(0, START + 99)
    assert window.lease(0, START + 99, 10) is None
    assert window.next_events() == (None, START + 100)
    window.advance(0, START + 100)
    assert window.lease(0, START + 100, 10) is not None


def test_a_message_already_due_goes_at_once() -> None:
    window = Window(None)
    window.offer([delivery(1, delay_time=100)], START + 100)
    assert window.lease(0, START + 100, 10) is not None


def test_a_producer_s_fast_clock_alone_holds_nothing_back() -> None:
    window = Window(None)
    window.offer([delivery(1, born_timestamp=START + 60_000)], START)
    assert window.lease(0, START, 10) is not None


def test_nothing_is_handed_out_after_expire_time_also_not_as_a_redelivery() -> None:
    window = Window(None)
    window.offer([delivery(1, expire_time=START + 50)], START)
    entry = window.lease(0, START + 49, 10)
    assert entry is not None
    window.release(entry, 0, 0)
    assert window.lease(0, START + 50, 10) is None
    assert [d.position for d in window.expired] == [1]
    assert window.size == 0


@pytest.mark.parametrize("expire_time", [0, START - 1, START])
def test_expire_time_up_to_born_timestamp_means_never(expire_time: int) -> None:
    window = Window(None)
    window.offer([delivery(1, expire_time=expire_time)], START + 10**9)
    assert window.lease(0, START + 10**9, 10) is not None


def test_an_expired_head_lets_the_next_of_its_key_come_forward() -> None:
    window = Window(None)
    window.offer([delivery(1, message_key="a", expire_time=START + 1), delivery(2, message_key="a")], START)
    entry = window.lease(0, START + 1, 10)
    assert entry is not None
    assert entry.delivery.position == 2


def test_key_order_beats_priority() -> None:
    window = Window(None)
    window.offer([delivery(1, message_key="a", priority=1), delivery(2, message_key="a", priority=10)], START)
    first = window.lease(0, START, 10)
    assert first is not None
    assert first.delivery.position == 1
    assert window.lease(0, START, 10) is None
    window.finish(first)
    second = window.lease(0, START, 10)
    assert second is not None
    assert second.delivery.position == 2


def test_the_next_of_a_key_waits_also_while_the_one_before_it_pauses() -> None:
    window = Window(None)
    window.offer([delivery(1, message_key="a"), delivery(2, message_key="a"), delivery(3, message_key="b")], START)
    first = window.lease(0, START, 1000)
    assert first is not None
    window.release(first, 0, 500)
    other = window.lease(0, START, 1000)
    assert other is not None
    assert other.delivery.position == 3
    assert window.lease(0, START, 1000) is None
    window.advance(500, START)
    again = window.lease(500, START, 1000)
    assert again is first
    assert again.attempts == 2


def test_the_same_key_in_two_partitions_is_two_keys() -> None:
    window = Window(None)
    window.offer([delivery(1, message_key="a"), delivery(1, message_key="a", partition=1)], START)
    assert window.lease(0, START, 10) is not None
    assert window.lease(0, START, 10) is not None


@pytest.mark.parametrize("priority", [None, 0, 5, 11, 255])
def test_a_priority_outside_1_to_10_is_5(priority: int | None) -> None:
    window = Window(None)
    window.offer([delivery(1, priority=4), delivery(2, priority=priority), delivery(3, priority=6)], START)
    order = []
    while (entry := window.lease(0, START, 10)) is not None:
        order.append(entry.delivery.position)
    assert order == [3, 2, 1]


def test_delivery_count_is_1_on_the_first_delivery_and_one_more_on_each() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    for count in range(1, 5):
        entry = window.lease(count * 10, START, 10)
        assert entry is not None
        assert entry.attempts == count
        window.advance(count * 10 + 10, START)
    assert window.leases_ended == 4


def test_after_max_deliveries_a_message_is_dead_and_its_key_waits() -> None:
    window = Window(2)
    window.offer([delivery(1, attempts=1, message_key="a"), delivery(2, message_key="a")], START)
    entry = window.lease(0, START, 10)
    assert entry is not None
    window.release(entry, 0, 0)
    assert window.dead == [entry]
    assert window.lease(0, START, 10) is None
    window.left(window.bury())
    follower = window.lease(0, START, 10)
    assert follower is not None
    assert follower.delivery.position == 2


def test_a_message_that_another_bridge_wore_out_is_dead_on_arrival() -> None:
    window = Window(2)
    window.offer([delivery(1, attempts=2)], START)
    assert window.lease(0, START, 10) is None
    assert [e.delivery.position for e in window.dead] == [1]


def test_a_lease_ends_at_its_deadline_and_not_before() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    entry = window.lease(0, START, 100)
    assert entry is not None
    window.advance(99, START)
    assert window.find(entry.number, 99) is entry
    number = entry.number
    with pytest.raises(LeaseEnded):
        window.find(number, 100)
    window.advance(100, START)
    assert window.ready == 1


def test_an_extended_lease_outlives_its_first_deadline_and_a_shortened_one_does_not() -> None:
    window = Window(None)
    window.offer([delivery(1), delivery(2)], START)
    longer, shorter = window.lease(0, START, 100), window.lease(0, START, 100)
    assert longer is not None
    assert shorter is not None
    window.extend(longer, 300)
    window.extend(shorter, 50)
    window.advance(50, START)
    assert list(window.leases.values()) == [longer]
    window.advance(299, START)
    assert window.leases
    window.advance(300, START)
    assert not window.leases


def test_a_kept_lease_is_renewed_until_its_keeper_dies() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    keeper = Life()
    keeper.renewal = 70
    entry = window.lease(0, START, 100, keeper)
    assert entry is not None
    keeper.held.add(entry.number)
    assert window.find(entry.number, 100) is entry, "nobody has looked at the clock yet"
    window.advance(130, START)
    assert entry.deadline == 200
    keeper.renewal = 0
    window.advance(199, START)
    assert window.find(entry.number, 199) is entry
    window.advance(200, START)
    assert not window.leases
    assert not keeper.held
    assert window.leases_ended == 1


def test_a_lease_has_no_keeper_left_when_it_is_leased_again() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    keeper = Life()
    keeper.renewal = 100
    entry = window.lease(0, START, 100, keeper)
    assert entry is not None
    keeper.held.add(entry.number)
    window.release(entry, 0, 0)
    again = window.lease(0, START, 100)
    assert again is entry
    window.advance(100, START)
    assert not window.leases


def test_a_lease_does_not_end_while_its_acknowledgement_is_recorded() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    entry = window.lease(0, START, 100)
    assert entry is not None
    entry.settling = True
    window.advance(5000, START)
    assert window.find(entry.number, 5000) is entry
    window.finish(entry)
    assert window.find(entry.number, 5000) is None
    assert window.size == 0


def test_a_lease_cut_short_by_the_bridge_is_no_failure_of_its_consumer() -> None:
    window = Window(None)
    window.offer([delivery(1, attempts=4), delivery(2)], START)
    assert window.lease(0, START, 100) is not None
    assert [(d.position, d.attempts) for d in window.surrender()] == [(1, 4), (2, 0)]
    assert window.next_events() == (None, None)


def test_the_dead_and_the_paused_are_given_back_too() -> None:
    window = Window(2)
    window.offer([delivery(1, attempts=2), delivery(2), delivery(3, delay_time=10)], START)
    entry = window.lease(0, START, 100)
    assert entry is not None
    window.release(entry, 0, 500)
    assert [(d.position, d.attempts) for d in window.surrender()] == [(1, 2), (2, 1), (3, 0)]
    assert window.dead == []
    assert (window.size, window.bytes, window.ready, window.paused) == (0, 0, 0, 0)


def keyed(window: Window, *partitions: int) -> None:
    """Offer two messages of one key for each partition."""
    given = [delivery(n, partition=p, message_key="a", body=b"xy") for p in partitions for n in (1, 2)]
    window.offer(given, START)


def test_what_is_revoked_is_forgotten_wherever_it_is() -> None:
    window = Window(2)
    delayed = delivery(10, partition=1, delay_time=10, body=b"xyz")
    worn_out = delivery(11, partition=1, attempts=2)
    window.offer([delayed, worn_out, delivery(12, partition=1), delivery(13, partition=1)], START)
    paused = window.lease(0, START, 100)
    assert paused is not None
    window.release(paused, 0, 500)
    keyed(window, 0, 1)
    held = window.lease(0, START, 100)
    assert held is not None
    gone = window.revoke({1, 7})
    assert [(d.position, d.attempts) for d in gone] == [(10, 0), (11, 2), (12, 1), (13, 0), (1, 0), (2, 0)]
    assert all(d.partition == 1 for d in gone)
    assert (window.size, window.bytes, window.ready, window.paused) == (2, 4, 1, 0)
    assert window.dead == []
    assert window.next_events() == (None, None)


def test_a_revoked_lease_has_ended_and_is_no_failure_of_its_consumer() -> None:
    window = Window(None)
    window.offer([delivery(1, attempts=4), delivery(2, partition=1)], START)
    keeper = Life()
    keeper.renewal = 1000
    cut, other = window.lease(0, START, 100, keeper), window.lease(0, START, 100)
    assert cut is not None
    assert other is not None
    keeper.held.add(cut.number)
    assert window.revoke({0}) == [cut.delivery]
    assert not keeper.held
    with pytest.raises(LeaseEnded):
        window.find(cut.number, 0)
    assert window.find(other.number, 0) is other
    assert window.leases_ended == 0, "it has not run out"
    window.advance(5000, START)
    assert window.size == 1


def test_a_revoked_acknowledgement_is_between_the_backend_and_who_asked() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    entry = window.lease(0, START, 100)
    assert entry is not None
    entry.settling = True
    assert window.revoke({0}) == []
    assert (window.size, window.leases) == (0, {})
    with pytest.raises(LeaseEnded):
        window.find(entry.number, 0)
    assert window.acknowledged(entry.number)
    assert not window.acknowledged(entry.number)
    assert window.find(entry.number, 0) is None, "acknowledging twice is 204"


@pytest.mark.parametrize("written", [False, True])
def test_the_end_of_a_revoked_burial_does_not_touch_the_same_message_that_came_back(written: bool) -> None:
    window = Window(2)
    twins = [delivery(1, attempts=2, message_key="a"), delivery(2, message_key="a")]
    window.offer(twins, START)
    entry = window.bury()
    assert window.revoke({0}) == twins
    assert (window.size, window.bytes) == (0, 0)
    window.offer([twins[0]._replace(attempts=1), twins[1]], START)
    if written:
        window.left(entry)
    else:
        window.stays(entry, 10)
    assert (window.size, window.ready, window.paused) == (2, 1, 0)
    again = window.lease(0, START, 10)
    assert again is not None
    assert (again.delivery.position, again.attempts) == (1, 2)
    assert window.lease(0, START, 10) is None, "the next of its key waits"


def test_a_partition_that_comes_back_starts_anew() -> None:
    window = Window(None)
    keyed(window, 0)
    first = window.lease(0, START, 100)
    assert first is not None
    keyed_again = window.revoke([0])
    window.offer(keyed_again, START)
    again = window.lease(0, START, 100)
    assert again is not None
    assert again is not first
    assert (again.delivery.position, again.attempts) == (1, 1)
    window.finish(first)
    assert (window.size, len(window.leases)) == (2, 1), "the old lease ends nothing of the new one"
    assert window.lease(0, START, 100) is None
    window.finish(again)
    assert window.ready == 1


def test_a_pause_ends_however_many_leases_come_and_go_meanwhile() -> None:
    window = Window(None)
    window.offer([delivery(0)], START)
    entry = window.lease(0, START, 100)
    assert entry is not None
    window.release(entry, 0, 5000)
    for position in range(1, 4000):
        window.offer([delivery(position)], START)
        other = window.lease(0, START, 300_000)
        assert other is not None
        window.finish(other)
    window.advance(4999, START)
    assert window.ready == 0
    window.advance(5000, START)
    assert window.ready == 1


def test_the_timers_of_acknowledged_leases_do_not_pile_up() -> None:
    window = Window(None)
    for position in range(10_000):
        window.offer([delivery(position)], START)
        entry = window.lease(position, START, 300_000)
        assert entry is not None
        window.finish(entry)
        assert len(window._timers) <= 1027


def test_the_timers_of_a_lease_that_is_extended_for_ever_do_not_pile_up() -> None:
    window = Window(None)
    window.offer([delivery(1)], START)
    entry = window.lease(0, START, 300_000)
    assert entry is not None
    for mono in range(10_000):
        window.extend(entry, mono + 300_000)
    assert len(window._timers) <= 1029
    window.advance(309_998, START)
    assert window.leases
    window.advance(309_999, START)
    assert not window.leases


def test_the_fates_of_leases_are_kept_in_bounded_memory() -> None:
    window = Window(None)
    window.offer([delivery(0)], START)
    old = window.lease(0, START, 10**9)
    assert old is not None
    one = [delivery(1)]
    numbers = []
    for _ in range(300_000):
        window.offer(one, START)
        entry = window.lease(0, START, 1000)
        assert entry is not None
        numbers.append(entry.number)
        window.finish(entry)
    assert numbers == list(range(old.number + 1, old.number + 300_001))
    assert len(window._fates) <= 131_072
    assert all(window.find(number, 0) is None for number in numbers[-65_536:])
    with pytest.raises(LeaseEnded):
        window.find(numbers[0], 0)
    assert window.find(old.number, 0) is old
    window.finish(old)
    assert window.size == 0
    assert set(window._fates) == {1}
