"""A held partition against a model of a quorum queue: channels close, acknowledgements are lost, ids come twice."""

from collections import Counter, deque
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.base import Delivery
from adapters.rabbitmq.consume.partition_state import Ack, Unacked
from bridge.message import Message

IDS = st.sampled_from("abcd")


class Call:
    """One acknowledgement that a caller waits for."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.told = False


class Queue:
    """What RabbitMQ does: what is returned comes first, in order, and says so."""

    def __init__(self) -> None:
        self.ready: deque[tuple[str, bool]] = deque()
        self.unacked: dict[int, str] = {}
        self.forgot: Counter[str] = Counter()
        self._tag = 0

    def deliver(self) -> Arrival:
        identity, redelivered = self.ready.popleft()
        self._tag += 1
        self.unacked[self._tag] = identity
        return Arrival(self._tag, redelivered, "p0", Properties(message_id=identity), b"body")

    def ack(self, ack: Ack) -> None:
        tags = [tag for tag in self.unacked if tag == ack.tag or (ack.multiple and tag < ack.tag)]
        assert ack.tag in tags, "RabbitMQ closes the channel over a tag that it does not know"
        self.forgot.update(self.unacked.pop(tag) for tag in tags)

    def close(self) -> None:
        self.ready.extendleft((identity, True) for identity in reversed(self.unacked.values()))
        self.unacked, self._tag = {}, 0


class HeldPartition(RuleBasedStateMachine):
    deliveries: Bundle[Delivery] = Bundle("deliveries")
    settled: Bundle[Delivery] = Bundle("settled")

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.held = Unacked[Call](0, "d", count(1), None)
        self.on_the_way: list[Ack] = []
        self.calls: list[Call] = []
        self.again: list[Call] = []
        """Those of what was settled already, and waited for by another one."""
        self.open: dict[int, str] = {}
        """Handed out and not settled, by position."""
        self.done: Counter[str] = Counter()
        """Settled."""
        self.missing: set[int] = set()
        """Positions of those whose messages are fetched again with the next channel."""

    @rule(identity=IDS)
    def publish(self, identity: str) -> None:
        self.queue.ready.append((identity, False))

    @rule(times=st.integers(1, 5))
    def deliver(self, times: int) -> None:
        for _ in range(min(times, len(self.queue.ready))):
            self.held.arrived(self.queue.deliver())
            self._told(self.held.removed)
            self.held.removed = []

    @rule(target=deliveries)
    def take(self) -> Any:  # noqa: ANN401 - one, or hypothesis' own "none"
        if self.held.next_size is None:
            return multiple()
        delivery = self.held.take()
        assert delivery.position not in self.open
        self.open[delivery.position] = str(delivery.message.message_id)
        return delivery

    @rule(delivery=deliveries, attempts=st.integers(0, 5))
    def lease(self, delivery: Delivery, attempts: int) -> None:
        self.held.set_attempt(delivery.position, attempts)

    @rule(target=settled, delivery=consumes(deliveries))
    def settle(self, delivery: Delivery) -> Delivery:
        self._settle(delivery.position)
        return delivery

    @rule(delivery=settled)
    def settle_again(self, delivery: Delivery) -> None:
        call = Call(str(delivery.message.message_id))
        if self.held.settle(delivery.position, call):
            self.again.append(call)

    @rule(delivery=deliveries)
    def fetch_again(self, delivery: Delivery) -> None:
        def delivered(message: Message | None) -> None:
            if message is None:
                assert delivery.position not in self.open
            else:
                assert message.message_id == delivery.message.message_id
            self.missing.remove(delivery.position)

        assert self.held.fetch_again(delivery.position, delivered)
        self.missing.add(delivery.position)

    @rule(limit=st.integers(1, 4))
    def send(self, limit: int) -> None:
        acks = self.held.acks(limit)
        assert len(acks) <= max(limit, 1)
        self.on_the_way += acks

    @rule()
    def prove(self) -> None:
        self._hear(len(self.on_the_way))
        self._told(self.held.confirmed())

    @rule(heard=st.integers(0, 5))
    def lose_the_channel(self, heard: int) -> None:
        self._hear(heard)
        self.on_the_way = []
        self.queue.close()
        for call in self.held.channel_closed():
            (self.calls if call in self.calls else self.again).remove(call)  # its outcome is unknown

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.queue.forgot <= self.done

    @invariant()
    def nothing_is_handed_out_twice(self) -> None:
        there = Counter(self.queue.unacked.values()) + Counter(identity for identity, _ in self.queue.ready)
        assert Counter(self.open.values()) <= there

    @invariant()
    def whoever_is_told_is_told_the_truth(self) -> None:
        assert Counter(call.identity for call in self.calls if call.told) <= self.queue.forgot

    @invariant()
    def counts_are_of_what_is_there(self) -> None:
        assert set(self.held.attempts_record()) <= set(self.open.values())
        assert self.held.bytes == sum(message.size for _, message, _ in self.held.waiting)
        assert len(self.held.unacknowledged) <= len(self.queue.unacked)

    def teardown(self) -> None:
        if self.missing:
            self.lose_the_channel(0)
        while self.queue.ready:
            self.deliver(5)
        while self.held.next_size is not None:
            delivery = self.held.take()
            self.open[delivery.position] = str(delivery.message.message_id)
        for position in list(self.open):
            self._settle(position)
        while acks := self.held.acks(24):
            self.on_the_way += acks
        self.prove()
        assert not self.queue.unacked
        assert not self.held.unacknowledged
        # what was acknowledged on a channel that closed may be gone, which nothing shows until something new comes
        self.publish("e")
        self.deliver(1)
        assert all(call.told for call in (*self.calls, *self.again))
        assert self.done == self.queue.forgot
        assert not self.missing

    def _settle(self, position: int) -> None:
        identity = self.open.pop(position)
        self.done[identity] += 1
        call = Call(identity)
        self.calls.append(call)
        assert self.held.settle(position, call) is True

    def _hear(self, acks: int) -> None:
        heard, self.on_the_way = self.on_the_way[:acks], self.on_the_way[acks:]
        for ack in heard:
            self.queue.ack(ack)

    def _told(self, calls: list[Call]) -> None:
        for call in calls:
            call.told = True


HeldPartition.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestHeldPartition = HeldPartition.TestCase


def held(counter: str | None = "x-delivery-count") -> Unacked[object]:
    return Unacked(3, "orders", count(1), counter)


def arrival(tag: int, identity: str, *, again: bool = False, counted: int = 0) -> Arrival:
    headers = {"x-delivery-count": counted} if counted else None
    return Arrival(tag, again, "p3", Properties(message_id=identity, headers=headers), b"body")


def test_a_row_of_acknowledgements_is_one() -> None:
    here = held()
    for tag in range(1, 11):
        here.arrived(arrival(tag, str(tag)))
    taken = [here.take() for _ in range(10)]
    for each in (*taken[:4], taken[6], taken[5], taken[8]):
        here.settle(each.position, None)
    assert here.acks(3) == [Ack(4, True), Ack(7, False), Ack(6, False)]
    assert here.acks(3) == [Ack(9, False)]
    here.settle(taken[4].position, None)
    assert here.acks(3) == [Ack(5, False)]
    assert not here.acks(3)


def test_nothing_is_handed_out_until_the_note_is_read() -> None:
    here = held()
    here.arrived(arrival(1, "a", again=True))
    here.arrived(arrival(2, "b"))
    assert here.attempts_missing
    assert here.next_size is None
    here.set_attempts({"a": 2, "gone": 5})
    assert [here.take().attempts for _ in range(2)] == [2, 0]
    assert here.attempts_record() == {"a": 2}


def test_who_holds_it_anew_needs_no_note_if_nothing_was_delivered_before() -> None:
    here = held()
    here.arrived(arrival(1, "a"))
    assert not here.attempts_missing
    assert here.attempts_known
    here.arrived(arrival(2, "b", again=True, counted=7))
    assert [here.take().attempts for _ in range(2)] == [0, 0]


def test_without_a_note_the_broker_is_believed() -> None:
    here = held()
    here.set_attempts(None)
    here.arrived(arrival(1, "a", again=True, counted=7))
    here.arrived(arrival(2, "b", again=True))
    here.arrived(arrival(3, "c", counted=7))
    assert here.attempts_record() == {"a": 7, "b": 1}
    assert [here.take().attempts for _ in range(3)] == [7, 1, 0]


def test_a_queue_that_counts_nothing_is_not_believed() -> None:
    here = held(None)
    here.set_attempts(None)
    here.arrived(arrival(1, "a", again=True, counted=7))
    assert here.take().attempts == 1


def test_a_position_is_of_one_holding() -> None:
    positions = count(1)
    before: Unacked[Any] = Unacked(0, "d", positions, None)
    before.arrived(arrival(1, "a"))
    position = before.take().position
    after: Unacked[Any] = Unacked(0, "d", positions, None)
    after.arrived(arrival(1, "a", again=True))
    after.set_attempts({})
    assert after.settle(position, None) is None
    assert after.settle(after.take().position, None) is True


def test_a_channel_that_closes_changes_neither_place_nor_count() -> None:
    here = held()
    here.set_attempts(None)
    here.arrived(arrival(1, "a", again=True, counted=2))
    here.arrived(arrival(2, "b", again=True, counted=2))
    leased = here.take()
    here.set_attempt(leased.position, 3)
    here.channel_closed()
    assert here.next_size is None
    here.arrived(arrival(1, "a", again=True, counted=3))
    here.arrived(arrival(2, "b", again=True, counted=3))
    assert here.take().attempts == 2
    assert here.attempts_record() == {"a": 3, "b": 2}
    here.settle(leased.position, None)
    assert here.acks(9) == [Ack(1, False)]


def test_a_first_delivery_counts_nothing_also_if_its_channel_closes_before_the_record_is_read() -> None:
    here = held()
    here.arrived(arrival(1, "a", again=True, counted=2))
    here.arrived(arrival(2, "b"))
    here.channel_closed()
    here.arrived(arrival(1, "a", again=True, counted=3))
    here.arrived(arrival(2, "b", again=True, counted=1))
    here.set_attempts(None)
    assert here.attempts_record() == {"a": 3, "b": 0}
    assert [here.take().attempts for _ in range(2)] == [3, 0]


def test_of_two_with_one_id_the_one_that_nobody_settled_comes_again() -> None:
    here = held()
    here.arrived(arrival(1, "a"))
    here.arrived(arrival(2, "a"))
    first, second = here.take(), here.take()
    here.settle(first.position, None)
    assert here.acks(9) == [Ack(1, False)]
    here.channel_closed()  # the broker has received that, unconfirmed
    here.arrived(arrival(1, "a", again=True))
    assert not here.acks(9), "it would be lost: its lease goes on"
    here.settle(second.position, None)
    assert here.acks(9) == [Ack(1, False)]


def test_what_is_no_message_is_acknowledged_when_it_is_time() -> None:
    here = held()
    here.hold_end(1)
    here.discard(2)
    here.arrived(arrival(3, "a"), backfilled=True)
    assert here.backfilled == 1
    here.settle(here.take().position, None)
    assert here.acks(9) == [Ack(2, False), Ack(3, False)]
    here.confirmed()
    assert here.backfilled == 0
    here.discard(1)
    assert here.acks(9) == [Ack(1, False)]
    assert not here.unacknowledged
    here.discard(4)
    here.discard(5)
    assert here.acks(9) == [Ack(5, True)], "a row of them is one, as of messages"


def test_a_delivery_is_of_its_destination_and_partition() -> None:
    here = held()
    here.arrived(arrival(1, "a"))
    taken = here.take()
    assert (taken.message.destination, taken.message.message_id, taken.message.body) == ("orders", "a", b"body")
    assert (taken.partition, taken.position, taken.attempts, taken.message.partition) == (3, 2, 0, 3)
    assert (here.backfilled, here.two_queues, here.attempts_missing, here.bytes) == (0, False, False, 0)
    assert here.settle(taken.position, "me") is True
    here.acks(9)
    assert here.confirmed() == ["me"]
    assert here.settle(taken.position, "again") is False, "the broker has forgotten it"


def test_who_waits_is_told_apart_by_what_was_sent() -> None:
    here = held()
    for tag in (1, 2, 3):
        here.arrived(arrival(tag, str(tag)))
    taken = [here.take() for _ in range(3)]
    for each in taken:
        here.settle(each.position, f"waits for {each.message.message_id}")
    here.acks(1)
    here.arrived(arrival(4, "4"))
    here.settle(here.take().position, "waits for 4")
    assert here.waiters() == (["waits for 1", "waits for 2", "waits for 3"], ["waits for 4"])
    assert here.waiters() == ([], ["waits for 4"]), "each is returned once"


def test_what_was_settled_on_a_channel_that_closed_is_acknowledged_only_when_it_comes_again() -> None:
    here = held()
    for tag in (1, 2):
        here.arrived(arrival(tag, str(tag)))
    first, second = here.take(), here.take()
    here.settle(first.position, "first")
    assert here.channel_closed() == []
    here.settle(second.position, "second")
    assert here.acks(9) == []
    here.arrived(arrival(1, "2", again=True))
    assert here.acks(9) == [Ack(1, False)]
    assert here.confirmed() == ["second"]
    assert here.removed == []
    here.arrived(arrival(2, "3"))
    assert here.removed == ["first"], "what is new comes after all that comes again"


def test_one_whose_acknowledgement_was_sent_is_not_known() -> None:
    here = held()
    here.arrived(arrival(1, "a"))
    here.settle(here.take().position, "a")
    here.acks(9)
    assert here.channel_closed() == ["a"]
    here.arrived(arrival(1, "b"))
    assert here.removed == [], "it was told already"


def test_messages_of_two_queues_are_recognized_after_the_channel_was_closed() -> None:
    """The history is delivered first, then its end, then the queue, also to another channel."""
    here = held()
    here.two_queues = True
    for tag, identity in enumerate("aab", 1):
        here.arrived(arrival(tag, identity), backfilled=True)
    here.hold_end(4)
    for tag, identity in enumerate("abc", 5):
        here.arrived(arrival(tag, identity))
    taken = [here.take() for _ in range(6)]
    here.settle(taken[1].position, "call")
    assert here.acks(1) == [Ack(2, False)]
    assert here.channel_closed() == ["call"]
    found: list[Message | None] = []
    for each in (taken[0], taken[3]):
        assert here.fetch_again(each.position, found.append)
    here.arrived(arrival(1, "a", again=True), backfilled=True)
    here.arrived(arrival(2, "b", again=True), backfilled=True)
    assert here.backfilled == 3
    here.hold_end(3)  # so the broker has removed the other "a"
    assert here.backfilled == 2
    for tag, identity in enumerate("abc", 4):
        here.arrived(arrival(tag, identity, again=True))
    here.arrived(arrival(7, "d"))
    assert here.next_size is not None
    assert here.take().message.message_id == "d"
    assert here.next_size is None
    assert [message and message.message_id for message in found] == ["a", "a"]
    for each in (taken[0], *taken[2:]):
        here.settle(each.position, "call")
    assert here.acks(24) == [Ack(2, True), *(Ack(tag, False) for tag in (4, 5, 6))]
    here.confirmed()
    assert here.backfilled == 0
