"""Fetches ahead for one group: keeps one fetch under way while the prefetch buffer has room."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from adapters.base import Delivery, Subscription
from bridge.engine.clock import Clock
from bridge.engine.options import EngineOptions
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import BridgeError

_RETRY: Final = 1.0
"""Seconds before fetching again from a backend that failed."""

_log = logging.getLogger("bridge.engine")


class Prefetcher:
    """Moves deliveries from a subscription into the buffer; calls `arrived` after a fetch that had to wait."""

    def __init__(
        self,
        subscription: Subscription,
        buffer: PrefetchBuffer,
        clock: Clock,
        options: EngineOptions,
        arrived: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._clock = clock
        self._options = options
        self._arrived = arrived
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Whether a fetch is under way: the backend has no more messages at the moment."""
        return self._pending is not None

    def fill(self) -> bool:
        """Fetch while the buffer has room and the backend has messages. Return whether some came at once."""
        options, buffer = self._options, self._buffer
        fetched = False
        if self._closed or self._retry is not None or self._pending is not None:
            return fetched
        while buffer.size < options.prefetch and buffer.bytes < options.prefetch_bytes:
            future = self._subscription.fetch(options.prefetch - buffer.size, options.prefetch_bytes - buffer.bytes)
            if not future.done():
                self._pending = future
                future.add_done_callback(self._fetched)
                return fetched
            if not self._take(future):
                return fetched
            fetched = True
        return fetched

    def fill_when_low(self) -> None:
        """Fetch if half of the buffer is free: many small fetches cost more than few large ones."""
        if self._buffer.size <= self._options.prefetch // 2:
            self.fill()

    def collect(self) -> bool:
        """Put the result of a completed fetch into the buffer now instead of in the next turn of the loop.

        Returns whether there was one; then `arrived` is not called.
        """
        pending = self._pending
        if pending is None or not pending.done() or pending.cancelled():
            return False
        self._pending = None
        return self._take(pending)

    def close(self) -> None:
        """Stop fetching; the result of a completed fetch is put into the buffer."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        pending = self._pending
        if pending is not None and not pending.cancel() and not pending.cancelled():
            self._take(pending)  # it is complete, and its callback will do nothing because the prefetcher is closed

    def _fetched(self, future: asyncio.Future[list[Delivery]]) -> None:
        if self._pending is not future:
            return  # `collect` has taken its result
        self._pending = None
        if not future.cancelled() and not self._closed and self._take(future):
            self.fill()
            self._arrived()

    def _take(self, future: asyncio.Future[list[Delivery]]) -> bool:
        try:
            deliveries = future.result()
        except Exception as error:  # noqa: BLE001 - the group goes on after a defect of the adapter
            if not isinstance(error, BridgeError):
                _log.exception("a defect of the adapter: a fetch failed")
            if self._retry is None and not self._closed:
                self._retry = asyncio.get_running_loop().call_later(_RETRY, self._fetch_again)
            return False
        self._buffer.offer(deliveries, self._clock.wall())
        return True

    def _fetch_again(self) -> None:
        self._retry = None
        if self._pending is None:
            self.fill()
            self._arrived()
