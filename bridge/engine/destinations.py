"""Destinations and groups: their names, partitions, which new ones clients may create, deletion by an operator."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Final, NamedTuple, Self

from adapters.base import Adapter, Deletable, Partitioned
from bridge.engine.client_limits import DelayedShare, OwnedShare, Share
from bridge.engine.clock import Clock
from bridge.engine.options import EngineOptions
from bridge.errors import (
    BackendFull,
    BridgeError,
    DestinationInvalid,
    DestinationUnknown,
    LimitReached,
    NotFound,
    PartitionUnknown,
)
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


NO_PARTITIONS: Final = 0
"""The number of partitions on a backend without partitions."""
GROUP_COUNTED: Final = 24 * 3600 * 1000
"""Milliseconds for which a group counts after it was closed as unused."""


class DestinationRegistry:
    """Which client had which destination and group created, until they are deleted or forgotten.

    After a restart nothing is counted. A backend that is not `Partitioned` creates destinations without being asked.
    """

    def __init__(self, adapter: Adapter, clock: Clock, options: EngineOptions) -> None:
        # checked once: isinstance with a run-time protocol costs 12 us
        self._backend = adapter if isinstance(adapter, Partitioned) else None
        self._clock = clock
        self._auto_create = options.auto_create
        self._destinations = OwnedShare[str](
            Share(options.destinations, options.client_share, "destinations", "limits.destinations")
        )
        """Those that clients had created here."""
        self._groups = OwnedShare[SubscriptionKey](
            Share(options.groups, options.client_share, "groups", "limits.groups")
        )
        """Those that clients have used here."""
        self._closed_at: dict[SubscriptionKey, int] = {}
        """When groups that still count were closed, mono; the earliest first."""

    def known(self, name: str) -> int | None:
        """Return the number of partitions of a destination that is known to exist; None: call `partitions`."""
        return NO_PARTITIONS if self._backend is None else self._backend.known_partitions(name)

    async def partitions(self, name: str, client: str, partition: int | None = None) -> int:
        """Return the number of partitions; creates a new destination if it may.

        `partition` is the one that the message names. Raises `DestinationUnknown` if it may not, `LimitReached`,
        `BackendFull`, `PartitionUnknown`, and the errors of `Partitioned.partitions`.
        """
        if self._backend is None:
            return NO_PARTITIONS
        try:
            return await self._backend.partitions(name, create=False)
        except DestinationUnknown:
            return await self._create(self._backend, name, client, partition)

    async def own(self, name: str) -> int:
        """Return the number of partitions of a dead-letter destination, which no setting forbids to create."""
        return NO_PARTITIONS if self._backend is None else await self._backend.partitions(name, create=True)

    async def open_group(self, key: SubscriptionKey, client: str) -> None:
        """Count a group that is opened, and create its destination if that is new. Raises as `partitions`."""
        self._closed_at.pop(key, None)
        if key not in self._groups:
            self._release_closed_groups()
            self._groups.check(client)
        await self.partitions(key.source, client)
        self._groups.take(key, client)

    def close_group(self, key: SubscriptionKey) -> None:
        """Note that a group was closed: it counts for `GROUP_COUNTED` from now on."""
        if key in self._groups:
            self._closed_at[key] = self._clock.mono()

    def forget_group(self, key: SubscriptionKey) -> None:
        """Stop counting a group: it was deleted, or could not be opened."""
        self._closed_at.pop(key, None)
        self._groups.release(key)

    def forget(self, name: str) -> None:
        """Stop counting a destination and its groups: it was deleted."""
        self._destinations.release(name)
        for key in self._groups.counted():
            if key.source == name:
                self.forget_group(key)

    async def _create(self, backend: Partitioned, name: str, client: str, partition: int | None) -> int:
        if not self._auto_create:
            raise DestinationUnknown(f"There is no destination {name}, and limits.auto_create does not allow new ones.")
        if partition is not None and partition >= backend.new_partitions:
            raise PartitionUnknown(f"x-oms-h-partition: {name} is new and gets {backend.new_partitions} partitions.")
        if name in self._destinations:
            return await backend.partitions(name, create=True)  # being created, or removed by another client
        await self._count(backend, name, client)
        try:
            return await backend.partitions(name, create=True)
        except BridgeError:
            self.forget(name)
            raise

    async def _count(self, backend: Partitioned, name: str, client: str) -> None:
        """Count a destination. If there are too many, those that the backend no longer has stop counting."""
        try:
            self._destinations.take(name, client)
        except (LimitReached, BackendFull):
            await self._forget_removed(backend)
            self._destinations.take(name, client)

    async def _forget_removed(self, backend: Partitioned) -> None:
        for name in self._destinations.counted():
            try:
                await backend.partitions(name, create=False)
            except DestinationUnknown:
                self.forget(name)

    def _release_closed_groups(self) -> None:
        since = self._clock.mono() - GROUP_COUNTED
        for key, closed_at in tuple(self._closed_at.items()):
            if closed_at > since:
                break
            self.forget_group(key)


GroupsClosed = Callable[[str, str | None], AbstractAsyncContextManager[None]]
"""Keeps the groups of a destination, or one of them, closed at this bridge."""


class Administration:
    """One change at a time. Open leases of the groups concerned end; their streams and waiting pulls end, too."""

    def __init__(
        self, adapter: Adapter, destinations: DestinationRegistry, delayed: DelayedShare, groups_closed: GroupsClosed
    ) -> None:
        self._adapter = adapter
        self._destinations = destinations
        self._delayed = delayed
        self._groups_closed = groups_closed
        self._changing = asyncio.Lock()

    async def purge(self, source: str, group: str | None) -> None:
        """Drop all messages of a destination, or settle them for one group.

        Raises `DestinationUnknown` if there is no such destination or group, `NotFound` if the backend cannot do it,
        and the errors of `Deletable`.
        """
        deletable = self._deletable
        async with self._changing, self._groups_closed(source, group):
            await deletable.purge(source, group)
            if group is None:
                self._delayed.forget(source)

    async def delete(self, source: str, group: str | None) -> None:
        """Remove a destination with its groups, or one group. Raises as `purge`."""
        deletable = self._deletable
        async with self._changing, self._groups_closed(source, group):
            await deletable.delete(source, group)
            if group is None:
                self._destinations.forget(source)
                self._delayed.forget(source)
            else:
                self._destinations.forget_group(SubscriptionKey(source, group))

    @property
    def _deletable(self) -> Deletable:
        if not isinstance(self._adapter, Deletable):
            raise NotFound("The bridge cannot delete or purge in this backend: use the broker's own tools.")
        return self._adapter
