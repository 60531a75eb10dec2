"""The buffer against a naive model: lists and linear searches, written from the sentences of the semantics alone."""

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.base import Delivery
from bridge.engine.entries_and_receipts import Entry, LeaseOwner
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import LeaseEnded
from bridge.message import Message

START: Final = 1_700_000_000_000
MAX_DELIVERIES: Final = 3


def delivery(position: int, attempts: int = 0, partition: int = 0, **fields: object) -> Delivery:
    message = Message("orders", born_timestamp=START)._replace(**fields)  # type: ignore[arg-type]
    return Delivery(message, partition, position, attempts)


def lease(buffer: PrefetchBuffer, mono: int, wall: int, duration: int, owner: LeaseOwner | None = None) -> Entry | None:
    """Lease one entry; None: none is ready."""
    entries = buffer.lease(mono, wall, duration, 1, 1, owner)
    return entries[0] if entries else None


class RecordingOwner:
    """A lease owner that records its leases."""

    def __init__(self) -> None:
        self.renewal = 0
        self.leased_numbers: set[int] = set()

    def ended(self, entry: Entry) -> None:
        self.leased_numbers.remove(entry.number)


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
    owner: RecordingOwner | None = None
    revoked_removing: bool = False
    """Whether it was revoked while it was leaving."""

    @property
    def priority(self) -> int:
        asked = self.delivery.message.priority
        return asked if asked is not None and 1 <= asked <= 10 else 5

    @property
    def queue_key(self) -> tuple[int, str] | None:
        key = self.delivery.message.message_key
        return None if key is None else (self.delivery.partition, key)


class RefetchingBuffer(PrefetchBuffer):
    """Has the messages of parked entries again as soon as they are missing."""

    def __init__(self, limit: int | None, messages: dict[int, Message]) -> None:
        """`messages` by position."""
        super().__init__(limit)
        self._messages = messages

    def make_ready(self, entry: Entry) -> None:
        super().make_ready(entry)
        for missing in self.request(1 << 30, 1 << 30, 0):
            if missing.delivery.position % 2:
                self.request_failed(missing)
                assert self.missing
                self.request(1 << 30, 1 << 30, 0)
            self.restore(missing, self._messages[missing.delivery.position])


class PrefetchBufferMachine(RuleBasedStateMachine):
    """Every operation on both; after each one both must be equal."""

    def __init__(self) -> None:
        super().__init__()
        self.mono, self.wall = 1000, START
        self.records: list[Record] = []
        self.acknowledged: set[int] = set()
        self.revoked_settling: list[int] = []
        """Leases that were revoked while their acknowledgement was being recorded."""
        self.numbers: list[int] = []
        self.position = self.joins = 0
        self.owners = (RecordingOwner(), RecordingOwner())

    @initialize(limit=st.sampled_from((None, 1, MAX_DELIVERIES)))
    def begin(self, limit: int | None) -> None:
        self.limit = limit
        self.messages: dict[int, Message] = {}
        self.buffer = RefetchingBuffer(limit, self.messages)

    # The model.

    def parked(self) -> set[int]:
        """Positions of the entries that lack their messages."""
        buffer = self.buffer
        waiting = [*(e for _, _, e in buffer._due), *buffer._paused.values()]
        waiting += [e for queue in buffer._key_queues.values() if queue for e in queue]
        return {e.delivery.position for e in waiting if e.parked}

    def released(self, records: list[Record]) -> list[Delivery]:
        """Return the deliveries that the backend gets back: those of parked entries have no message."""
        parked = self.parked()
        return [
            Delivery(
                Message("") if r.delivery.position in parked else r.delivery.message,
                r.delivery.partition,
                r.delivery.position,
                r.attempts - (r.place == "leased"),
            )
            for r in records
            if not (r.place == "leased" and r.settling)
        ]

    def open(self, *places: str) -> list[Record]:
        return [r for r in self.records if r.place != "removed" and (not places or r.place in places)]

    def join(self, record: Record) -> None:
        self.joins += 1
        record.place, record.joined = "here", self.joins

    def is_head(self, record: Record) -> bool:
        """The next message of a key waits until the one before it is settled."""
        if record.queue_key is None:
            return True
        behind = [r for r in self.open() if r.queue_key == record.queue_key and r.place != "delayed"]
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
        return record.owner.renewal if record.owner is not None and record.place == "leased" else 0

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
        self.buffer.advance(self.mono, self.wall)

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
            self.messages[self.position] = message
            deliveries.append(record.delivery)
            if not delay or START + delay <= self.wall:
                self.join(record)
        self.buffer.offer(deliveries, self.wall)

    @rule(
        duration=st.sampled_from((1, 500, 30_000)),
        limit=st.sampled_from((1, 1, 2, 5)),
        max_bytes=st.sampled_from((0, 1, 2, 1000)),
        owned_by=st.sampled_from((None, 0, 1)),
    )
    def lease(self, duration: int, limit: int, max_bytes: int, owned_by: int | None) -> None:
        owner = None if owned_by is None else self.owners[owned_by]
        given_bytes = max_bytes
        expired: list[Delivery] = []
        taken: list[Record] = []
        while len(taken) < limit and max_bytes > 0 and (ready := self.ready()):
            first = ready[0]
            message = first.delivery.message
            if message.expires is not None and message.expires <= self.wall:
                first.place = "removed"
                expired.append(first.delivery)
            else:
                first.place = "leased"
                taken.append(first)
                max_bytes -= message.size
        entries = self.buffer.lease(self.mono, self.wall, duration, limit, given_bytes, owner)
        assert self.buffer.expired == expired
        self.buffer.expired = []
        assert [entry.delivery for entry in entries] == [record.delivery for record in taken]
        for entry, record in zip(entries, taken, strict=True):
            record.entry, record.number, record.owner = entry, entry.number, owner
            record.attempts += 1
            record.deadline = self.mono + duration
            assert entry.number not in self.numbers, "a lease's number is never used twice"
            self.numbers.append(entry.number)
            if owner is not None:
                owner.leased_numbers.add(entry.number)

    @rule(size=st.integers(0, 3), limit=st.integers(1, 5))
    def park(self, size: int, limit: int) -> None:
        """Those that are needed the latest, until so few have their messages."""
        list(self.buffer.parkable(self.mono - 1000, self.wall))  # a second ago no key went on
        before, parkable = self.parked(), list(self.buffer.parkable(self.mono, self.wall))
        followers = [r for r in self.open("here") if not self.is_head(r)]
        waits = [r for r in self.open("paused") if r.deadline - self.mono > 1000]
        waits += [r for r in self.open("delayed") if r.delivery.message.due - self.wall > 1000]
        expected = {r.delivery.position for r in followers + waits} - before
        assert {e.delivery.position for e in parkable} == expected
        assert len(parkable) == len(expected)
        parked = self.buffer.park(iter(parkable), size, 0, limit)
        after = self.parked()
        assert parked == (len(after) > len(before))
        assert after - before == {e.delivery.position for e in parkable[: len(after) - len(before)]}
        assert len(after - before) == min(limit, len(parkable)) or self.buffer.size <= size

    @rule(which=st.integers(0, 1), renewal=st.sampled_from((0, 1, 500, 30_000)))
    def set_a_renewal(self, which: int, renewal: int) -> None:
        self.owners[which].renewal = renewal

    @precondition(lambda self: self.leased())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.leased()))
        entry = self.buffer.find(record.number, self.mono)
        assert entry is not None
        assert entry is record.entry
        assert self.buffer.acknowledge([(entry, entry.number)]) == 1
        assert self.buffer.acknowledge([(entry, entry.number)]) == 0
        record.place = "removed"
        self.acknowledged.add(record.number)

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data(), delay=st.sampled_from((0, 0, 1, 2000)))
    def release(self, data: st.DataObject, delay: int) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.buffer.release(record.entry, self.mono, delay)
        record.place, record.deadline = ("paused", self.mono + delay) if delay else ("here", 0)

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data())
    def begin_removal(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.buffer.begin_removal(record.entry)
        record.place = "removing"

    @precondition(lambda self: any(not r.settling for r in self.leased()))
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from([r for r in self.leased() if not r.settling]))
        assert record.entry is not None
        self.buffer.undo(record.entry, self.mono, 0)
        record.place = "here"
        record.attempts -= 1

    @precondition(lambda self: self.leased())
    @rule(data=st.data(), duration=st.sampled_from((1, 700, 60_000)))
    def extend(self, data: st.DataObject, duration: int) -> None:
        record = data.draw(st.sampled_from(self.leased()))
        assert record.entry is not None
        record.deadline = self.mono + duration
        self.buffer.extend(record.entry, record.deadline)

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

    @precondition(lambda self: self.buffer.dead)
    @rule()
    def dead_letter(self) -> None:
        entry = self.buffer.take_dead()
        (record,) = [r for r in self.dead() if r.delivery.position == entry.delivery.position]
        record.place, record.entry = "removing", entry

    @precondition(lambda self: any(r.place == "removing" or r.revoked_removing for r in self.records))
    @rule(data=st.data(), completed=st.booleans())
    def end_a_removal(self, data: st.DataObject, completed: bool) -> None:
        record = data.draw(st.sampled_from([r for r in self.records if r.place == "removing" or r.revoked_removing]))
        assert record.entry is not None
        if completed:
            self.buffer.complete_removal(record.entry)
        else:
            self.buffer.abort_removal(record.entry, self.mono + 5000)
        if record.revoked_removing:
            record.revoked_removing = False
        elif completed:
            record.place = "removed"
        else:
            record.place, record.deadline, record.settling = "paused", self.mono + 5000, False

    @rule(partitions=st.sets(st.integers(0, 2)))
    def revoke(self, partitions: set[int]) -> None:
        """Another bridge has them from now on; they may come back, by `offer`."""
        revoked = [r for r in self.open() if r.delivery.partition in partitions]
        expected = self.released(revoked)
        for record in revoked:
            if record.place == "leased":
                if record.settling:
                    self.revoked_settling.append(record.number)
                if record.owner is not None:
                    assert record.number in record.owner.leased_numbers
            record.revoked_removing = record.place == "removing"
            record.place = "removed"
        assert self.buffer.revoke(partitions) == expected

    @precondition(lambda self: self.revoked_settling)
    @rule(data=st.data())
    def record_an_acknowledgement_late(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.revoked_settling))
        (record,) = [r for r in self.records if r.number == number]
        assert record.entry is not None
        assert self.buffer.acknowledge([(record.entry, number)]) == (number not in self.acknowledged)
        self.acknowledged.add(number)

    @precondition(lambda self: self.records and not self.open("removing"))
    @rule()
    def drain(self) -> None:
        expected = self.released(self.open())
        assert self.buffer.drain() == expected
        for record in self.open():
            if record.owner is not None and record.place == "leased" and record.settling:
                record.owner.leased_numbers.remove(record.number)  # `drain` leaves a lease that is being settled
            record.place = "removed"

    # What must hold after every step.

    @invariant()
    def the_sums_are_exact(self) -> None:
        parked = self.parked()
        there = [r for r in self.open() if r.delivery.position not in parked]
        assert self.buffer.parked == len(parked)
        assert self.buffer.size == len(there)
        assert self.buffer.bytes == sum(r.delivery.message.size for r in there)
        waiting = [r for r in there if r.place in {"delayed", "paused"} or (r.place == "here" and not self.is_head(r))]
        assert self.buffer.waiting == len(waiting)
        assert self.buffer.ready == len(self.ready())
        assert self.buffer.paused == len(self.open("paused"))

    @invariant()
    def everything_is_in_exactly_one_place(self) -> None:
        buffer = self.buffer
        queued = [e for queue in buffer._key_queues.values() if queue for e in queue]
        places = {
            "delayed": [e for _, _, e in buffer._due],
            "ready": [e for _, _, e in buffer._ready],
            "queued": queued,
            "leased": list(buffer.leases.values()),
            "paused": list(buffer._paused.values()),
            "dead": buffer.dead,
            "removing": list(buffer._removing),
        }
        expected = {
            "delayed": self.open("delayed"),
            "ready": self.ready(),
            "queued": [r for r in self.open("here") if not self.is_head(r)],
            "leased": self.open("leased"),
            "paused": self.open("paused"),
            "dead": self.dead(),
            "removing": self.open("removing"),
        }
        for place, entries in places.items():
            there = sorted((e.delivery.position, e.attempts) for e in entries)
            assert there == sorted((r.delivery.position, r.attempts) for r in expected[place]), place

    @invariant()
    def no_key_is_out_twice(self) -> None:
        out = [e.queue_key for e in self.buffer.leases.values() if e.queue_key is not None]
        assert len(out) == len(set(out))

    @invariant()
    def an_idle_key_costs_nothing(self) -> None:
        assert set(self.buffer._key_queues) == {r.queue_key for r in self.open() if r.place != "delayed"} - {None}

    @invariant()
    def a_number_is_live_or_acknowledged_or_ended(self) -> None:
        live = {r.number: r.entry for r in self.leased()}
        for number in [*self.numbers, -1, 10**9]:
            if number in live:
                assert self.buffer.find(number, self.mono) is live[number]
            elif number in self.acknowledged:
                assert self.buffer.find(number, self.mono) is None
            else:
                with pytest.raises(LeaseEnded):
                    self.buffer.find(number, self.mono)

    @invariant()
    def an_owner_is_notified_of_each_end_and_of_nothing_else(self) -> None:
        for owner in self.owners:
            assert owner.leased_numbers == {r.number for r in self.open("leased") if r.owner is owner}

    @invariant()
    def leases_end_when_they_should(self) -> None:
        for record in self.open("leased"):
            assert record.entry is not None
            assert record.entry.deadline == record.deadline

    @invariant()
    def the_driver_is_woken_in_time(self) -> None:
        mono_at, wall_at = self.buffer.next_events()
        ends = [r.deadline for r in self.open("leased", "paused") if not r.settling]
        assert not ends or (mono_at is not None and mono_at <= min(ends))
        assert wall_at == min((r.delivery.message.due for r in self.open("delayed")), default=None)

    @invariant()
    def timers_are_bounded(self) -> None:
        assert len(self.buffer._timers) <= 2 * len(self.open("leased", "paused")) + 1027


TestPrefetchBufferAgreesWithItsModel = PrefetchBufferMachine.TestCase
TestPrefetchBufferAgreesWithItsModel.settings = settings(max_examples=100, stateful_step_count=40)


# The sentences of the semantics, one by one.


def test_a_message_with_a_delay_is_never_delivered_early() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, delay_time=100)], START)
    buffer.advance(0, START + 99)
    assert lease(buffer, 0, START + 99, 10) is None
    assert buffer.next_events() == (None, START + 100)
    buffer.advance(0, START + 100)
    assert lease(buffer, 0, START + 100, 10) is not None


def test_a_message_already_due_goes_at_once() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, delay_time=100)], START + 100)
    assert lease(buffer, 0, START + 100, 10) is not None


def test_a_producer_s_fast_clock_alone_holds_nothing_back() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, born_timestamp=START + 60_000)], START)
    assert lease(buffer, 0, START, 10) is not None


def test_nothing_is_handed_out_after_expire_time_also_not_as_a_redelivery() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, expire_time=START + 50)], START)
    entry = lease(buffer, 0, START + 49, 10)
    assert entry is not None
    buffer.release(entry, 0, 0)
    assert lease(buffer, 0, START + 50, 10) is None
    assert [d.position for d in buffer.expired] == [1]
    assert buffer.size == 0


@pytest.mark.parametrize("expire_time", [0, START - 1, START])
def test_expire_time_up_to_born_timestamp_means_never(expire_time: int) -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, expire_time=expire_time)], START + 10**9)
    assert lease(buffer, 0, START + 10**9, 10) is not None


def test_an_expired_head_lets_the_next_of_its_key_come_forward() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, message_key="a", expire_time=START + 1), delivery(2, message_key="a")], START)
    entry = lease(buffer, 0, START + 1, 10)
    assert entry is not None
    assert entry.delivery.position == 2


def test_key_order_beats_priority() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, message_key="a", priority=1), delivery(2, message_key="a", priority=10)], START)
    first = lease(buffer, 0, START, 10)
    assert first is not None
    assert first.delivery.position == 1
    assert lease(buffer, 0, START, 10) is None
    buffer.acknowledge([(first, first.number)])
    second = lease(buffer, 0, START, 10)
    assert second is not None
    assert second.delivery.position == 2


def test_the_next_of_a_key_waits_also_while_the_one_before_it_pauses() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, message_key="a"), delivery(2, message_key="a"), delivery(3, message_key="b")], START)
    first = lease(buffer, 0, START, 1000)
    assert first is not None
    buffer.release(first, 0, 500)
    other = lease(buffer, 0, START, 1000)
    assert other is not None
    assert other.delivery.position == 3
    assert lease(buffer, 0, START, 1000) is None
    buffer.advance(500, START)
    again = lease(buffer, 500, START, 1000)
    assert again is first
    assert again.attempts == 2


def test_the_same_key_in_two_partitions_is_two_keys() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, message_key="a"), delivery(1, message_key="a", partition=1)], START)
    assert lease(buffer, 0, START, 10) is not None
    assert lease(buffer, 0, START, 10) is not None


def test_a_priority_outside_1_to_10_is_5(subtests: pytest.Subtests) -> None:
    cases: list[int | None] = [None, 0, 5, 11, 255]
    for priority in cases:
        with subtests.test(priority=priority):
            buffer = PrefetchBuffer(None)
            buffer.offer([delivery(1, priority=4), delivery(2, priority=priority), delivery(3, priority=6)], START)
            order = []
            while (entry := lease(buffer, 0, START, 10)) is not None:
                order.append(entry.delivery.position)
            assert order == [3, 2, 1]


def test_delivery_count_is_1_on_the_first_delivery_and_one_more_on_each() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    for count in range(1, 5):
        entry = lease(buffer, count * 10, START, 10)
        assert entry is not None
        assert entry.attempts == count
        buffer.advance(count * 10 + 10, START)
    assert buffer.leases_ended == 4


def test_after_max_deliveries_a_message_is_dead_and_its_key_waits() -> None:
    buffer = PrefetchBuffer(2)
    buffer.offer([delivery(1, attempts=1, message_key="a"), delivery(2, message_key="a")], START)
    entry = lease(buffer, 0, START, 10)
    assert entry is not None
    buffer.release(entry, 0, 0)
    assert buffer.dead == [entry]
    assert lease(buffer, 0, START, 10) is None
    buffer.complete_removal(buffer.take_dead())
    follower = lease(buffer, 0, START, 10)
    assert follower is not None
    assert follower.delivery.position == 2


def test_a_message_that_another_bridge_wore_out_is_dead_on_arrival() -> None:
    buffer = PrefetchBuffer(2)
    buffer.offer([delivery(1, attempts=2)], START)
    assert lease(buffer, 0, START, 10) is None
    assert [e.delivery.position for e in buffer.dead] == [1]


def test_a_lease_ends_at_its_deadline_and_not_before() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    entry = lease(buffer, 0, START, 100)
    assert entry is not None
    buffer.advance(99, START)
    assert buffer.find(entry.number, 99) is entry
    number = entry.number
    with pytest.raises(LeaseEnded):
        buffer.find(number, 100)
    buffer.advance(100, START)
    assert buffer.ready == 1


def test_an_extended_lease_outlives_its_first_deadline_and_a_shortened_one_does_not() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1), delivery(2)], START)
    longer, shorter = lease(buffer, 0, START, 100), lease(buffer, 0, START, 100)
    assert longer is not None
    assert shorter is not None
    buffer.extend(longer, 300)
    buffer.extend(shorter, 50)
    buffer.advance(50, START)
    assert list(buffer.leases.values()) == [longer]
    buffer.advance(299, START)
    assert buffer.leases
    buffer.advance(300, START)
    assert not buffer.leases


def test_a_kept_lease_is_renewed_until_its_keeper_dies() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    owner = RecordingOwner()
    owner.renewal = 70
    entry = lease(buffer, 0, START, 100, owner)
    assert entry is not None
    owner.leased_numbers.add(entry.number)
    assert buffer.find(entry.number, 100) is entry, "`advance` was not called yet"
    buffer.advance(130, START)
    assert entry.deadline == 200
    owner.renewal = 0
    buffer.advance(199, START)
    assert buffer.find(entry.number, 199) is entry
    buffer.advance(200, START)
    assert not buffer.leases
    assert not owner.leased_numbers
    assert buffer.leases_ended == 1


def test_a_lease_has_no_keeper_left_when_it_is_leased_again() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    owner = RecordingOwner()
    owner.renewal = 100
    entry = lease(buffer, 0, START, 100, owner)
    assert entry is not None
    owner.leased_numbers.add(entry.number)
    buffer.release(entry, 0, 0)
    again = lease(buffer, 0, START, 100)
    assert again is entry
    buffer.advance(100, START)
    assert not buffer.leases


def test_a_lease_does_not_end_while_its_acknowledgement_is_recorded() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    entry = lease(buffer, 0, START, 100)
    assert entry is not None
    entry.settling = True
    buffer.advance(5000, START)
    assert buffer.find(entry.number, 5000) is entry
    buffer.acknowledge([(entry, entry.number)])
    assert buffer.find(entry.number, 5000) is None
    assert buffer.size == 0


def test_a_lease_cut_short_by_the_bridge_is_no_failure_of_its_consumer() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, attempts=4), delivery(2)], START)
    assert lease(buffer, 0, START, 100) is not None
    assert [(d.position, d.attempts) for d in buffer.drain()] == [(1, 4), (2, 0)]
    assert buffer.next_events() == (None, None)


def test_the_dead_and_the_paused_are_given_back_too() -> None:
    buffer = PrefetchBuffer(2)
    buffer.offer([delivery(1, attempts=2), delivery(2), delivery(3, delay_time=10)], START)
    entry = lease(buffer, 0, START, 100)
    assert entry is not None
    buffer.release(entry, 0, 500)
    assert [(d.position, d.attempts) for d in buffer.drain()] == [(1, 2), (2, 1), (3, 0)]
    assert buffer.dead == []
    assert (buffer.size, buffer.bytes, buffer.ready, buffer.paused) == (0, 0, 0, 0)


def keyed(buffer: PrefetchBuffer, *partitions: int) -> None:
    """Offer two messages of one key for each partition."""
    given = [delivery(n, partition=p, message_key="a", body=b"xy") for p in partitions for n in (1, 2)]
    buffer.offer(given, START)


def test_what_is_revoked_is_forgotten_wherever_it_is() -> None:
    buffer = PrefetchBuffer(2)
    delayed = delivery(10, partition=1, delay_time=10, body=b"xyz")
    worn_out = delivery(11, partition=1, attempts=2)
    buffer.offer([delayed, worn_out, delivery(12, partition=1), delivery(13, partition=1)], START)
    paused = lease(buffer, 0, START, 100)
    assert paused is not None
    buffer.release(paused, 0, 500)
    keyed(buffer, 0, 1)
    held = lease(buffer, 0, START, 100)
    assert held is not None
    revoked = buffer.revoke({1, 7})
    assert [(d.position, d.attempts) for d in revoked] == [(10, 0), (11, 2), (12, 1), (13, 0), (1, 0), (2, 0)]
    assert all(d.partition == 1 for d in revoked)
    assert (buffer.size, buffer.ready, buffer.paused) == (2, 1, 0)
    assert buffer.bytes == 2 * delivery(1, message_key="a", body=b"xy").message.size
    assert buffer.dead == []
    assert buffer.next_events() == (None, None)


def test_a_revoked_lease_has_ended_and_is_no_failure_of_its_consumer() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1, attempts=4), delivery(2, partition=1)], START)
    owner = RecordingOwner()
    owner.renewal = 1000
    cut, other = lease(buffer, 0, START, 100, owner), lease(buffer, 0, START, 100)
    assert cut is not None
    assert other is not None
    owner.leased_numbers.add(cut.number)
    assert buffer.revoke({0}) == [cut.delivery]
    assert not owner.leased_numbers
    with pytest.raises(LeaseEnded):
        buffer.find(cut.number, 0)
    assert buffer.find(other.number, 0) is other
    assert buffer.leases_ended == 0, "it has not run out"
    buffer.advance(5000, START)
    assert buffer.size == 1


def test_a_revoked_acknowledgement_is_between_the_backend_and_who_asked() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    entry = lease(buffer, 0, START, 100)
    assert entry is not None
    entry.settling = True
    assert buffer.revoke({0}) == []
    assert (buffer.size, buffer.leases) == (0, {})
    with pytest.raises(LeaseEnded):
        buffer.find(entry.number, 0)
    assert buffer.acknowledge([(entry, entry.number)]) == 1
    assert buffer.acknowledge([(entry, entry.number)]) == 0
    assert buffer.find(entry.number, 0) is None, "acknowledging twice is 204"


@pytest.mark.parametrize("written", [False, True])
def test_the_end_of_a_revoked_burial_does_not_touch_the_same_message_that_came_back(written: bool) -> None:
    buffer = PrefetchBuffer(2)
    twins = [delivery(1, attempts=2, message_key="a"), delivery(2, message_key="a")]
    buffer.offer(twins, START)
    entry = buffer.take_dead()
    assert buffer.revoke({0}) == twins
    assert (buffer.size, buffer.bytes) == (0, 0)
    buffer.offer([twins[0]._replace(attempts=1), twins[1]], START)
    if written:
        buffer.complete_removal(entry)
    else:
        buffer.abort_removal(entry, 10)
    assert (buffer.size, buffer.ready, buffer.paused) == (2, 1, 0)
    again = lease(buffer, 0, START, 10)
    assert again is not None
    assert (again.delivery.position, again.attempts) == (1, 2)
    assert lease(buffer, 0, START, 10) is None, "the next of its key waits"


def test_a_partition_that_comes_back_starts_anew() -> None:
    buffer = PrefetchBuffer(None)
    keyed(buffer, 0)
    first = lease(buffer, 0, START, 100)
    assert first is not None
    keyed_again = buffer.revoke([0])
    buffer.offer(keyed_again, START)
    again = lease(buffer, 0, START, 100)
    assert again is not None
    assert again is not first
    assert (again.delivery.position, again.attempts) == (1, 1)
    buffer.acknowledge([(first, first.number)])
    assert (buffer.size, len(buffer.leases)) == (2, 1), "the old lease ends nothing of the new one"
    assert lease(buffer, 0, START, 100) is None
    buffer.acknowledge([(again, again.number)])
    assert buffer.ready == 1


def test_a_pause_ends_however_many_leases_come_and_go_meanwhile() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(0)], START)
    entry = lease(buffer, 0, START, 100)
    assert entry is not None
    buffer.release(entry, 0, 5000)
    for position in range(1, 4000):
        buffer.offer([delivery(position)], START)
        other = lease(buffer, 0, START, 300_000)
        assert other is not None
        buffer.acknowledge([(other, other.number)])
    buffer.advance(4999, START)
    assert buffer.ready == 0
    buffer.advance(5000, START)
    assert buffer.ready == 1


def test_the_timers_of_acknowledged_leases_do_not_pile_up() -> None:
    buffer = PrefetchBuffer(None)
    for position in range(10_000):
        buffer.offer([delivery(position)], START)
        entry = lease(buffer, position, START, 300_000)
        assert entry is not None
        buffer.acknowledge([(entry, entry.number)])
        assert len(buffer._timers) <= 1027


def test_the_timers_of_a_lease_that_is_extended_for_ever_do_not_pile_up() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(1)], START)
    entry = lease(buffer, 0, START, 300_000)
    assert entry is not None
    for mono in range(10_000):
        buffer.extend(entry, mono + 300_000)
    assert len(buffer._timers) <= 1029
    buffer.advance(309_998, START)
    assert buffer.leases
    buffer.advance(309_999, START)
    assert not buffer.leases


def test_the_outcomes_of_leases_are_kept_in_bounded_memory() -> None:
    buffer = PrefetchBuffer(None)
    buffer.offer([delivery(0)], START)
    old = lease(buffer, 0, START, 10**9)
    assert old is not None
    one = [delivery(1)]
    numbers = []
    for _ in range(300_000):
        buffer.offer(one, START)
        entry = lease(buffer, 0, START, 1000)
        assert entry is not None
        numbers.append(entry.number)
        buffer.acknowledge([(entry, entry.number)])
    assert numbers == list(range(old.number + 1, old.number + 300_001))
    assert len(buffer._outcomes) <= 131_072
    assert all(buffer.find(number, 0) is None for number in numbers[-65_536:])
    with pytest.raises(LeaseEnded):
        buffer.find(numbers[0], 0)
    assert buffer.find(old.number, 0) is old
    buffer.acknowledge([(old, old.number)])
    assert buffer.size == 0
    assert set(buffer._outcomes._outcomes) == {1}
