"""The backend as a data structure: destinations, groups, delayed messages. No clock, no I/O: times come in."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from secrets import randbits
from typing import Final, NamedTuple

from adapters.memory.group import Group
from adapters.memory.options import Options
from adapters.memory.partition import Partition, Record
from bridge.errors import BackendFull, PartitionUnknown
from bridge.message import Message

_DESTINATION: Final = Message._fields.index("destination")
_PARTITION: Final = Message._fields.index("partition")


EPOCH_BITS: Final = 63
"""Of the number that tells one life of the log from all others; SQLite keeps 64, with a sign."""


def epoch(number: int) -> str:
    """Write the number of an epoch."""
    return f"{number:016x}"


class Destination:
    """One log with its partitions and its groups."""

    __slots__ = ("delayed", "groups", "name", "number", "partitions", "waiting")

    def __init__(self, name: str, number: int, partitions: int) -> None:
        self.name = name
        self.number = number
        self.partitions = [Partition(number) for number in range(partitions)]
        self.groups: dict[str, Group] = {}
        self.delayed = 0
        """Messages held until they are due."""
        self.waiting: dict[str, Callable[[], None]] = {}
        """By group, who wants to hear of the next append."""

    def wake(self) -> None:
        """Tell those who wait, once."""
        waiting, self.waiting = self.waiting, {}
        for wake in waiting.values():
            wake()


class Held(NamedTuple):
    """A message that was delayed and is due."""

    destination: Destination
    partition: Partition
    record: Record
    sequence: int
    """What it was held under."""


class Log:
    """Everything the backend keeps. How much that may be is the concern of `Room`."""

    def __init__(self, options: Options) -> None:
        self.epoch = epoch(randbits(EPOCH_BITS))
        """Of this life of the log; a journal restores it."""
        self.destinations: dict[str, Destination] = {}
        self.spare: dict[Partition, Destination] = {}
        """Partitions with messages that every group has settled."""
        self.notes: dict[str, str] = {}
        """The bridge's own notes; see `Notebook`."""
        self._options = options
        self._held: list[tuple[int, int, Record]] = []
        self._sequence = 0
        self._destination_number = 0
        self._group_number = 0

    def destination(self, name: str) -> Destination:
        """Return a destination, creating it on first use. Raises `BackendFull` over `max_destinations`."""
        found = self.destinations.get(name)
        if found is None:
            if len(self.destinations) >= self._options.max_destinations:
                raise BackendFull(f"The memory backend has its max_destinations={self._options.max_destinations}.")
            found = self.restore_destination(name, self._destination_number + 1, self._options.partitions)
        return found

    def restore_destination(self, name: str, number: int, partitions: int) -> Destination:
        """Put back a destination that was there before a restart."""
        self._destination_number = max(self._destination_number, number)
        found = self.destinations[name] = Destination(name, number, partitions)
        return found

    def place(self, message: Message) -> tuple[Destination, Partition]:
        """Return where a message goes. Raises `PartitionUnknown` and `BackendFull`."""
        destination = self.destinations.get(message.destination) or self.destination(message.destination)
        number = message.partition
        if number is None or not 0 <= number < len(destination.partitions):
            raise PartitionUnknown(
                f"{destination.name!r} has the partitions 0 to {len(destination.partitions) - 1}; {number} is none."
            )
        return destination, destination.partitions[number]

    def next_sequence(self) -> int:
        """Give the next number in the order of storing."""
        self._sequence += 1
        return self._sequence

    def restore_sequence(self, sequence: int) -> None:
        """Remember a number given before a restart."""
        self._sequence = max(self._sequence, sequence)

    # Delayed messages

    def hold(self, destination: Destination, record: Record, due: int, sequence: int) -> None:
        """Keep a message aside until it is due."""
        destination.delayed += 1
        heappush(self._held, (due, sequence, record))

    @property
    def delayed(self) -> int:
        """Number of messages held until they are due."""
        return len(self._held)

    @property
    def next_due(self) -> int | None:
        """When the next held message is due, ms since 1970; None when none is held."""
        return self._held[0][0] if self._held else None

    def take_due(self, now: int) -> Held | None:
        """Take out the next message that is due by now."""
        if not self._held or self._held[0][0] > now:
            return None
        _, sequence, record = heappop(self._held)
        destination = self.destinations[record[_DESTINATION]]
        destination.delayed -= 1
        return Held(destination, destination.partitions[record[_PARTITION]], record, sequence)

    # Groups

    def group(self, destination: Destination, name: str, now: int, *, latest: bool = False) -> Group:
        """Return a group, creating it at the oldest message kept or after the newest.

        Raises `BackendFull` over `max_groups`.
        """
        found = destination.groups.get(name)
        if found is None:
            if self.groups >= self._options.max_groups:
                raise BackendFull(f"The memory backend has its max_groups={self._options.max_groups}.")
            found = self.restore_group(destination, name, self._group_number + 1, now)
            if latest:
                self._skip(destination, found)
            else:
                for partition in destination.partitions:
                    self._clear_spare(partition)  # what all the others have settled is news to this group
        return found

    def _skip(self, destination: Destination, group: Group) -> None:
        """Let a new group be done with everything that is there."""
        group.skip()
        if len(destination.groups) == 1:
            self.recount(destination)  # and so is every group there is
        else:
            for partition in destination.partitions:
                partition.settle_all()

    def restore_group(self, destination: Destination, name: str, number: int, now: int) -> Group:
        """Put back a group that was there before a restart."""
        self._group_number = max(self._group_number, number)
        found = destination.groups[name] = Group(name, destination.name, number, destination.partitions, now)
        return found

    def settle(self, group: Group, number: int, offset: int) -> None:
        """Record that a group is done with an offset; harmless when it was so before, or the group is forgotten."""
        cursor = group.cursors[number]
        if group.forgotten or not cursor.settle(offset):
            return
        partition = cursor.partition
        index = partition.find(offset)
        if index is not None:
            destination = self.destinations[group.destination]
            partition.acks[index] += 1
            if partition.acks[index] == len(destination.groups):
                partition.spare.add(offset)
                self.spare[partition] = destination

    def forget_idle(self, now: int) -> list[Group]:
        """Forget the groups that had no subscription for longer than `retention`; return them."""
        gone: list[Group] = []
        for destination in self.destinations.values():
            idle = [group for group in destination.groups.values() if self._is_idle(group, now)]
            for group in idle:
                group.forgotten = True
                del destination.groups[group.name]
            if idle:
                self.recount(destination)
            gone += idle
        return gone

    def recount(self, destination: Destination) -> None:
        """Work out anew what every group has settled: one look at every message kept, so only when groups go."""
        for partition in destination.partitions:
            cursors = [group.cursors[partition.number] for group in destination.groups.values()]
            self._clear_spare(partition)
            for index, offset in partition.kept():
                acks = sum(cursor.has_settled(offset) for cursor in cursors)
                partition.acks[index] = acks
                if cursors and acks == len(cursors):
                    partition.spare.add(offset)
            if partition.spare:
                self.spare[partition] = destination

    def forget_all(self) -> None:
        """Forget every group: whoever still holds one has nothing to settle any more."""
        for destination in self.destinations.values():
            for group in destination.groups.values():
                group.forgotten = True

    @property
    def groups(self) -> int:
        """Number of groups."""
        return sum(len(destination.groups) for destination in self.destinations.values())

    def partitions(self) -> Iterator[tuple[Destination, Partition]]:
        """Every partition with its destination."""
        for destination in self.destinations.values():
            for partition in destination.partitions:
                yield destination, partition

    def _is_idle(self, group: Group, now: int) -> bool:
        return not group.live and now - group.idle_since > self._options.retention

    def _clear_spare(self, partition: Partition) -> None:
        partition.spare.discard_below(partition.end)
        self.spare.pop(partition, None)
