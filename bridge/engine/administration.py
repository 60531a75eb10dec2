"""Purges and deletes destinations and groups for an operator."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from adapters.base import Adapter, Deletable
from bridge.engine.destination_registry import DestinationRegistry
from bridge.engine.names import SubscriptionKey
from bridge.engine.quota import DelayedShare
from bridge.errors import NotFound

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
