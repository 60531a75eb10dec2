"""The log read again by offsets, for whoever copies it: `Replayable` of the memory backend, free of I/O."""

from collections.abc import Mapping

from adapters.base import Replayed
from adapters.memory.log import Log
from adapters.memory.partition import BODY, Partition, unpack
from bridge.errors import DestinationUnknown


def bounds(log: Log) -> Mapping[str, tuple[int, int]]:
    """Return the first offset kept and the next one of every partition that ever held a message."""
    return {
        f"{log.epoch}/{destination.name}/{partition.number}": (_first(partition), partition.known)
        for destination, partition in log.partitions()
        if partition.known
    }


def read(log: Log, name: str, start: int, limit: int, max_bytes: int) -> Replayed:
    """Return what is kept from `start` on, and what was dropped there. Raises `DestinationUnknown`."""
    partition = _find(log, name)
    end = partition.known
    found: list[int] = []
    at, size = partition.index(start), 0
    while at < len(partition.offsets) and len(found) < limit and partition.offsets[at] < end:
        record = partition.messages[at]
        if record is not None:
            size += len(record[BODY])
            if found and size > max_bytes:
                break
            found.append(at)
        at += 1
    stopped = at < len(partition.offsets) and partition.offsets[at] < end
    following = max(start, partition.offsets[found[-1]] + 1 if stopped else end)
    offsets = [partition.offsets[index] for index in found]
    records = [record for index in found if (record := partition.messages[index]) is not None]
    return Replayed(
        offsets, [unpack(record) for record in records], following, _dropped(partition, start, offsets, following)
    )


def _find(log: Log, name: str) -> Partition:
    epoch, _, rest = name.partition("/")
    destination, _, number = rest.rpartition("/")
    known = log.destinations.get(destination) if epoch == log.epoch else None
    for partition in known.partitions if known is not None else ():
        if str(partition.number) == number:
            return partition
    raise DestinationUnknown(f"There is no log {name[:300]!a}; /v1/logs names those there are.")


def _first(partition: Partition) -> int:
    """The oldest offset that is kept, or never was a message's: nothing of what follows it was dropped at the front."""
    first = min(partition.first, partition.known)
    return next((start for start, end in partition.voids.bounds() if start < first == end), first)


def _dropped(partition: Partition, start: int, offsets: list[int], end: int) -> list[tuple[int, int]]:
    """Return the runs of offsets in `[start, end)` that messages had which are no longer kept."""
    dropped: list[tuple[int, int]] = []
    if end - start == len(offsets):
        return dropped
    for low, high in zip([start, *(offset + 1 for offset in offsets)], [*offsets, end], strict=True):
        at = partition.voids.past(low)
        while at < high:
            stop = min([high, *(begin for begin, _ in partition.voids.bounds() if begin > at)])
            dropped.append((at, stop))
            at = partition.voids.past(stop)
    return dropped
