"""Finds destinations and groups, decides which new ones clients may create, and deletes them for an operator."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from adapters.base import Adapter, Deletable, Partitioned
from bridge.engine.client_limits import DelayedShare, OwnedShare, Share
from bridge.engine.clock import Clock
from bridge.engine.destination_names import SubscriptionKey, dead_letter_of, is_dead_letter
from bridge.engine.options import EngineOptions
from bridge.engine.partitioner import NO_PARTITIONS, Partitioner
from bridge.errors import BackendFull, BridgeError, DestinationUnknown, LimitReached, NotFound, PartitionUnknown

GROUP_COUNTED: Final = 24 * 3600 * 1000
"""Milliseconds for which a group counts after it was closed as unused."""


class DestinationRegistry:
    """Which client had which destination and group created, until they are deleted or forgotten.

    After a restart nothing is counted. A backend that is not `Partitioned` creates destinations without being asked.
    """

    def __init__(self, adapter: Adapter, clock: Clock, options: EngineOptions) -> None:
        # checked once: isinstance with a run-time protocol costs 12 us
        self._backend = adapter if isinstance(adapter, Partitioned) else None
        self.known: Callable[[str], int | None] = (
            (lambda _: NO_PARTITIONS) if self._backend is None else self._backend.known_partitions
        )
        """Returns the number of partitions of a destination that is known to exist; None: call `partitions`."""
        self._clock = clock
        self._auto_create = options.auto_create
        self.partitioner = Partitioner()
        """For messages of clients and dead letters; forgets what is deleted."""
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

    async def prepare_group(self, key: SubscriptionKey, client: str, *, create: bool) -> None:
        """Check that a group may be opened, and with `create` create its destination if that is new.

        Raises as `partitions`; `DestinationUnknown` without `create`, or if the dead letters of the group could not be
        stored.
        """
        if key not in self._groups:
            self._release_closed_groups()
            self._groups.check(client)
        if create:
            await self.partitions(key.source, client)
        elif self._backend is not None:
            await self._backend.partitions(key.source, create=False)
        await self._check_dead_letters(key.source)

    def open_group(self, key: SubscriptionKey, client: str) -> None:
        """Count a group that is opened now; `prepare_group` comes before. Raises `LimitReached`, `BackendFull`."""
        self._groups.take(key, client)
        self._closed_at.pop(key, None)

    def close_group(self, key: SubscriptionKey) -> None:
        """Note that a group was closed: it counts for `GROUP_COUNTED` from now on."""
        if key in self._groups:
            self._closed_at[key] = self._clock.mono()

    def forget_group(self, key: SubscriptionKey) -> None:
        """Stop counting a group: it was deleted, or could not be opened."""
        self._closed_at.pop(key, None)
        self._groups.release(key)

    def forget(self, name: str) -> None:
        """Forget a destination and its groups: it was deleted."""
        self._destinations.release(name)
        self.partitioner.forget(name)
        for key in self._groups.counted():
            if key.source == name:
                self.forget_group(key)

    async def _check_dead_letters(self, source: str) -> None:
        """Refuse a group at once if its first dead letter would block its key: no bridge may create the destination."""
        if self._backend is None or self._backend.creates or is_dead_letter(source):
            return
        name = dead_letter_of(source)
        try:
            await self._backend.partitions(name, create=False)
        except DestinationUnknown as error:
            said = f"{source}: its groups need {name} for dead letters; create it, or allow the bridge to (create=)."
            raise DestinationUnknown(f"{said} {error.detail}") from error

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


GroupsClosed = Callable[[str, str | None, str], AbstractAsyncContextManager[None]]
"""Keeps the groups of a destination, or one of them, closed at this bridge. The last argument ends their streams."""


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
        async with self._changing, self._groups_closed(source, group, "purged"):
            await deletable.purge(source, group)
            if group is None:
                self._delayed.forget(source)

    async def delete(self, source: str, group: str | None) -> None:
        """Remove a destination with its groups, or one group. Raises as `purge`."""
        deletable = self._deletable
        async with self._changing, self._groups_closed(source, group, "deleted"):
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
