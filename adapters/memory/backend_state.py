"""The backend as a data structure: destinations, delayed messages, groups, and the log's replay. No clock, no I/O."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from secrets import randbits
from typing import Final, NamedTuple

from adapters.base import Delivery, Replayed
from adapters.memory.destination import Destination
from adapters.memory.group import StoredGroup
from adapters.memory.options import Options
from adapters.memory.partition import Partition
from adapters.memory.record import Record, unpack
from adapters.memory.transaction_table import TransactionTable
from bridge.errors import BackendFull, DestinationUnknown, PartitionUnknown
from bridge.message import Message

SLICE: Final = 512
"""Messages dropped or counted at one time, about 1 ms: so long the loop waits, however many there are."""
EPOCH_BITS: Final = 63
"""Bits of an epoch's number; SQLite stores 64 with a sign."""
_OLD_NUMBERS: Final = 1 << 32
"""Older journals numbered their destinations from 1; numbers from this one on are random, and never used again."""
_DESTINATION: Final = Message._fields.index("destination")
_PARTITION: Final = Message._fields.index("partition")
_STORE_TIMESTAMP: Final = Message._fields.index("store_timestamp")


def format_epoch(number: int) -> str:
    """Return the text of an epoch's number."""
    return f"{number:016x}"


class DelayedMessage(NamedTuple):
    """A delayed message that is due."""

    destination: Destination
    partition: Partition
    record: Record
    sequence: int
    """The sequence under which it waited."""


class BackendState:
    """Everything that the backend stores. `Capacity` limits how much that is."""

    def __init__(self, options: Options) -> None:
        self.epoch = format_epoch(randbits(EPOCH_BITS))
        """What the epochs of all logs are made from; see `Replayable`. A journal restores it."""
        self.destinations: dict[str, Destination] = {}
        self.settled_by_all: dict[Partition, Destination] = {}
        """Partitions with messages that every group has settled."""
        self.metadata: dict[str, str] = {}
        """See `MetadataStore`."""
        self.transactions = TransactionTable()
        self._options = options
        self._delayed: list[tuple[int, int, Record]] = []
        """Due time, sequence, record; a heap."""
        self._sequence = 0
        self._group_number = 0
        self._uncounted: deque[Iterator[None]] = deque()
        """Messages that a group has settled all at once and that are not counted as such yet."""

    def destination(self, name: str) -> Destination:
        """Return a destination, creating it on first use. Raises `BackendFull` over `max_destinations`."""
        found = self.destinations.get(name)
        if found is None:
            if len(self.destinations) >= self._options.max_destinations:
                raise BackendFull(f"The memory backend has its max_destinations={self._options.max_destinations}.")
            number = _OLD_NUMBERS + randbits(EPOCH_BITS - 1)
            found = self.restore_destination(name, number, self._options.partitions)
        return found

    def restore_destination(self, name: str, number: int, partitions: int) -> Destination:
        """Add a destination that existed before a restart."""
        found = self.destinations[name] = Destination(name, number, partitions)
        return found

    def existing(self, name: str) -> Destination:
        """Return a destination. Raises `DestinationUnknown`."""
        if (found := self.destinations.get(name)) is None:
            raise DestinationUnknown(f"There is no destination {name}.")
        return found

    def remove(self, destination: Destination) -> None:
        """Remove a destination and its groups; its messages have been dropped."""
        for group in tuple(destination.groups.values()):
            self._forget(destination, group)
        destination.removed = True
        del self.destinations[destination.name]

    def forget_empty(self, now: int) -> Iterator[list[Destination]]:
        """Remove the destinations without messages and groups, and without traffic for an hour.

        Yields them in slices of about `SLICE` partitions.
        """
        empty: list[Destination] = []
        visited = 0
        for destination in tuple(self.destinations.values()):
            if not destination.removed and destination.check_idle(now):
                self.remove(destination)
                empty.append(destination)
            visited += len(destination.partitions)
            if visited >= SLICE:
                yield empty
                empty, visited = [], 0
        if empty:
            yield empty

    def place(self, message: Message) -> tuple[Destination, Partition]:
        """Return where to store a message. Raises `PartitionUnknown` and `BackendFull`."""
        destination = self.destinations.get(message.destination) or self.destination(message.destination)
        number = message.partition
        if number is None or not 0 <= number < len(destination.partitions):
            raise PartitionUnknown(
                f"{destination.name!r} has the partitions 0 to {len(destination.partitions) - 1}; {number} is none."
            )
        return destination, destination.partitions[number]

    def next_sequence(self) -> int:
        """Return the next number in the order of storing."""
        self._sequence += 1
        return self._sequence

    def restore_sequence(self, sequence: int) -> None:
        """Count a number that was used before a restart."""
        self._sequence = max(self._sequence, sequence)

    # Delayed messages

    def add_delayed(self, destination: Destination, record: Record, due: int, sequence: int) -> None:
        """Store a message outside of its partition until it is due."""
        destination.delayed += 1
        heappush(self._delayed, (due, sequence, record))

    @property
    def delayed(self) -> int:
        """Number of messages that wait until they are due."""
        return len(self._delayed)

    @property
    def next_due(self) -> int | None:
        """When the next delayed message is due, ms since 1970; None if there is none."""
        return self._delayed[0][0] if self._delayed else None

    def pop_due(self, now: int) -> DelayedMessage | None:
        """Remove and return the next message that is due by now."""
        if not self._delayed or self._delayed[0][0] > now:
            return None
        _, sequence, record = heappop(self._delayed)
        destination = self.destinations[record[_DESTINATION]]
        destination.delayed -= 1
        return DelayedMessage(destination, destination.partitions[record[_PARTITION]], record, sequence)

    def delayed_since(self, stored: int) -> list[Message]:
        """Return the delayed messages that were stored at a time, ms since 1970, or later."""
        return [unpack(record) for _, _, record in self._delayed if record[_STORE_TIMESTAMP] >= stored]

    def take_delayed(self, destination: Destination) -> list[tuple[int, Record]]:
        """Remove and return the delayed messages of a destination, with their sequences."""
        taken = [(s, record) for _, s, record in self._delayed if record[_DESTINATION] == destination.name]
        if taken:
            self._delayed = [each for each in self._delayed if each[2][_DESTINATION] != destination.name]
            heapify(self._delayed)
            destination.delayed = 0
        return taken

    # Groups

    def group(self, destination: Destination, name: str, now: int, *, latest: bool = False) -> StoredGroup:
        """Return a group, creating it at the oldest message stored, or with `latest` after the newest.

        Raises `BackendFull` over `max_groups`.
        """
        found = destination.groups.get(name)
        if found is None:
            if self.groups >= self._options.max_groups:
                raise BackendFull(f"The memory backend has its max_groups={self._options.max_groups}.")
            found = self.restore_group(destination, name, self._group_number + 1, now)
            if latest:
                self.purge_group(destination, found)
            else:
                for partition in destination.partitions:
                    self._clear_settled_by_all(partition)  # the new group has settled none of these messages
        return found

    def restore_group(self, destination: Destination, name: str, number: int, now: int) -> StoredGroup:
        """Add a group that existed before a restart."""
        self._group_number = max(self._group_number, number)
        found = destination.groups[name] = StoredGroup(name, destination.name, number, destination.partitions, now)
        return found

    def settle(self, group: StoredGroup, deliveries: Iterable[Delivery]) -> None:
        """Settle deliveries for a group; does nothing for one that was settled before, or if the group is forgotten."""
        if group.forgotten:
            return
        cursors, destination = group.cursors, self.destinations[group.destination]
        for delivery in deliveries:
            offset, cursor = delivery.position, cursors[delivery.partition]
            if not cursor.settle(offset):
                continue
            partition = cursor.partition
            index = partition.find(offset)
            if index is not None:
                self._count_settled(destination, partition, index)

    def existing_group(self, destination: Destination, name: str) -> StoredGroup:
        """Return a group. Raises `DestinationUnknown`; `RuntimeError` while it has a subscription."""
        if (found := destination.groups.get(name)) is None:
            raise DestinationUnknown(f"{destination.name} has no group {name}.")
        if found.subscribed:
            raise RuntimeError(f"{name!r} on {destination.name!r} has a subscription")
        return found

    def purge_group(self, destination: Destination, group: StoredGroup) -> None:
        """Settle every stored message for a group; call `count_step` until these are counted."""
        unsettled = list(group.unsettled_ranges([partition.end for partition in destination.partitions]))
        group.skip_all()
        self._uncounted.append(self._count(destination, unsettled))

    def remove_groups(self, destination: Destination, groups: Sequence[StoredGroup]) -> None:
        """Remove groups; what only they had not settled may be dropped, as soon as `count_step` has counted it."""
        for group in groups:
            self._forget(destination, group)
        ends = [partition.end for partition in destination.partitions]
        for partition in destination.partitions:
            partition.removed_groups += len(groups)
            if not destination.groups:
                self._clear_settled_by_all(partition)
        for group in groups:
            self._uncounted.append(self._count(destination, group.unsettled_ranges(ends)))

    def forget_idle(self, now: int) -> Iterator[list[StoredGroup]]:
        """Remove the groups that had no subscription for longer than `retention`; see `remove_groups`.

        Yields them in slices of about `SLICE` groups and partitions.
        """
        forgotten: list[StoredGroup] = []
        visited = 0
        for destination in tuple(self.destinations.values()):
            groups = iter(tuple(destination.groups.values()))
            while some := list(islice(groups, SLICE)):
                if idle := [group for group in some if self._is_idle(group, now)]:
                    self.remove_groups(destination, idle)
                    forgotten += idle
                    visited += len(destination.partitions)
                visited += len(some)
                if visited >= SLICE:
                    yield forgotten
                    forgotten, visited = [], 0
        if forgotten:
            yield forgotten

    def count_step(self) -> bool:
        """Count messages that a group has settled all at once, at most `SLICE`. False: all are counted.

        Until it is counted, a message counts as not settled by all groups, and is not dropped.
        """
        if not self._uncounted:
            return False
        if next(self._uncounted[0], self) is self:
            self._uncounted.popleft()
        return True

    def _count(self, destination: Destination, ranges: Iterable[tuple[Partition, int, int]]) -> Iterator[None]:
        """Count that one group has settled the messages of these ranges; yields after each `SLICE`."""
        counted = 0
        for partition, start, end in ranges:
            offset = partition.next_kept(start)
            while offset < end and not destination.removed:
                self._count_settled(destination, partition, partition.index(offset))
                counted += 1
                if counted % SLICE == 0:
                    yield
                offset = partition.next_kept(offset + 1)

    def _count_settled(self, destination: Destination, partition: Partition, index: int) -> None:
        acks = partition.count_ack(index)
        if destination.groups and acks == len(destination.groups) + partition.removed_groups:
            partition.settled_by_all.add(partition.offsets[index])
            self.settled_by_all[partition] = destination

    def recount(self, destination: Destination) -> None:
        """Find out which messages every group has settled, after a restart. It visits every message."""
        for partition in destination.partitions:
            cursors = [group.cursors[partition.number] for group in destination.groups.values()]
            self._clear_settled_by_all(partition)
            for index, offset in partition.kept():
                acks = sum(cursor.has_settled(offset) for cursor in cursors)
                partition.acks[index] = acks
                if cursors and acks == len(cursors):
                    partition.settled_by_all.add(offset)
            if partition.settled_by_all:
                self.settled_by_all[partition] = destination

    def forget_all(self) -> None:
        """Mark every group as forgotten: closed subscriptions that refer to one settle nothing any more."""
        for destination in self.destinations.values():
            for group in destination.groups.values():
                group.forgotten = True

    @property
    def groups(self) -> int:
        """Number of groups."""
        return sum(len(destination.groups) for destination in self.destinations.values())

    def partitions(self) -> Iterator[tuple[Destination, Partition]]:
        """Yield every partition with its destination."""
        for destination in self.destinations.values():
            for partition in destination.partitions:
                yield destination, partition

    @staticmethod
    def _forget(destination: Destination, group: StoredGroup) -> None:
        group.forgotten = True
        del destination.groups[group.name]

    def _is_idle(self, group: StoredGroup, now: int) -> bool:
        return not group.subscribed and not group.forgotten and now - group.idle_since > self._options.retention

    def _clear_settled_by_all(self, partition: Partition) -> None:
        partition.settled_by_all.discard_below(partition.end)
        self.settled_by_all.pop(partition, None)

    # Replay: see `Replayable`

    def bounds(self) -> Iterator[Mapping[str, tuple[int, int]]]:
        """Yield the first offset stored and the next one of every partition that ever had a message.

        Those of one destination at a time, or of as many as have `SLICE` partitions.
        """
        found: dict[str, tuple[int, int]] = {}
        visited = 0
        for destination in tuple(self.destinations.values()):
            if destination.removed:
                continue
            log = f"{self._epoch_of(destination)}/{destination.name}/"
            for partition in destination.partitions:
                if partition.recorded_end:
                    found[f"{log}{partition.number}"] = _first(partition), partition.recorded_end
            visited += len(destination.partitions)
            if visited >= SLICE:
                yield found
                found, visited = {}, 0
        yield found

    def replay(self, name: str, start: int, limit: int, max_bytes: int) -> Replayed:
        """Return the messages stored from `start` on, and the offsets dropped there. Raises `DestinationUnknown`."""
        partition = self._find(name)
        end = partition.recorded_end
        offsets: list[int] = []
        messages: list[Message] = []
        at, left = partition.index(max(start, partition.first)), max_bytes
        while at < len(partition.offsets) and len(offsets) < limit and partition.offsets[at] < end:
            record = partition.messages[at]
            if record is not None:
                message = unpack(record)
                left -= message.size
                if offsets and left < 0:
                    break
                offsets.append(partition.offsets[at])
                messages.append(message)
            at += 1
        stopped = at < len(partition.offsets) and partition.offsets[at] < end
        following = max(start, offsets[-1] + 1 if stopped else end)
        return Replayed(offsets, messages, following, _dropped(partition, start, offsets, following))

    def _epoch_of(self, destination: Destination) -> str:
        """Return the epoch of a destination's logs: another one after the destination was deleted or forgotten."""
        if destination.number < _OLD_NUMBERS:
            return self.epoch
        return format_epoch(int(self.epoch, 16) ^ destination.number)

    def _find(self, name: str) -> Partition:
        text, _, rest = name.partition("/")
        destination, _, number = rest.rpartition("/")
        known = self.destinations.get(destination)
        for partition in known.partitions if known is not None and text == self._epoch_of(known) else ():
            if str(partition.number) == number:
                return partition
        raise DestinationUnknown(f"There is no log {name[:300]!a}; /v1/logs lists the logs.")


def _first(partition: Partition) -> int:
    """Return the log-start offset. Offsets that were reserved but never stored do not count as dropped."""
    first = min(partition.first, partition.recorded_end)
    return next((start for start, end in partition.unused.bounds() if start < first == end), first)


def _dropped(partition: Partition, start: int, offsets: list[int], end: int) -> list[tuple[int, int]]:
    """Return the ranges of `[start, end)` whose messages are no longer stored: neither in `offsets` nor unused."""
    dropped: list[tuple[int, int]] = []
    if end - start == len(offsets):
        return dropped
    for low, high in zip([start, *(offset + 1 for offset in offsets)], [*offsets, end], strict=True):
        at = partition.unused.past(low)
        while at < high:
            stop = min([high, *(begin for begin, _ in partition.unused.bounds() if begin > at)])
            dropped.append((at, stop))
            at = partition.unused.past(stop)
    return dropped
