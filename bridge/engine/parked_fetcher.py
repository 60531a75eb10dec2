"""Makes space in a full prefetch buffer by parking entries that wait, and fetches their messages again in time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from adapters.base import Delivery, Outcome, Subscription
from bridge.engine.clock import Clock, ignore_result
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.options import EngineOptions
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import BridgeError

PARKED_MAX: Final = 64
"""Parked entries of a group, times `limits.prefetch`. One takes about 0.4 KiB, with RabbitMQ 1 KiB."""
_LOOK: Final = 0.2
"""Seconds between two looks at a full buffer whose keys went on lately."""
_RETRY: Final = 1.0
"""Seconds before fetching again from a backend that failed."""

_log = logging.getLogger("bridge.engine")


class ParkedFetcher:
    """Parks the entries of one group, and fetches their messages again; one request is under way at a time."""

    def __init__(
        self,
        subscription: Subscription,
        buffer: PrefetchBuffer,
        clock: Clock,
        options: EngineOptions,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when there is space in the buffer, or entries have their messages again."""
        self._subscription = subscription
        self._buffer = buffer
        self._clock = clock
        self._options = options
        self._changed = changed
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Ends the pause between two looks, or after a failure."""
        self._failed = False
        self._closed = False

    def make_space(self) -> bool:
        """Park entries of a full buffer if consumers find no message in it. Return whether there is space now.

        Messages that wait for their key or for a time must not keep those of other keys out of the buffer. While all
        consumers are busy, or the keys go on, nothing is parked: fetching it again costs more than its wait.
        """
        buffer, options = self._buffer, self._options
        # those that are missing do not count: they are about to change places with others
        limit = PARKED_MAX * options.prefetch - buffer.parked + buffer.missing
        if not self._subscription.fetches_again:
            return False
        if buffer.ready or limit <= 0 or not buffer.waiting or not (buffer.is_wanted or buffer.missing):
            return False
        parkable = buffer.parkable(self._clock.mono(), self._clock.wall())
        if buffer.park(parkable, options.prefetch // 2, options.prefetch_bytes // 2, limit):
            return True
        self._call_later(_LOOK)
        return False

    def fetch(self) -> None:
        """Fetch the messages of missing entries if there is space for them."""
        buffer, options = self._buffer, self._options
        if self._pending is not None or self._failed or self._closed or not buffer.missing:
            return
        if buffer.size >= options.prefetch or buffer.bytes >= options.prefetch_bytes:
            self.make_space()
        expired = len(buffer.expired)
        entries = buffer.request(options.prefetch, options.prefetch_bytes, self._clock.wall())
        if entries:
            self._pending = pending = self._subscription.fetch_again([entry.delivery for entry in entries])
            pending.add_done_callback(lambda done: self._fetched(entries, done))
        elif len(buffer.expired) > expired:  # what followed them may be ready
            self._call_later(0)

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._pending is not None:
            self._pending.cancel()

    def _fetched(self, entries: list[Entry], future: asyncio.Future[list[Delivery]]) -> None:
        self._pending = None
        if self._closed:
            return
        try:
            deliveries = future.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the group goes on after a defect of the adapter
            if not isinstance(error, BridgeError):
                _log.error("a defect of the adapter: messages could not be fetched again", exc_info=error)
            for entry in entries:
                self._buffer.request_failed(entry)
            self._failed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._call_later(_RETRY)
            return
        found = {(each.partition, each.position): each.message for each in deliveries}
        lost = []
        for entry in entries:
            message = found.get((entry.delivery.partition, entry.delivery.position))
            if message is not None:
                self._buffer.restore(entry, message)
            elif self._buffer.lost(entry):
                lost.append(entry.delivery)
        if lost:
            self._subscription.settle(lost, Outcome.SETTLED).add_done_callback(ignore_result)
        self._changed()

    def _call_later(self, seconds: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._call)

    def _call(self) -> None:
        self._timer = None
        self._failed = False
        self._changed()
