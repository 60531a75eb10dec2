"""The unacknowledged messages of one partition that this bridge consumes. Pure.

Delivery tags are valid on one channel, while it is open. On the next channel the broker delivers all unacknowledged
messages again. They are recognized by their message ids, and keep their leases and attempts.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, Generic, NamedTuple, TypeVar

from adapters.amqp.messages import Arrival
from adapters.base import Delivery
from adapters.rabbitmq.mapping import broker_attempts, from_arrival, message_id
from bridge.message import Message

W = TypeVar("W")
"""A call that waits for acknowledgements."""
DeliveredAgain = Callable[[Message | None], None]
"""Called with a message that was fetched before; None: the broker has removed it."""


class Item(Generic[W]):
    """One message of a partition, from its delivery until the broker has confirmed its removal."""

    __slots__ = ("again", "attempts", "backfilled", "identity", "position", "settled", "size", "tag", "waiters")

    def __init__(self, tag: int, *, backfilled: bool = False) -> None:
        self.tag = tag
        """0: its channel was closed, and it has not been delivered again."""
        self.backfilled = backfilled
        """Whether it is from the partition's history."""
        self.attempts: int | None = None
        """Before this delivery; None: it was delivered before, perhaps to another bridge, whose record counts."""
        self.identity = ""
        """Its message id; empty: it is a mark."""
        self.position = -1
        """-1: it was not fetched."""
        self.settled = False
        self.size = 0
        """Bytes of the message."""
        self.waiters: tuple[W, ...] = ()
        """Calls that wait until the broker has removed it."""
        self.again: DeliveredAgain | None = None
        """Gets the message when it is delivered again."""


class Expected(Generic[W]):
    """Messages that the broker will deliver again, by their queue and id; several may have the same id."""

    def __init__(self, items: Iterable[Item[W]]) -> None:
        self._items: dict[tuple[bool, str], deque[Item[W]]] = {}
        """The first half of a key: whether it is from the history."""
        for item in items:
            if item.identity:
                self._items.setdefault((item.backfilled, item.identity), deque()).append(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def take(self, identity: str, *, backfilled: bool) -> Item[W] | None:
        """Return the message that was delivered again. Of several with this id, an unsettled one: none may be lost."""
        items = self._items.get((backfilled, identity))
        if items is None:
            return None
        item = next((item for item in items if not item.settled), items[0])
        items.remove(item)
        if not items:
            del self._items[backfilled, identity]
        return item

    def clear(self, *, backfilled: bool) -> list[Item[W]]:
        """Expect no more of the history, or of the queue; returns the messages that were not delivered again."""
        left = [item for (of_history, _), items in self._items.items() if of_history == backfilled for item in items]
        self._items = {key: items for key, items in self._items.items() if key[0] != backfilled}
        return left


_NO_ATTEMPTS: Final[Mapping[str, int]] = {}


class Ack(NamedTuple):
    """An acknowledgement to be sent."""

    tag: int
    multiple: bool
    """Also of all earlier ones."""


class Unacked(Generic[W]):
    """The state of one partition."""

    def __init__(self, partition: int, destination: str, positions: Iterator[int], counter: str | None) -> None:
        """`positions` are unique in a subscription. `counter`: the header in which the queue counts deliveries."""
        self.partition = partition
        self.attempts: dict[str, int] = {}
        """By message id: of unsettled messages that consumers got, also from an earlier bridge."""
        self.bytes = 0
        """Sizes of the messages that wait to be fetched."""
        self.removed: list[W] = []
        """Calls that waited for messages that were not delivered again: so the broker has removed those."""
        self.attempts_missing = False
        """Whether a redelivered message waits for the attempts record to be read."""
        self.backfilled = 0
        """Messages of the partition's history that the broker has not removed."""
        self.two_queues = False
        """Whether the history and the queue are consumed: then redelivered messages do not come before all others."""
        self._destination = destination
        self._positions = positions
        self._counter = counter
        self._since = next(positions)
        self.waiting: deque[tuple[Item[W], Message, Arrival | None]] = deque()
        """Messages to be fetched; the arrival of those that are redelivered, whose attempts may not be known yet.

        They are mapped when they arrive: properties and headers that are kept for 1,000 messages take 3 us longer."""
        self.fetched: dict[int, Item[W]] = {}
        """By position: fetched, and the broker has not confirmed the removal."""
        self.unacknowledged: dict[int, Item[W]] = {}
        """By tag, in order: delivered on the open channel, and not acknowledged on it."""
        self.to_ack: dict[int, None] = {}
        """Tags of settled messages, in the order in which they were settled."""
        self._sent: list[Item[W]] = []
        """Acknowledged on the open channel, and not confirmed."""
        self._expected: Expected[W] = Expected(())
        self._attempts_known: bool | None = None
        """Whether there was a record of earlier attempts; None: it was not read yet."""
        self._newest = 0
        """The newest delivery tag when `has_stale` was last called on the open channel."""
        self._first_delivery_seen = False
        """Whether a message has arrived that is not redelivered. All redelivered ones arrive before it."""

    @property
    def attempts_known(self) -> bool:
        """Whether the attempts record of the earlier bridge was read, or is not needed."""
        return self._attempts_known is not None

    @property
    def next_size(self) -> int | None:
        """Bytes of the message that is fetched next; None: none can be fetched."""
        if not self.waiting or self.attempts_missing:
            return None
        return self.waiting[0][1].size

    def unacknowledged_bytes(self) -> int:
        """Return the size of all messages that are delivered and not acknowledged."""
        return sum(item.size for item in self.unacknowledged.values())

    def has_stale(self) -> bool:
        """Whether a message was unacknowledged the last time, too, that this was called on the open channel."""
        oldest, newest = next(iter(self.unacknowledged), 0), self._newest
        self._newest = next(reversed(self.unacknowledged), 0)
        return 0 < oldest <= newest

    def arrived(self, arrival: Arrival, *, backfilled: bool = False) -> int:
        """Add a delivered message, and return its size; `backfilled`: of the partition's history."""
        redelivered = arrival.redelivered
        item = None
        if redelivered and self._expected:
            item = self._expected.take(message_id(arrival), backfilled=backfilled)
        if item is None:
            item = Item(arrival.tag, backfilled=backfilled)  # `Item[W](…)` takes 2 us more
            self.backfilled += backfilled
            if not redelivered:
                item.attempts = broker_attempts(arrival, None)
                if self._expected or not self._first_delivery_seen:
                    self._on_first_delivery(backfilled=backfilled)
            elif self._attempts_known is None:
                self.attempts_missing = True
        item.tag = arrival.tag
        self.unacknowledged[arrival.tag] = item
        if item.again is not None:
            again, item.again = item.again, None
            again(from_arrival(arrival, self._destination, self.partition))
        if item.settled:
            self.to_ack[arrival.tag] = None
        elif item.position < 0:
            message = from_arrival(arrival, self._destination, self.partition)
            item.size = message.size
            self.bytes += item.size
            item.identity = message.message_id or ""
            self.waiting.append((item, message, arrival if redelivered else None))
            return message.size
        return len(arrival.body)

    def hold_end(self, tag: int) -> None:
        """Leave the mark that ends the history unacknowledged until `discard`."""
        self.unacknowledged[tag] = Item(tag)
        self.removed += self._remove(self._expected.clear(backfilled=True))

    def discard(self, tag: int) -> None:
        """Acknowledge a mark."""
        item = self.unacknowledged.setdefault(tag, Item(tag))
        item.settled = True
        self.to_ack[tag] = None

    def set_attempts(self, attempts: Mapping[str, int] | None) -> None:
        """Set the attempts that an earlier bridge has recorded; None: there is no record."""
        self.attempts_missing = False
        if self._attempts_known is None:
            self._attempts_known = attempts is not None
            for identity, count in (attempts or _NO_ATTEMPTS).items():
                self.attempts.setdefault(identity, count)
            self._prune()

    def take(self) -> Delivery:
        """Return the next message for the engine, if `next_size` is not None."""
        item, message, arrival = self.waiting.popleft()
        self.bytes -= message.size
        item.position = next(self._positions)
        self.fetched[item.position] = item
        attempts = self._attempts_of(item, arrival)
        if attempts:
            self.attempts[item.identity] = attempts
        return Delivery(message, self.partition, item.position, attempts)

    def set_attempt(self, position: int, attempts: int) -> bool:
        """Set the attempts of a fetched message; returns whether it is here and not settled."""
        item = self.fetched.get(position)
        if item is None or item.settled:
            return False
        if attempts:
            self.attempts[item.identity] = attempts
        else:
            self.attempts.pop(item.identity, None)
        return True

    def settle(self, position: int, waiter: W) -> bool | None:
        """Settle a fetched message; `waiter` is completed once the broker has removed it.

        Returns False if the broker has removed it already, and None if it was fetched before the partition was lost.
        """
        item = self.fetched.get(position)
        if item is None:
            return None if position < self._since else False
        item.waiters += (waiter,)
        if not item.settled:
            item.settled = True
            self.attempts.pop(item.identity, None)
            if item.tag:
                self.to_ack[item.tag] = None
        return True

    def fetch_again(self, position: int, again: DeliveredAgain) -> bool:
        """Expect a fetched message to be delivered again; False: the broker has removed it, and it is not."""
        item = self.fetched.get(position)
        if item is None:
            return False
        item.again = again
        return True

    def acks(self, limit: int) -> list[Ack]:
        """Return acknowledgements to be sent now, at most `limit`."""
        acks: list[Ack] = []
        count = 0
        for item in self.unacknowledged.values():
            if not item.settled:
                break
            count += 1
        if count:
            first = list(islice(self.unacknowledged, count))
            acks.append(Ack(first[-1], count > 1))
            for tag in first:
                self._send(tag)
        while self.to_ack and len(acks) < limit:
            tag = next(iter(self.to_ack))
            acks.append(Ack(tag, False))
            self._send(tag)
        return acks

    def confirmed(self) -> list[W]:
        """Remove the acknowledged messages: the broker has. Returns the calls that waited for it."""
        sent, self._sent = self._sent, []
        return self._remove(sent)

    def channel_closed(self) -> list[W]:
        """Expect all messages again: the channel is closed. Returns the calls whose acknowledgement was sent."""
        unsure = [waiter for item in self._sent for waiter in item.waiters]
        for item in self._sent:
            item.waiters = ()
        if self._attempts_known is not None:
            for item, _, arrival in self.waiting:
                item.attempts = self._attempts_of(item, arrival)
        expected = (self._expected.clear(backfilled=backfilled) for backfilled in (True, False))
        before = [*chain.from_iterable(expected), *self._sent, *self.unacknowledged.values()]
        for item in before:
            item.tag = 0
        self._expected = Expected(before)
        self.unacknowledged, self.to_ack, self._sent, self._newest = {}, {}, [], 0
        self.waiting.clear()
        self.bytes = 0
        return unsure

    def attempts_record(self) -> dict[str, int]:
        """Return the attempts that the next bridge of the partition needs."""
        if self._attempts_known is not False:
            return dict(self.attempts)
        # the next bridge must not use the broker's count, which has messages that no consumer got
        waiting = {item.identity: self._attempts_of(item, arrival) for item, _, arrival in self.waiting if arrival}
        return waiting | self.attempts

    def waiters(self) -> tuple[list[W], list[W]]:
        """Return the calls that wait for an acknowledgement that was sent, and for one that was not."""
        sent = [waiter for item in self._sent for waiter in item.waiters]
        for item in self._sent:
            item.waiters = ()
        return sent, [waiter for item in self.fetched.values() for waiter in item.waiters]

    def _on_first_delivery(self, *, backfilled: bool) -> None:
        """The first message of a queue that is not redelivered: all redelivered ones of the queue have arrived."""
        if self.two_queues:
            self.removed += self._remove(self._expected.clear(backfilled=backfilled))
            return
        if not self._first_delivery_seen:
            self._first_delivery_seen = True
            if self._attempts_known is None and not self.attempts_missing:
                self._attempts_known = True  # none was redelivered: this bridge knows all attempts
            self._prune()
        if self._expected:
            for of_history in (True, False):
                self.removed += self._remove(self._expected.clear(backfilled=of_history))

    def _prune(self) -> None:
        """Drop the attempts of messages that are not in the queue any more."""
        if self._first_delivery_seen and self._attempts_known and self.attempts:
            there = {item.identity for item in self.fetched.values()}
            there.update(item.identity for item, _, _ in self.waiting)
            self.attempts = {identity: count for identity, count in self.attempts.items() if identity in there}

    def _attempts_of(self, item: Item[W], arrival: Arrival | None) -> int:
        if item.attempts is not None or arrival is None:
            return item.attempts or 0
        known = self.attempts.get(item.identity)
        if known is not None:
            return known
        if self._attempts_known:
            return broker_attempts(arrival._replace(redelivered=False), None)
        return broker_attempts(arrival, self._counter)

    def _send(self, tag: int) -> None:
        self.to_ack.pop(tag, None)
        self._sent.append(self.unacknowledged.pop(tag))

    def _remove(self, items: Collection[Item[W]]) -> list[W]:
        waiters: list[W] = []
        for item in items:
            self.fetched.pop(item.position, None)
            self.backfilled -= item.backfilled
            waiters += item.waiters
            item.waiters = ()
            if item.again is not None:
                item.again(None)
        return waiters
