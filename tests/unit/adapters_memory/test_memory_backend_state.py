"""The pure log against a naive model: lists, scans, and no cleverness."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.base import Delivery
from adapters.memory import backend_state
from adapters.memory.backend_state import SLICE, BackendState
from adapters.memory.capacity_and_retention import Capacity
from adapters.memory.group import Cursor, StoredGroup
from adapters.memory.options import Options, parse
from adapters.memory.partition import Partition, RecordList
from adapters.memory.record import Record, footprint, pack
from bridge.errors import BackendFull, BodyTooLarge, PartitionUnknown
from bridge.message import Message

DESTINATIONS = ("orders", "payments")
GROUPS = ("a", "b", "c")
PARTITIONS = 3
CAPACITY = 12
RETENTION = 100

Place = tuple[str, int, int]
"""Destination, partition, offset."""


def append(log: BackendState, capacity: Capacity, message: Message, now: int) -> int:
    """What the adapter does with a message that is not delayed."""
    _, partition = log.place(message)
    record = pack(message)
    capacity.admit(record, now)
    offset = partition.reserve()
    partition.append(record, offset, log.next_sequence(), now)
    return offset


def settle(log: BackendState, group: StoredGroup, partition: int, offset: int) -> None:
    """Settle one offset."""
    log.settle(group, [Delivery(Message("orders"), partition, offset, 0)])


@dataclass
class ModelGroup:
    settled: set[Place] = field(default_factory=set)
    fetched: set[Place] = field(default_factory=set)
    attempts: dict[Place, int] = field(default_factory=dict)
    subscribed: bool = False
    idle_since: int = 0


class LogMachine(RuleBasedStateMachine):
    """Every step runs on the log and on the model; they must answer alike."""

    def __init__(self) -> None:
        super().__init__()
        options = Options(partitions=PARTITIONS, max_messages=CAPACITY, retention=RETENTION, max_groups=4)
        self.log = BackendState(options)
        self.dropped: list[Place] = []
        self.capacity = Capacity(
            self.log,
            options,
            lambda d: self.dropped.extend((d.destination.name, d.partition.number, offset) for offset in d.offsets),
        )
        self.now = 1_000_000
        self.kept: dict[Place, tuple[int, bytes]] = {}
        """In the order of storing: when, and what."""
        self.ends: dict[tuple[str, int], int] = {}
        self.groups: dict[tuple[str, str], ModelGroup] = {}
        self.count = 0
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(backend_state, "SLICE", 2)
        self._patch.setattr("adapters.memory.partition._STEP", 2)
        self._patch.setattr("adapters.memory.partition._COMPACT", 1)

    def teardown(self) -> None:
        self._patch.undo()

    @initialize()
    def create(self) -> None:
        for name in DESTINATIONS:
            self.log.destination(name)

    def _group(self, key: tuple[str, str]) -> StoredGroup:
        return self.log.destinations[key[0]].groups[key[1]]

    def _droppable(self) -> list[Place]:
        def spare(place: Place) -> bool:
            groups = [group for (destination, _), group in self.groups.items() if destination == place[0]]
            return bool(groups) and all(place in group.settled for group in groups)

        return [place for place in self.kept if spare(place)]

    def _forget(self, place: Place) -> None:
        del self.kept[place]

    def _expire(self) -> None:
        for place, (stored, _) in list(self.kept.items()):
            if stored < self.now - RETENTION:
                self._forget(place)

    @rule(destination=st.sampled_from(DESTINATIONS), partition=st.integers(0, PARTITIONS - 1))
    def publish(self, destination: str, partition: int) -> None:
        while self.log.count_step():  # which of them a full backend drops depends on what is counted
            pass
        self.count += 1
        body = b"%d" % self.count
        message = Message(destination, body, partition=partition)
        if len(self.kept) >= CAPACITY:
            droppable = self._droppable()
            for place in droppable[:SLICE]:
                self._forget(place)
            if not droppable:
                self._expire()
            if len(self.kept) >= CAPACITY:
                with pytest.raises(BackendFull, match="max_messages=12 and may drop nothing: "):
                    append(self.log, self.capacity, message, self.now)
                return
        offset = append(self.log, self.capacity, message, self.now)
        assert offset == self.ends.get((destination, partition), 0)
        self.ends[destination, partition] = offset + 1
        self.kept[destination, partition, offset] = (self.now, body)

    @rule(destination=st.sampled_from(DESTINATIONS), name=st.sampled_from(GROUPS), latest=st.booleans())
    def subscribe(self, destination: str, name: str, latest: bool) -> None:
        key = (destination, name)
        if key not in self.groups and len(self.groups) >= 4:
            with pytest.raises(BackendFull, match="max_groups=4"):
                self.log.group(self.log.destination(destination), name, self.now, latest=latest)
            return
        group = self.log.group(self.log.destination(destination), name, self.now, latest=latest)
        skipped = {place for place in self.kept if latest and place[0] == destination}
        model = self.groups.setdefault(key, ModelGroup(settled=skipped, idle_since=self.now))
        group.subscribed = model.subscribed = True

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.groups)))
        group, model = self._group(key), self.groups[key]
        group.subscribed = model.subscribed = False
        group.idle_since = model.idle_since = self.now
        group.rewind()
        model.fetched.clear()

    def _ready(self, key: tuple[str, str]) -> dict[int, list[Place]]:
        """What the group could fetch, per partition in stored order."""
        model = self.groups[key]
        ready: dict[int, list[Place]] = {}
        for place in sorted(self.kept):
            if place[0] == key[0] and place not in model.settled and place not in model.fetched:
                ready.setdefault(place[1], []).append(place)
        return ready

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), limit=st.integers(1, 6))
    def fetch(self, data: st.DataObject, limit: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.groups)))
        model, ready = self.groups[key], self._ready(key)
        got = self._group(key).fetch(limit, 1 << 20)
        assert len(got) == min(limit, sum(map(len, ready.values())))
        shares = dict.fromkeys(ready, 0)
        for delivery in got:
            place = (key[0], delivery.partition, delivery.position)
            assert place == ready[delivery.partition].pop(0), "stored order within the partition"
            assert delivery.message.body == self.kept[place][1]
            assert delivery.attempts == model.attempts.get(place, 0)
            shares[delivery.partition] += 1
            model.fetched.add(place)
        hungry = [shares[partition] for partition, rest in ready.items() if rest]
        assert not hungry or max(shares.values()) - min(hungry) <= 1, "no partition gets less while it has more"

    @precondition(lambda self: any(group.fetched for group in self.groups.values()))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        key, place = self._pick(data)
        settle(self.log, self._group(key), place[1], place[2])
        if place in self.kept:
            self.groups[key].settled.add(place)

    @precondition(lambda self: any(group.fetched for group in self.groups.values()))
    @rule(data=st.data(), attempts=st.integers(0, 9))
    def release(self, data: st.DataObject, attempts: int) -> None:
        key, place = self._pick(data)
        model = self.groups[key]
        self._group(key).cursors[place[1]].release(place[2], attempts)
        model.fetched.discard(place)
        model.attempts[place] = attempts

    def _pick(self, data: st.DataObject) -> tuple[tuple[str, str], Place]:
        return data.draw(
            st.sampled_from(sorted((key, place) for key, group in self.groups.items() for place in group.fetched))
        )

    @precondition(lambda self: any(not group.subscribed for group in self.groups.values()))
    @rule(data=st.data(), delete=st.booleans())
    def purge_or_delete(self, data: st.DataObject, delete: bool) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, group in self.groups.items() if not group.subscribed)))
        destination, group = self.log.destinations[key[0]], self._group(key)
        if delete:
            self.log.remove_groups(destination, [group])
            del self.groups[key]
        else:
            self.log.purge_group(destination, group)
            self.groups[key].settled |= {place for place in self.kept if place[0] == key[0]}
            self.groups[key].attempts.clear()

    @rule()
    def count_some(self) -> None:
        self.log.count_step()

    @rule(passed=st.integers(0, RETENTION))
    def pass_time(self, passed: int) -> None:
        """Without a check: only a full backend finds what has become old."""
        self.now += passed

    @rule(passed=st.integers(0, RETENTION))
    def wait(self, passed: int) -> None:
        self.now += passed
        while self.capacity.expire(self.now):
            pass
        self._expire()
        removed = {group.name for groups in self.log.forget_idle(self.now) for group in groups}
        forgotten = {
            key
            for key, group in self.groups.items()
            if not group.subscribed and self.now - group.idle_since > RETENTION
        }
        assert removed == {name for _, name in forgotten}
        for key in forgotten:
            del self.groups[key]

    @invariant()
    def agrees(self) -> None:
        kept = {
            (destination.name, partition.number, offset)
            for destination, partition in self.log.partitions()
            for _, offset in partition.kept()
        }
        assert kept == set(self.kept)
        assert self.capacity.messages == len(self.kept)
        assert self.capacity.bytes == sum(
            footprint(partition.messages[index] or ())
            for _, partition in self.log.partitions()
            for index, _ in partition.kept()
        )
        spare = {
            (destination.name, partition.number, offset)
            for destination, partition in self.log.partitions()
            for run in partition.settled_by_all
            for offset in run
        }
        droppable = set(self._droppable())
        assert spare <= droppable, "a message is dropped only after all groups have settled it"
        assert spare == droppable or self.log._uncounted
        assert not set(self.dropped) & kept
        assert len(set(self.dropped)) == len(self.dropped)
        for key in self.groups:
            for cursor in self._group(key).cursors:
                number = cursor.partition.number
                here = {place[2] for place in self.kept if place[:2] == (key[0], number)}
                settled = {place[2] for place in self.groups[key].settled if place[:2] == (key[0], number)}
                assert cursor.committed_offset == min(here - settled, default=cursor.partition.end)
                assert cursor.attempts.keys() <= here - settled


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def filled(count: int, **limits: int) -> tuple[BackendState, Capacity]:
    options = parse("memory://?partitions=2" + "".join(f"&{name}={value}" for name, value in limits.items()))
    log = BackendState(options)
    capacity = Capacity(log, options)
    for number in range(count):
        append(log, capacity, Message("orders", b"%d" % number, partition=number % 2), number)
    return log, capacity


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


def test_fetch_stops_before_the_bytes_are_exceeded_but_gives_one() -> None:
    log, capacity = filled(0)
    for size in (50, 60, 20):
        append(log, capacity, Message("orders", b"x" * (size - 20), {"p": "y" * 13}, partition=0), 0)
    group = log.group(log.destination("orders"), "g", 0)
    assert [each.message.size for each in group.fetch(10, 5)] == [50]
    assert [each.message.size for each in group.fetch(10, 69)] == [60]
    assert [each.message.size for each in group.fetch(10, 10)] == [20]


def test_every_partition_has_its_turn_even_one_message_at_a_time() -> None:
    log, _ = filled(6)
    group = log.group(log.destination("orders"), "g", 0)
    assert [group.fetch(1, 99)[0].partition for _ in range(6)] == [0, 1, 0, 1, 0, 1]


def test_fetch_exactly_the_bytes_allowed() -> None:
    log, _ = filled(4)
    group = log.group(log.destination("orders"), "g", 0)
    assert bodies(group.fetch(10, 3 * Message("orders", b"0").size)) == [b"0", b"1", b"2"]


def test_released_come_before_newer_in_offset_order() -> None:
    log, _ = filled(12)
    group = log.group(log.destination("orders"), "g", 0)
    first = [delivery for delivery in group.fetch(6, 1 << 20) if delivery.partition == 0]
    for delivery in reversed(first):
        group.cursors[0].release(delivery.position, 2)
        group.cursors[0].release(delivery.position, 3)
    got = [d for d in group.fetch(20, 1 << 20) if d.partition == 0]
    assert [(d.position, d.attempts) for d in got] == [(0, 3), (1, 3), (2, 3), (3, 0), (4, 0), (5, 0)]


def test_releasing_what_was_never_fetched_is_harmless() -> None:
    log, _ = filled(4)
    group = log.group(log.destination("orders"), "g", 0)
    group.cursors[0].release(1, 1)
    group.cursors[0].release(77, 1)
    assert bodies(group.fetch(9, 99)) == [b"0", b"1", b"2", b"3"]


def test_settling_what_was_never_there_is_harmless() -> None:
    log, capacity = filled(2)
    group = log.group(log.destination("orders"), "g", 0)
    settle(log, group, 0, 55)
    append(log, capacity, Message("orders", b"new", partition=0), 5)
    assert bodies(group.fetch(9, 99)) == [b"0", b"1", b"new"]


def test_a_full_backend_names_the_limit_and_the_largest_share() -> None:
    log, capacity = filled(10, max_messages=10)
    with pytest.raises(BackendFull, match=r"max_messages=10 .*'orders' has 10 messages and no group yet\."):
        append(log, capacity, Message("orders", partition=0), 0)
    group = log.group(log.destination("orders"), "slow", 0)
    settle(log, group, 0, 2)  # not the oldest, and yet it may go
    append(log, capacity, Message("orders", b"fits", partition=0), 0)
    with pytest.raises(BackendFull, match=r"group 'slow' of 'orders' has 10 messages to settle"):
        append(log, capacity, Message("orders", partition=0), 5000)


def test_max_bytes_counts_the_overhead() -> None:
    log, capacity = filled(3, max_bytes=3 * footprint(pack(Message("orders", b"0", partition=0))))
    with pytest.raises(BackendFull, match="max_bytes"):
        append(log, capacity, Message("orders", b"3", partition=1), 0)


def test_a_message_that_could_never_fit_drops_nothing() -> None:
    log, capacity = filled(1, max_bytes=2000)
    group = log.group(log.destination("orders"), "g", 0)
    settle(log, group, 0, 0)
    with pytest.raises(BodyTooLarge, match="max_bytes=2000"):
        append(log, capacity, Message("orders", b"x" * 2000, partition=0), 0)
    assert capacity.messages == 1


def test_evicted_are_the_oldest_across_partitions() -> None:
    log, capacity = filled(SLICE + 40, max_messages=SLICE + 40)
    group = log.group(log.destination("orders"), "g", 0)
    for delivery in group.fetch(SLICE + 30, 1 << 20):
        settle(log, group, delivery.partition, delivery.position)
    append(log, capacity, Message("orders", b"new", partition=0), 0)
    late = log.group(log.destination("orders"), "late", 0)
    assert bodies(late.fetch(2, 99)) == [b"%d" % SLICE, b"%d" % (SLICE + 1)]
    assert capacity.dropped_when_full == SLICE


def test_a_late_group_gets_messages_that_all_others_settled() -> None:
    log, capacity = filled(10, max_messages=10)
    group = log.group(log.destination("orders"), "early", 0)
    for delivery in group.fetch(10, 1 << 20):
        settle(log, group, delivery.partition, delivery.position)
    log.group(log.destination("orders"), "late", 0)
    with pytest.raises(BackendFull, match="group 'late' of 'orders' has 10"):
        append(log, capacity, Message("orders", partition=0), 0)


def test_a_forgotten_group_counts_no_more() -> None:
    log, capacity = filled(4, max_messages=4, retention=100)
    idle, subscribed = (log.group(log.destination("orders"), name, 0) for name in ("idle", "subscribed"))
    subscribed.subscribed = True
    fetched = idle.fetch(4, 1 << 20)
    assert list(log.forget_idle(101)) == [[idle]]
    for delivery in fetched:
        settle(log, idle, delivery.partition, delivery.position)
    with pytest.raises(BackendFull, match="group 'subscribed' of 'orders' has 4"):
        append(log, capacity, Message("orders", partition=0), 5)


def test_what_the_only_group_skipped_may_go() -> None:
    log, capacity = filled(4, max_messages=4)
    log.group(log.destination("orders"), "g", 0, latest=True)
    append(log, capacity, Message("orders", partition=0), 5)
    assert capacity.messages == 1


def test_a_step_counts_a_slice_however_many_messages_and_groups_there_are() -> None:
    log, _ = filled(4000, retention=100)
    orders = log.destination("orders")
    groups = [log.group(orders, f"g{number}", 0) for number in range(20)]
    for group in groups:
        group.subscribed = True

    writes = 0

    class Acks(array):  # type: ignore[type-arg]
        def __setitem__(self, index: int, value: int) -> None:  # type: ignore[override]
            nonlocal writes
            writes += 1
            super().__setitem__(index, value)

    for partition in orders.partitions:
        partition.acks = Acks("I", partition.acks)
    for group in groups[:10]:
        log.purge_group(orders, group)
    log.remove_groups(orders, groups[10:12])
    for group in groups[12:]:
        group.subscribed = False
    assert [len(forgotten) for forgotten in log.forget_idle(1000)] == [8]
    assert writes == 0
    steps = [writes]
    while log.count_step():
        steps.append(writes)
    assert writes == 20 * 4000
    assert max(after - before for before, after in pairwise(steps)) <= SLICE
    assert all(partition.settled_by_all for partition in orders.partitions)


def test_a_late_group_reads_across_what_was_dropped() -> None:
    log, capacity = filled(20, max_messages=20)
    early = log.group(log.destination("orders"), "early", 0)
    for delivery in early.fetch(20, 1 << 20):
        if delivery.position not in {0, 5, 9}:
            settle(log, early, delivery.partition, delivery.position)
    append(log, capacity, Message("orders", b"new", partition=0), 0)
    late = log.group(log.destination("orders"), "late", 0)
    got = [delivery for delivery in late.fetch(20, 1 << 20) if delivery.partition == 0]
    assert [delivery.position for delivery in got] == [0, 5, 9, 10]
    for delivery in got[:3]:
        settle(log, late, 0, delivery.position)
    assert late.cursors[0].committed_offset == 10
    assert not late.cursors[0].settled


def test_one_stuck_message_does_not_keep_the_rest() -> None:
    log, capacity = filled(1, max_messages=1000)
    group = log.group(log.destination("orders"), "g", 0)
    (stuck,) = group.fetch(1, 99)
    for number in range(20_000):
        append(log, capacity, Message("orders", partition=0), number)
        (delivery,) = group.fetch(1, 99)
        settle(log, group, 0, delivery.position)
    cursor = group.cursors[0]
    assert cursor.committed_offset == stuck.position
    assert list(cursor.settled) == [range(1, 20_001)]
    assert len(cursor.partition.messages) < 3000, "dropped ones leave the columns"
    group.rewind()
    assert [d.position for d in group.fetch(5, 99)] == [0]


def test_partition_must_exist() -> None:
    log, _ = filled(0)
    for partition in (-1, 2, None):
        with pytest.raises(PartitionUnknown, match="partitions 0 to 1"):
            log.place(Message("orders", partition=partition))


def test_max_destinations() -> None:
    log, _ = filled(0, max_destinations=1)
    log.destination("a")
    log.destination("a")
    with pytest.raises(BackendFull, match="max_destinations=1"):
        log.destination("b")


def test_expire_drops_a_slice_at_a_time() -> None:
    log, capacity = filled(SLICE + 10, retention=10**6)
    assert capacity.expire(10**7)
    assert capacity.messages == 11, "the other partition counts, too"
    assert not capacity.expire(10**7)
    assert capacity.messages == 0
    assert capacity.dropped_by_retention == SLICE + 10
    assert log.destination("orders").partitions[0].reserve() == (SLICE + 10) // 2, "offsets are not given again"


def test_a_slice_of_old_messages_counts_the_groups_whose_positions_move() -> None:
    """One message in each of many partitions, with many groups: each drop moves them all."""
    log = BackendState(options := parse("memory://?partitions=100&retention=100"))
    capacity = Capacity(log, options)
    for number in range(100):
        append(log, capacity, Message("orders", partition=number), 0)
    for number in range(200):
        log.group(log.destination("orders"), f"g{number}", 0)
    assert capacity.expire(1000)
    assert 90 < capacity.messages < 100
    while capacity.expire(1000):
        pass
    assert (capacity.messages, capacity.dropped_by_retention) == (0, 100)
    for group in log.destination("orders").groups.values():
        assert [cursor.committed_offset for cursor in group.cursors] == [1] * 100


def test_no_search_for_what_is_too_old_visits_all_partitions_at_once() -> None:
    log = BackendState(options := parse("memory://?partitions=1000&retention=100"))
    capacity = Capacity(log, options)
    for number in range(20):
        append(log, capacity, Message(f"d{number}", partition=999), 500)
        log.group(log.destination(f"d{number}"), "g", 0)
    steps = 20 * 1000 // SLICE
    assert [capacity.expire(550) for _ in range(steps)] == [True] * steps
    assert not capacity.expire(550)
    forgotten = list(log.forget_idle(1000))
    assert max(map(len, forgotten)) <= 1
    assert sum(map(len, forgotten)) == 20
    while log.count_step():
        pass
    assert [capacity.expire(1000) for _ in range(steps)] == [True] * steps
    assert (capacity.expire(1000), capacity.messages) == (False, 0)
    for _ in range(2):  # the first one sees that there was traffic
        assert list(log.forget_empty(1000)) == [[]] * 20
    assert [len(empty) for empty in log.forget_empty(1000 + 3_600_000)] == [1] * 20


def test_groups_are_forgotten_in_slices_of_one_destination() -> None:
    log = BackendState(parse("memory://?partitions=1&retention=100&max_groups=5000"))
    groups = [log.group(log.destination("orders"), f"g{number}", 0) for number in range(5000)]
    found: list[StoredGroup] = []
    for forgotten in log.forget_idle(1000):
        if not found:  # between two slices
            groups[-1].subscribed = True
            log.remove_groups(log.destination("orders"), [groups[-2]])
        assert len(forgotten) <= SLICE
        found += forgotten
    assert found == groups[:-2]
    assert log.destination("orders").groups == {groups[-1].name: groups[-1]}


def test_what_becomes_old_during_a_search_is_found_by_the_next_one() -> None:
    log = BackendState(options := parse("memory://?partitions=1000&retention=100&max_messages=2"))
    capacity = Capacity(log, options)
    for number in (0, 999):
        append(log, capacity, Message("orders", partition=number), 10 * number)
    assert capacity.expire(100)
    append(log, capacity, Message("orders", partition=5), 110)
    assert (len(log.destination("orders").partitions[0]), capacity.messages) == (0, 2)


def test_columns_are_rewritten_in_steps() -> None:
    visited = 0

    class Counted(RecordList):
        def __getitem__(self, index: int) -> Record | None:
            nonlocal visited
            visited += 1
            return super().__getitem__(index)

        def __iter__(self) -> Iterator[Record | None]:
            nonlocal visited
            visited += len(self)
            return super().__iter__()

    partition = Partition(0)
    partition.messages = Counted()
    kept: dict[int, tuple[Record, int, int, int]] = {}
    for number in range(30_000):
        record = pack(Message("orders", b"%d" % number))
        partition.append(record, partition.reserve(), number + 7, number + 9)
        kept[number] = record, number + 7, number + 9, 0
    most = 0
    draw = Random(5)  # noqa: S311 - no secret
    for _ in range(250):
        for offset in draw.sample(sorted(kept), 100):
            partition.drop(partition.index(offset))
            del kept[offset]
        for offset in draw.sample(sorted(kept), 50):
            record, sequence, stored, acks = kept[offset]
            assert partition.count_ack(partition.index(offset)) == acks + 1
            kept[offset] = record, sequence, stored, acks + 1
        before = visited
        partition.compact()
        most = max(most, visited - before)
    found = {
        offset: (partition.messages[at], partition.sequences[at], partition.stored[at], partition.acks[at])
        for at, offset in partition.kept()
    }
    assert found == kept
    assert (len(partition), partition.first) == (len(kept), min(kept))
    assert len(partition.messages) < 3 * len(kept), "dropped ones leave the columns"
    assert 0 < most < 5000


def test_the_explanation_of_a_full_backend_visits_some_cursors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    log = BackendState(options := parse("memory://?partitions=1000&max_messages=1"))
    capacity = Capacity(log, options)
    append(log, capacity, Message("orders", partition=0), 0)
    for number in range(50):
        log.group(log.destination("orders"), f"g{number}", 0)
    visited: list[Cursor] = []

    def unsettled(cursor: Cursor) -> int:
        visited.append(cursor)
        return len(cursor.partition)

    monkeypatch.setattr(Cursor, "unsettled", unsettled)
    with pytest.raises(BackendFull, match="of 'orders' has 1 messages to settle"):
        append(log, capacity, Message("orders", partition=0), 0)
    assert len(visited) == 10_000
