"""Chooses the partition of a message: by murmur2 of its key as the Java Kafka client computes it, on every backend."""

from collections import OrderedDict
from functools import lru_cache
from random import randrange
from typing import Final

from bridge.errors import PartitionUnknown
from bridge.message import Message

_CACHED_KEY: Final = 256
"""Characters of the longest key that is cached: longer ones could fill 256 MiB."""


_SEED: Final = 0x9747B28C


_M: Final = 0x5BD1E995


_R: Final = 24


_MASK: Final = 0xFFFFFFFF


_REMEMBERED: Final = 4096
"""Destinations whose last partition is remembered."""


NO_PARTITIONS: Final = 0
"""The number of partitions on a backend without partitions."""


class Partitioner:
    """Chooses partitions; remembers the last one of each destination to spread messages without a key."""

    def __init__(self) -> None:
        # per destination: with one number for all, two destinations written alternately would each use half of theirs
        self._last: OrderedDict[str, int] = OrderedDict()
        """The destination that was written last is at the end."""

    def choose(self, message: Message, partitions: int) -> int | None:
        """Return a partition: "An explicit `partition` wins; else murmur2(messageKey) mod N; else spread".

        `partitions`: `NO_PARTITIONS` on a backend without them, which may use the explicit one. Raises
        `PartitionUnknown` if that is not below `partitions`.
        """
        if partitions == NO_PARTITIONS:
            return message.partition
        if message.partition is not None:
            if message.partition >= partitions:
                raise PartitionUnknown(
                    f"x-oms-h-partition: {message.destination} has the partitions 0 to {partitions - 1}."
                )
            return message.partition
        if message.message_key is not None:
            return partition_of(message.message_key, partitions)
        return self._next(message.destination, partitions)

    def forget(self, destination: str) -> None:
        """Forget a destination that was deleted."""
        self._last.pop(destination, None)

    def _next(self, destination: str, partitions: int) -> int:
        last = self._last
        if destination in last:
            chosen = (last[destination] + 1) % partitions
        elif len(last) < _REMEMBERED:
            chosen = 0
        else:  # it may have been written before, and each time began at the same partition
            last.popitem(last=False)
            chosen = randrange(partitions)  # noqa: S311 - no secret
        last[destination] = chosen
        last.move_to_end(destination)
        return chosen


def partition_of(key: str, partitions: int) -> int:
    """Return `toPositive(murmur2(UTF-8 bytes of key)) % partitions`."""
    hashed = _cached_hash(key) if len(key) <= _CACHED_KEY else _positive_hash(key)
    return hashed % partitions


def _positive_hash(key: str) -> int:
    return murmur2(key.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF


_cached_hash = lru_cache(maxsize=8192)(_positive_hash)
"""A call takes 2.5 us in pure Python, and keys repeat."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 (`org.apache.kafka.common.utils.Utils.murmur2`), unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
