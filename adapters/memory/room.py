"""How much the backend may keep, and what goes when it is full or old."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from adapters.memory.log import Destination, Log
from adapters.memory.options import Options
from adapters.memory.partition import Partition, Record, footprint
from bridge.errors import BackendFull, BodyTooLarge

SLICE: Final = 512
"""Messages dropped at one time, about 1 ms: neither a full backend nor an old one stops the loop for longer."""
_BLAME: Final = 1000
"""Milliseconds for which the sentence that says who holds most back is reused."""


class Dropped(NamedTuple):
    """Messages of one partition that were just let go."""

    destination: Destination
    partition: Partition
    offsets: list[int]
    """Ascending."""
    sequences: list[int]
    """In the same order."""


class Room:
    """Counts messages in and out of a log, and drops what may be dropped."""

    def __init__(self, log: Log, options: Options, dropped: Callable[[Dropped], None] | None = None) -> None:
        self.messages = 0
        """Kept, held until due, or on their way."""
        self.bytes = 0
        self.dropped_by_retention = 0
        self.dropped_when_full = 0
        self._log = log
        self._options = options
        self._dropped = dropped
        self._oldest = 0
        """When the oldest message kept was stored, ms, or earlier; exact after a complete `expire`."""
        self._blamed = ""
        self._blamed_at = -_BLAME

    def admit(self, record: Record, now: int) -> None:
        """Count a message in, dropping what may go if need be. Raises `BackendFull`, or `BodyTooLarge` for good."""
        size = footprint(record)
        options = self._options
        if size > options.max_bytes:
            raise BodyTooLarge(f"The message takes {size} bytes; the memory backend has max_bytes={options.max_bytes}.")
        while self.messages >= options.max_messages or self.bytes + size > options.max_bytes:
            # a full backend is asked often: with nothing to drop, each of the two answers is one comparison
            if not self._evict() and not (now - self._oldest > options.retention and self.expire(now)):
                limit = "max_messages" if self.messages >= options.max_messages else "max_bytes"
                raise BackendFull(
                    f"The memory backend has reached {limit}={getattr(options, limit)} and may drop nothing: "
                    f"{self._blame(now)}."
                )
        self.messages += 1
        self.bytes += size

    def restore(self, record: Record) -> None:
        """Count in a message that was kept before a restart."""
        self.messages += 1
        self.bytes += footprint(record)

    def refund(self, record: Record) -> None:
        """Count out a message that is not kept any more, or never was."""
        self.messages -= 1
        self.bytes -= footprint(record)

    def expire(self, now: int) -> bool:
        """Drop what is older than `retention`, a slice at most. False: there was nothing to drop."""
        cutoff = now - self._options.retention
        budget = SLICE
        oldest = now
        for destination, partition in self._log.partitions():
            indexes: list[int] = []
            for index, _ in partition.kept():
                if partition.stored[index] >= cutoff or len(indexes) >= budget:
                    oldest = min(oldest, partition.stored[index])
                    break
                indexes.append(index)
            if indexes:
                budget -= len(indexes)
                self._drop(destination, partition, indexes)
                for group in destination.groups.values():
                    group.cursors[partition.number].trim()
        self._oldest = oldest
        self.dropped_by_retention += SLICE - budget
        return budget < SLICE

    def _evict(self) -> int:
        """Drop the oldest messages that every group of their destination has settled, a slice at most."""
        spare = self._log.spare
        queue = [(_first_spare(partition), partition) for partition in spare]
        heapify(queue)
        gone: dict[Partition, list[int]] = {}
        count = 0
        while queue and count < SLICE:
            _, partition = queue[0]
            offset = partition.spare.first
            gone.setdefault(partition, []).append(partition.index(offset))
            partition.spare.discard_below(offset + 1)
            count += 1
            if partition.spare:
                heapreplace(queue, (_first_spare(partition), partition))
            else:
                heappop(queue)
        for partition, indexes in gone.items():
            self._drop(spare[partition], partition, indexes)
        self.dropped_when_full += count
        return count

    def _drop(self, destination: Destination, partition: Partition, indexes: list[int]) -> None:
        sequences = [partition.sequences[index] for index in indexes]
        offsets = [partition.offsets[index] for index in indexes]
        for index in indexes:
            self.refund(partition.drop(index))
        partition.compact()
        partition.spare.discard_below(partition.first)
        if not partition.spare:
            self._log.spare.pop(partition, None)
        if self._dropped is not None:
            self._dropped(Dropped(destination, partition, offsets, sequences))

    def _blame(self, now: int) -> str:
        """Name who holds most back; worked out once a second at most, because it looks at every cursor."""
        if not 0 <= now - self._blamed_at < _BLAME:
            self._blamed_at = now
            self._blamed = max(self._suspects())[1]
        return self._blamed

    def _suspects(self) -> Iterator[tuple[int, str]]:
        on_their_way = self.messages
        for destination in self._log.destinations.values():
            kept = sum(map(len, destination.partitions))
            on_their_way -= kept + destination.delayed
            yield destination.delayed, f"{destination.name!r} has {destination.delayed} delayed messages"
            if not destination.groups:
                yield kept, f"{destination.name!r} has {kept} messages and no group yet"
            for group in destination.groups.values():
                unsettled = sum(cursor.unsettled() for cursor in group.cursors)
                yield unsettled, f"group {group.name!r} of {destination.name!r} has {unsettled} messages to settle"
        yield on_their_way, f"{on_their_way} messages are on their way to the journal"


def _first_spare(partition: Partition) -> int:
    """Where the oldest message that every group has settled stands in the order of storing."""
    return partition.sequences[partition.index(partition.spare.first)]
