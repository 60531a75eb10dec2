"""A subscription of the memory backend: fetches and settles the messages of one group."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from adapters.base import Delivery, Outcome
from adapters.memory.group import StoredGroup
from bridge.errors import BackendUnavailable


class SubscriptionOwner(Protocol):
    """The adapter, as a subscription needs it."""

    def settle(
        self, subscription: "MemorySubscription", deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        """Record an outcome."""
        ...

    def leave(self, subscription: "MemorySubscription") -> None:
        """Note that the group has no subscription any more."""
        ...


class MemorySubscription:
    """Fetches for one group; a fetch that finds nothing waits for the next append to the destination."""

    fetches_again = True

    def __init__(self, owner: SubscriptionOwner, group: StoredGroup, listeners: dict[str, Callable[[], None]]) -> None:
        """`listeners`, by group, are called at the next append and then removed."""
        self.group = group
        self.closed = False
        self._owner = owner
        self._listeners = listeners
        self._loop = asyncio.get_running_loop()
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._limits = (1, 0)
        self._scheduled = False

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return available messages, or a future that waits. It raises `BackendUnavailable` once closed."""
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        if self.closed:
            future.set_exception(_closed())
        elif found := self.group.fetch(limit, max_bytes):
            future.set_result(found)
        else:
            self._pending, self._limits = future, (limit, max_bytes)
            self._listeners[self.group.name] = self.wake
        return future

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        """Return the messages that are still kept; a future that is done."""
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        if self.closed:
            future.set_exception(_closed())
        else:
            future.set_result(self.group.fetch_again(deliveries))
        return future

    @property
    def lag(self) -> int:
        """See `adapters.base.Lagging`."""
        return sum(cursor.unsettled() for cursor in self.group.cursors)

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome, at once or with the journal's next commit."""
        return self._owner.settle(self, deliveries, outcome)

    def wake(self) -> None:
        """Fetch again in the next turn of the loop: then everything published in this turn is stored."""
        if self._pending is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._fetch_again)

    def stop(self) -> None:
        """Close without waiting."""
        if self.closed:
            return
        self.closed = True
        self._listeners.pop(self.group.name, None)
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(_closed())
            self._pending.exception()  # retrieved, so that asyncio does not log it if nothing waits any more
        self._pending = None
        self._owner.leave(self)

    async def close(self) -> None:
        """Leave the group; its next subscription starts at its lowest unsettled message."""
        self.stop()

    def _fetch_again(self) -> None:
        self._scheduled = False
        pending = self._pending
        if pending is None or pending.done():
            self._pending = None
        elif found := self.group.fetch(*self._limits):
            self._pending = None
            pending.set_result(found)
        else:
            self._listeners[self.group.name] = self.wake


def _closed() -> BackendUnavailable:
    return BackendUnavailable("The subscription is closed.")
