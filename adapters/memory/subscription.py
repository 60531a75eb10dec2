"""One group's live view of one destination."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from adapters.base import Delivery, Outcome
from adapters.memory.group import Group
from adapters.memory.log import Destination
from bridge.errors import BackendUnavailable


class Recorder(Protocol):
    """What a subscription needs of its adapter."""

    def settle(
        self, subscription: "MemorySubscription", deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        """Record an outcome."""
        ...

    def leave(self, subscription: "MemorySubscription") -> None:
        """Free the group."""
        ...


class MemorySubscription:
    """Fetches for one group, waiting on a future that the next append completes."""

    def __init__(self, recorder: Recorder, destination: Destination, group: Group) -> None:
        self.group = group
        self.closed = False
        self._recorder = recorder
        self._destination = destination
        self._loop = asyncio.get_running_loop()
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._want = (1, 0)
        self._woken = False

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return what is ready; else a future that waits. It raises `BackendUnavailable` once closed."""
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        if self.closed:
            future.set_exception(_closed())
        elif found := self.group.fetch(limit, max_bytes):
            future.set_result(found)
        else:
            self._pending, self._want = future, (limit, max_bytes)
            self._listen()
        return future

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome, at once or with the journal's next commit."""
        return self._recorder.settle(self, deliveries, outcome)

    def wake(self) -> None:
        """Look again in the next turn of the loop: by then everything published in this one is there."""
        if self._pending is not None and not self._woken:
            self._woken = True
            self._loop.call_soon(self._answer)

    def stop(self) -> None:
        """Close without waiting."""
        if self.closed:
            return
        self.closed = True
        self._destination.waiting.pop(self.group.name, None)
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(_closed())
            self._pending.exception()  # that nobody waits for it any more is no error worth a log line
        self._pending = None
        self._recorder.leave(self)

    async def close(self) -> None:
        """Leave the group, so that its next subscription starts at its lowest unsettled message."""
        self.stop()

    def _listen(self) -> None:
        self._destination.waiting[self.group.name] = self.wake

    def _answer(self) -> None:
        self._woken = False
        pending = self._pending
        if pending is None or pending.done():
            self._pending = None
        elif found := self.group.fetch(*self._want):
            self._pending = None
            pending.set_result(found)
        else:
            self._listen()


def _closed() -> BackendUnavailable:
    return BackendUnavailable("The subscription is closed.")
