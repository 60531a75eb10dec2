"""One partition while this bridge holds it: what has come, what is handed out, what is to be acknowledged. Pure.

Delivery tags are of one channel, and only while it is open. After another one is opened everything that was not
acknowledged comes again; it is known by its message id, and keeps its lease and its count.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from adapters.amqp.messages import Arrival
from adapters.base import Delivery
from adapters.rabbitmq.message.mapping import broker_attempts, from_arrival, message_id

W = TypeVar("W")
"""Whatever waits for acknowledgements."""


class Item(Generic[W]):
    """One message of a partition, from its arrival until the broker is known to have forgotten it."""

    __slots__ = ("attempts", "backfilled", "identity", "position", "settled", "tag", "waiters")

    def __init__(self, tag: int, *, backfilled: bool = False) -> None:
        self.tag = tag
        """0: its channel was closed, and it has not come again."""
        self.backfilled = backfilled
        """Whether it comes from the partition's history."""
        self.attempts: int | None = None
        """As it came again; None: to be worked out when it is fetched."""
        self.identity = ""
        """Its message id, once it was looked up; empty: it is no message."""
        self.position = -1
        """-1: it was not fetched."""
        self.settled = False
        self.waiters: list[W] = []
        """Who waits until the broker has forgotten it."""


class Expected(Generic[W]):
    """Messages by their ids; several may share one."""

    def __init__(self, items: Iterable[Item[W]]) -> None:
        self._items: dict[str, deque[Item[W]]] = {}
        for item in items:
            if item.identity:
                self._items.setdefault(item.identity, deque()).append(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def take(self, identity: str) -> Item[W] | None:
        """Return what has come again: of those that share an id rather an unsettled one, for none may be lost."""
        items = self._items.get(identity)
        if items is None:
            return None
        item = next((item for item in items if not item.settled), items[0])
        items.remove(item)
        if not items:
            del self._items[identity]
        return item

    def clear(self) -> list[Item[W]]:
        """Expect nothing more; returns what has not come."""
        left = [item for items in self._items.values() for item in items]
        self._items = {}
        return left


_NOTHING: Final[Mapping[str, int]] = {}


class Ack(NamedTuple):
    """An acknowledgement to be sent."""

    tag: int
    multiple: bool
    """Also of everything before it."""


class Unacked(Generic[W]):
    """The state of one partition."""

    def __init__(self, partition: int, destination: str, positions: Iterator[int], counter: str | None) -> None:
        """`positions` are used once in the life of a subscription; `counter` is what the queue counts deliveries in."""
        self.partition = partition
        self.attempts: dict[str, int] = {}
        """By message id, of what was handed out and is not settled, here or by the previous holder of the partition."""
        self.bytes = 0
        """Bodies that wait to be fetched."""
        self.removed: list[W] = []
        """Who waited for an acknowledgement of what has not come again, so that the broker must have forgotten it."""
        self.attempts_missing = False
        """Whether something waits that was delivered before, and its note was not looked up."""
        self.backfilled = 0
        """Messages of the partition's history that the broker has not forgotten."""
        self.deduplicating = False
        """Whether two queues are read at a time: then the order of arrival says nothing."""
        self._destination = destination
        self._positions = positions
        self._counter = counter
        self._since = next(positions)
        self._waiting: deque[tuple[Item[W], Arrival]] = deque()
        self._out: dict[int, Item[W]] = {}
        """By position: fetched, and the broker is not known to have forgotten it."""
        self._tags: dict[int, Item[W]] = {}
        """Delivered on the open channel and not acknowledged on it, in order."""
        self._to_ack: dict[int, None] = {}
        """Tags that are settled, in the order of that."""
        self._sent: list[Item[W]] = []
        """Acknowledged on the open channel; whether the broker has received that is not known."""
        self._expected: Expected[W] = Expected(())
        self._attempts_known: bool | None = None
        """Whether it is known what was handed out before; None: not looked up yet."""
        self._first_delivery_seen = False
        """Whether a message has come that was never delivered before: all that had been came before it."""

    @property
    def waiting(self) -> int:
        """Messages that wait to be fetched."""
        return len(self._waiting)

    @property
    def fetched(self) -> int:
        """Messages that were fetched, and that the broker is not known to have forgotten."""
        return len(self._out)

    @property
    def attempts_known(self) -> bool:
        """Whether it is known what the previous holder of the partition has written down."""
        return self._attempts_known is not None

    @property
    def unacknowledged(self) -> int:
        """Messages that would come again if the partition were released now."""
        return len(self._tags)

    @property
    def to_ack(self) -> bool:
        """Whether something is settled and not acknowledged."""
        return bool(self._to_ack)

    @property
    def oldest_tag(self) -> int:
        """The oldest tag that is not acknowledged; 0: there is none."""
        return next(iter(self._tags), 0)

    @property
    def newest_tag(self) -> int:
        """The newest one."""
        return next(reversed(self._tags), 0)

    @property
    def next_size(self) -> int | None:
        """Bytes of what is fetched next; None: nothing can be."""
        if not self._waiting or self.attempts_missing:
            return None
        return len(self._waiting[0][1].body)

    def arrived(self, arrival: Arrival, *, backfilled: bool = False) -> None:
        """Take in a message; `early` one of the partition's history."""
        item = self._expected.take(message_id(arrival)) if arrival.redelivered and self._expected else None
        if item is None:
            item = Item[W](arrival.tag, backfilled=backfilled)
            self.backfilled += backfilled
            if not arrival.redelivered:
                self._on_first_delivery()
            elif self._attempts_known is None:
                self.attempts_missing = True
        item.tag = arrival.tag
        self._tags[arrival.tag] = item
        if item.settled:
            self._to_ack[arrival.tag] = None
        elif item.position < 0:
            self.bytes += len(arrival.body)
            self._waiting.append((item, arrival))

    def hold(self, tag: int) -> None:
        """Take in what is no message; `dropped` ends it."""
        self._tags[tag] = Item[W](tag)

    def discard(self, tag: int) -> None:
        """Be done with what is no message for consumers."""
        item = self._tags.setdefault(tag, Item[W](tag))
        item.settled = True
        self._to_ack[tag] = None

    def set_attempts(self, attempts: Mapping[str, int] | None) -> None:
        """Learn what the note says of who held the partition before; None: there is none."""
        self.attempts_missing = False
        if self._attempts_known is None:
            self._attempts_known = attempts is not None
            for identity, count in (attempts or _NOTHING).items():
                self.attempts.setdefault(identity, count)
            self._prune()

    def take(self) -> Delivery:
        """Hand the next one to the engine; `peeked` says whether there is one."""
        item, arrival = self._waiting.popleft()
        self.bytes -= len(arrival.body)
        message = from_arrival(arrival, self._destination, self.partition)
        item.identity = message.message_id or ""
        item.position = next(self._positions)
        self._out[item.position] = item
        attempts = self._attempts_of(arrival, item.identity) if item.attempts is None else item.attempts
        if attempts:
            self.attempts[item.identity] = attempts
        return Delivery(message, self.partition, item.position, attempts)

    def attempt(self, position: int, attempts: int) -> bool:
        """Remember how often something was handed out; returns whether it is held here and not settled."""
        item = self._out.get(position)
        if item is None or item.settled:
            return False
        if attempts:
            self.attempts[item.identity] = attempts
        else:
            self.attempts.pop(item.identity, None)
        return True

    def settle(self, position: int, waiter: W) -> bool | None:
        """Be done with something; `waiter` is completed once the broker has removed it.

        Returns False if the broker has already, and None if it was fetched when the partition was held before.
        """
        item = self._out.get(position)
        if item is None:
            return None if position < self._since else False
        item.waiters.append(waiter)
        if not item.settled:
            item.settled = True
            self.attempts.pop(item.identity, None)
            if item.tag:
                self._to_ack[item.tag] = None
        return True

    def acks(self, limit: int) -> list[Ack]:
        """Take at most so many acknowledgements to be sent now."""
        acks: list[Ack] = []
        count = 0
        for item in self._tags.values():
            if not item.settled:
                break
            count += 1
        if count:
            first = list(islice(self._tags, count))
            acks.append(Ack(first[-1], count > 1))
            for tag in first:
                self._send(tag)
        while self._to_ack and len(acks) < limit:
            tag = next(iter(self._to_ack))
            acks.append(Ack(tag, False))
            self._send(tag)
        return acks

    def confirmed(self) -> list[W]:
        """Forget what was acknowledged, as the broker has; returns who waited for it."""
        sent, self._sent = self._sent, []
        return self._remove(sent)

    def channel_closed(self) -> list[W]:
        """Expect everything again: the channel is closed. Returns who waits for an acknowledgement that was sent."""
        unsure = [waiter for item in self._sent for waiter in item.waiters]
        for item in self._sent:
            item.waiters = []
        for item, arrival in self._waiting:
            item.identity = message_id(arrival)
            if item.attempts is None and self._attempts_known is not None:
                item.attempts = self._attempts_of(arrival, item.identity)
        before = [*self._expected.clear(), *self._sent, *self._tags.values()]
        for item in before:
            item.tag = 0
        self._expected = Expected(before)
        self._tags, self._to_ack, self._sent = {}, {}, []
        self._waiting.clear()
        self.bytes = 0
        return unsure

    def attempts_record(self) -> dict[str, int]:
        """Return what the next holder of the partition needs."""
        if (
            self._attempts_known is False
        ):  # the broker's counts go on, and its next ones would count what was never handed out
            known = {message_id(arrival): arrival for _, arrival in self._waiting if arrival.redelivered}
            return {identity: self._attempts_of(known[identity], identity) for identity in known} | self.attempts
        return dict(self.attempts)

    def waiters(self) -> tuple[list[W], list[W]]:
        """Return who waits for an acknowledgement that was sent, and for one that was not."""
        sent = [waiter for item in self._sent for waiter in item.waiters]
        for item in self._sent:
            item.waiters = []
        return sent, [waiter for item in self._out.values() for waiter in item.waiters]

    def _on_first_delivery(self) -> None:
        """Note that everything which had been delivered before has come again by now."""
        if self.deduplicating:
            return
        if not self._first_delivery_seen:
            self._first_delivery_seen = True
            if self._attempts_known is None and not self.attempts_missing:
                self._attempts_known = True  # nothing had been: from here on the bridge itself has noted everything
            self._prune()
        if self._expected:
            self.removed += self._remove(self._expected.clear())

    def _prune(self) -> None:
        """Drop what the note says of messages that are not there any more."""
        if self._first_delivery_seen and self._attempts_known and self.attempts:
            there = {item.identity for item in self._out.values()}
            there.update(message_id(arrival) for _, arrival in self._waiting)
            self.attempts = {identity: count for identity, count in self.attempts.items() if identity in there}

    def _attempts_of(self, arrival: Arrival, identity: str) -> int:
        if not arrival.redelivered:
            return broker_attempts(arrival, None)
        known = self.attempts.get(identity)
        if known is not None:
            return known
        if self._attempts_known:
            return broker_attempts(arrival._replace(redelivered=False), None)
        return broker_attempts(arrival, self._counter)

    def _send(self, tag: int) -> None:
        self._to_ack.pop(tag, None)
        self._sent.append(self._tags.pop(tag))

    def _remove(self, items: Collection[Item[W]]) -> list[W]:
        waiters: list[W] = []
        for item in items:
            self._out.pop(item.position, None)
            self.backfilled -= item.backfilled
            waiters += item.waiters
            item.waiters = []
        return waiters


GROUP_BYTES: Final = 64 << 20
"""Bodies of one group that wait to be fetched, shared by its partitions."""
PARTITION_BYTES: Final = 1 << 20
"""What a partition has at least, also of a group with very many."""


class PrefetchWindow:
    """How many messages of a partition RabbitMQ delivers before they are acknowledged, by their size.

    RabbitMQ bounds their number, not their bytes, and takes another number for a new consumer only. So large messages
    are noticed when too many bytes of them wait, and the partition gets another channel with a smaller number.
    """

    def __init__(self, most: int, partitions: int) -> None:
        """`most` messages are delivered at a time; `partitions` of the group share its bytes."""
        self.count = most
        self._most = most
        self._share = max(GROUP_BYTES // partitions, PARTITION_BYTES)
        self._largest = 0
        """Bytes of the largest body since the count was reviewed."""

    def arrived(self, size: int, waiting: int) -> bool:
        """Note a body of `size` bytes; returns whether it makes `count` smaller, as too many bytes are `waiting`."""
        self._largest = max(self._largest, size)
        if waiting <= self._share or self._fitting >= self.count:
            return False
        self.count = self._fitting
        return True

    def review(self) -> bool:
        """Forget the size of older messages, now and then; returns whether `count` grows."""
        grows, count = self._largest > 0 and self._fitting > self.count, self._fitting
        self._largest = 0
        if grows:
            self.count = count
        return grows

    def beside(self, fetched: int) -> int:
        """Return the number for a new consumer: what was fetched comes again first, and must not keep the rest away."""
        return min(self._most, max(self.count, fetched + 1))

    @property
    def _fitting(self) -> int:
        return max(1, min(self._most, self._share // max(self._largest, 1)))
