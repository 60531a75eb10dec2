"""Limits how much the backend stores, and drops messages when it is full or when they are too old."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice, takewhile
from typing import Final, NamedTuple

from adapters.memory.backend_state import SLICE, BackendState
from adapters.memory.destination import Destination
from adapters.memory.options import Options
from adapters.memory.partition import Partition
from adapters.memory.record import Record, footprint
from bridge.errors import BackendFull, BodyTooLarge

_VISITED: Final = 10_000
"""Cursors that the explanation of a full backend visits at most, about 10 ms; of more groups it knows nothing."""
_EXPLAIN_EVERY: Final = 1000
"""Milliseconds for which the explanation of a full backend is reused."""


class Dropped(NamedTuple):
    """Messages of one partition that were just dropped."""

    destination: Destination
    partition: Partition
    offsets: list[int]
    """Ascending."""
    sequences: list[int]
    """In the same order."""


class Capacity:
    """Counts the messages of a log, and drops those that may be dropped."""

    def __init__(self, store: BackendState, options: Options, dropped: Callable[[Dropped], None] | None = None) -> None:
        self.messages = 0
        """Stored, delayed, prepared, or waiting for the journal."""
        self.bytes = 0
        """Their footprints."""
        self.dropped_by_retention = 0
        self.dropped_when_full = 0
        self._store = store
        self._options = options
        self._dropped = dropped
        self._oldest = 0
        """When the oldest message was stored, ms since 1970, or earlier; exact after a complete `expire`."""
        self._cutoff = 0
        """What was stored before is too old, ms since 1970."""
        self._expiring: Iterator[None] | None = None
        """The search for old messages, unless it is complete."""
        self._explanation = ""
        self._explained_at = -_EXPLAIN_EVERY

    def admit(self, record: Record, now: int) -> None:
        """Count a new message, dropping others if necessary. Raises `BackendFull`; `BodyTooLarge` if it never fits."""
        size = footprint(record)
        options = self._options
        if size > options.max_bytes:
            raise BodyTooLarge(f"The message takes {size} bytes; the memory backend has max_bytes={options.max_bytes}.")
        while self.messages >= options.max_messages or self.bytes + size > options.max_bytes:
            # a full backend is asked often: if nothing can be dropped, this costs a comparison each
            if self._evict():
                continue
            if now - self._oldest > options.retention:
                self.expire(now)
            elif not self._store.count_step():
                limit = "max_messages" if self.messages >= options.max_messages else "max_bytes"
                raise BackendFull(
                    f"The memory backend has reached {limit}={getattr(options, limit)} and may drop nothing: "
                    f"{self._explain_full(now)}."
                )
        self.messages += 1
        self.bytes += size

    def restore(self, record: Record) -> None:
        """Count a message that was stored before a restart."""
        self.messages += 1
        self.bytes += footprint(record)

    def remove(self, record: Record) -> None:
        """Stop counting a message that is not stored any more, or never was."""
        self.messages -= 1
        self.bytes -= footprint(record)

    def expire(self, now: int) -> bool:
        """Search for messages older than `retention` and drop them, a slice of about `SLICE`. False: all are dropped.

        A slice counts the messages dropped, the groups whose positions move, and the partitions visited.
        """
        self._cutoff = now - self._options.retention
        if self._expiring is None:
            self._expiring = self._expire(now)
        if next(self._expiring, self) is not self:
            return True
        self._expiring = None
        return self._oldest < self._cutoff  # what has become old since the search began

    def _expire(self, now: int) -> Iterator[None]:
        work, oldest = 0, now
        for destination in tuple(self._store.destinations.values()):
            for partition in destination.partitions:
                while (first := partition.oldest) is not None and first < self._cutoff and not destination.removed:
                    indexes = self._old(partition, SLICE - work)
                    self._drop(destination, partition, indexes)
                    self.dropped_by_retention += len(indexes)
                    for group in destination.groups.values():
                        group.cursors[partition.number].trim()
                    work += len(indexes) + len(destination.groups)
                    if work >= SLICE:
                        yield
                        work = 0
                if first is not None and first < oldest and not destination.removed:
                    oldest = first
                work += 1
                if work >= SLICE:
                    yield
                    work = 0
        self._oldest = oldest

    def _old(self, partition: Partition, limit: int) -> list[int]:
        """Return the indexes of the first messages that are too old, at most `limit`."""
        indexes = (index for index, _ in islice(partition.kept(), limit))
        return list(takewhile(lambda index: partition.stored[index] < self._cutoff, indexes))

    def purge(self, destination: Destination, ends: Sequence[int]) -> bool:
        """Drop messages of a destination below an offset for each partition, at most `SLICE`. False: there was none."""
        for partition, end in zip(destination.partitions, ends, strict=True):
            if partition.first >= end:
                continue
            indexes = [index for index, offset in islice(partition.kept(), SLICE) if offset < end]
            self._drop(destination, partition, indexes)
            for group in destination.groups.values():
                group.cursors[partition.number].trim()
            return True
        return False

    def _evict(self) -> int:
        """Drop the oldest messages that every group has settled, at most `SLICE`; return how many."""
        settled_by_all = self._store.settled_by_all
        queue = [(_oldest_settled(partition), partition) for partition in settled_by_all]
        heapify(queue)
        chosen: dict[Partition, list[int]] = {}
        count = 0
        while queue and count < SLICE:
            _, partition = queue[0]
            offset = partition.settled_by_all.first
            chosen.setdefault(partition, []).append(partition.index(offset))
            partition.settled_by_all.discard_below(offset + 1)
            count += 1
            if partition.settled_by_all:
                heapreplace(queue, (_oldest_settled(partition), partition))
            else:
                heappop(queue)
        for partition, indexes in chosen.items():
            self._drop(settled_by_all[partition], partition, indexes)
        self.dropped_when_full += count
        return count

    def _drop(self, destination: Destination, partition: Partition, indexes: list[int]) -> None:
        sequences = [partition.sequences[index] for index in indexes]
        offsets = [partition.offsets[index] for index in indexes]
        for index in indexes:
            self.remove(partition.drop(index))
        partition.compact()
        partition.settled_by_all.discard_below(partition.first)
        if not partition.settled_by_all:
            self._store.settled_by_all.pop(partition, None)
        if self._dropped is not None:
            self._dropped(Dropped(destination, partition, offsets, sequences))

    def _explain_full(self, now: int) -> str:
        """Say what takes the most messages; computed once a second at most, because it visits many cursors."""
        if not 0 <= now - self._explained_at < _EXPLAIN_EVERY:
            self._explained_at = now
            self._explanation = max(self._shares())[1]
        return self._explanation

    def _shares(self) -> Iterator[tuple[int, str]]:
        prepared = self._store.transactions.prepared
        yield prepared, f"{prepared} messages are prepared in open transactions"
        unwritten = self.messages - prepared
        visited = 0
        for destination in self._store.destinations.values():
            kept = sum(map(len, destination.partitions))
            unwritten -= kept + destination.delayed
            yield destination.delayed, f"{destination.name!r} has {destination.delayed} delayed messages"
            if not destination.groups:
                yield kept, f"{destination.name!r} has {kept} messages and no group yet"
            for group in destination.groups.values():
                if (visited := visited + len(group.cursors)) > _VISITED:
                    break
                unsettled = sum(cursor.unsettled() for cursor in group.cursors)
                yield unsettled, f"group {group.name!r} of {destination.name!r} has {unsettled} messages to settle"
        yield unwritten, f"{unwritten} messages wait for the journal"


def _oldest_settled(partition: Partition) -> int:
    """Return the sequence of the oldest message that every group has settled."""
    return partition.sequences[partition.index(partition.settled_by_all.first)]
