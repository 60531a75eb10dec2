"""A destination's name, its dead-letter destination, its groups' names, and the partition of each message."""

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple, Self

from bridge.errors import DestinationInvalid, PartitionUnknown
from bridge.message import Message

NAME_MAX: Final = 249
"""Characters; Kafka's limit for a topic."""
INTERNAL_PREFIXES: Final = ("__", "amq.", "oms.")
"""Reserved by Kafka, by RabbitMQ, and by the bridge."""
DEAD_LETTER_SUFFIX: Final = ".dlq"

_ALLOWED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class SubscriptionKey(NamedTuple):
    """Identifies a consumer group: (destination, consumerId)."""

    source: str
    group: str

    @classmethod
    def checked(cls, source: str, group: str) -> Self:
        """Return the key of a group that a client names. Raises `DestinationInvalid`."""
        return cls(check_name(source, "x-oms-source"), check_name(group, "x-oms-consumerid"))


@lru_cache(maxsize=4096)
def check_name(name: str, header: str) -> str:
    """Return the name, or raise `DestinationInvalid`: `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, no internal prefix.

    Valid names are cached, because the same few names come with every message.
    """
    if not 0 < len(name) <= NAME_MAX:
        raise DestinationInvalid(f"{header}: a name has 1 to {NAME_MAX} characters; this one has {len(name)}.")
    if not _ALLOWED.issuperset(name):
        raise DestinationInvalid(f"{header}: {name[:80]!a} has a character other than A-Z, a-z, 0-9, `.`, `_` and `-`.")
    if name in {".", ".."}:
        raise DestinationInvalid(f"{header}: {name!r} is not a name.")
    if name.startswith(INTERNAL_PREFIXES):
        raise DestinationInvalid(f"{header}: names that start with {', '.join(INTERNAL_PREFIXES)} are internal.")
    return name


@lru_cache(maxsize=4096)
def check_destination(name: str) -> None:
    """Raise `DestinationInvalid` for a name that clients may not produce to."""
    check_name(name, "x-oms-h-destination")
    if is_dead_letter(name):
        raise DestinationInvalid(
            f"x-oms-h-destination: only the bridge writes to destinations that end with {DEAD_LETTER_SUFFIX}."
        )


def dead_letter_of(destination: str) -> str:
    """Return the name of a destination's dead-letter destination; a name that would be too long is cut and hashed."""
    if len(destination) + len(DEAD_LETTER_SUFFIX) <= NAME_MAX:
        return destination + DEAD_LETTER_SUFFIX
    digest = hashlib.sha256(destination.encode()).hexdigest()[:12]
    return f"{destination[: NAME_MAX - len(DEAD_LETTER_SUFFIX) - len(digest) - 1]}.{digest}{DEAD_LETTER_SUFFIX}"


def is_dead_letter(destination: str) -> bool:
    """Return whether the destination holds dead letters: those are redelivered without limit."""
    return destination.endswith(DEAD_LETTER_SUFFIX)


_CACHED_KEY: Final = 256
"""Characters of the longest key that is cached: longer ones could fill 256 MiB."""
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


class Partitioner:
    """Chooses partitions; remembers the last one of each destination to spread messages without a key."""

    def __init__(self) -> None:
        # per destination: with one number for all, two destinations written alternately would each use half of theirs
        self._last: dict[str, int] = {}

    def choose(self, message: Message, partitions: int) -> int:
        """Return a partition: "An explicit `partition` wins; else murmur2(messageKey) mod N; else spread".

        Raises `PartitionUnknown` if the explicit one is not below `partitions`.
        """
        if message.partition is not None:
            if message.partition >= partitions:
                raise PartitionUnknown(
                    f"x-oms-h-partition: {message.destination} has the partitions 0 to {partitions - 1}."
                )
            return message.partition
        if message.message_key is not None:
            return partition_of(message.message_key, partitions)
        self._last[message.destination] = chosen = (self._last.get(message.destination, -1) + 1) % partitions
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
