"""The fetching side of a group: keeps one fetch under way while the window has room."""

import asyncio
from collections.abc import Callable
from typing import Final

from adapters.base import Delivery, Subscription
from bridge.engine.clock import Clock
from bridge.engine.policy import Policy
from bridge.engine.window import Window
from bridge.errors import BridgeError

_RETRY: Final = 1.0
"""Seconds before fetching again from a backend that failed."""


class Feed:
    """Moves deliveries from a subscription into a window; `arrived` is called when some came by themselves."""

    def __init__(
        self, subscription: Subscription, window: Window, clock: Clock, policy: Policy, arrived: Callable[[], None]
    ) -> None:
        self._subscription = subscription
        self._window = window
        self._clock = clock
        self._policy = policy
        self._arrived = arrived
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Whether a fetch is under way: the backend has nothing more at hand."""
        return self._pending is not None

    def fill(self) -> bool:
        """Fetch while the window has room and something is at hand; whether something came in at once."""
        policy, window = self._policy, self._window
        came = False
        if self._closed or self._retry is not None or self._pending is not None:
            return came
        while window.size < policy.window and window.bytes < policy.window_bytes:
            future = self._subscription.fetch(policy.window - window.size, policy.window_bytes - window.bytes)
            if not future.done():
                self._pending = future
                future.add_done_callback(self._fetched)
                return came
            if not self._take(future):
                return came
            came = True
        return came

    def fill_when_low(self) -> None:
        """Fetch once half of the window is free: many small fetches cost more than few large ones."""
        if self._window.size <= self._policy.window // 2:
            self.fill()

    def collect(self) -> None:
        """Put into the window what a fetch has brought already, in place of the next turn of the loop."""
        pending = self._pending
        if pending is not None and pending.done() and not pending.cancelled():
            self._pending = None
            self._take(pending)

    def close(self) -> None:
        """Fetch nothing more; what a fetch has brought already is in the window."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        pending = self._pending
        if pending is not None and not pending.cancel() and not pending.cancelled():
            self._take(pending)  # it has ended, and its callback will find the feed closed

    def _fetched(self, future: asyncio.Future[list[Delivery]]) -> None:
        if self._pending is not future:
            return  # collected
        self._pending = None
        if not future.cancelled() and not self._closed and self._take(future):
            self.fill()
            self._arrived()

    def _take(self, future: asyncio.Future[list[Delivery]]) -> bool:
        try:
            self._window.offer(future.result(), self._clock.wall())
        except BridgeError:
            if self._retry is None and not self._closed:
                self._retry = asyncio.get_running_loop().call_later(_RETRY, self._fetch_again)
            return False
        return True

    def _fetch_again(self) -> None:
        self._retry = None
        if self._pending is None:
            self.fill()
            self._arrived()
