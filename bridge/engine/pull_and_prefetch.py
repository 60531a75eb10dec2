"""Pulls of one group that wait for a message or are repeated, and the prefetcher that fetches ahead for them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from adapters.base import Delivery, Subscription
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.entries_and_receipts import Entry, LeaseOwner
from bridge.engine.options import EngineOptions
from bridge.engine.parked_fetcher import ParkedFetcher
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import BridgeError

_STALE: Final = 256
"""Request ids of ended leases that may pile up before they are removed."""


WAIT_MAX: Final = 55_000
"""Longest time from a pull to its answer, ms, the opening of its group included: many proxies give up after 60 s."""


class PullRequest(NamedTuple):
    """A request for one message."""

    duration: int
    """Duration of the lease, ms."""
    wait: int | None = 0
    """How long to wait for a message, ms. None: until the group is closed."""
    request_id: str | None = None
    """"A repeated pull with the same id returns the same message while its lease lives"."""
    owner: LeaseOwner | None = None
    """Extends the lease; None: nothing does."""
    most: int = 1
    """How many messages the caller can take now, of which a waiting pull gets the first."""

    def at_most(self, wait: int) -> Self:
        """Return the request with no more than `wait` ms to wait."""
        return self if self.wait is None or self.wait <= wait else self._replace(wait=max(wait, 0))


T = TypeVar("T")


class CancelOnDisconnect(Protocol):
    """Runs a coroutine and cancels it when the client disconnects."""

    async def __call__(self, work: Coroutine[object, object, T]) -> T:
        """Return the coroutine's result. After a disconnect, the calling task is cancelled."""
        ...


async def unwatched(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine for a caller that cannot disconnect."""
    return await work


WaitingPull = asyncio.Future[Entry | None]


class WaitingPulls:
    """Serves waiting pulls first come, first served. Each costs a future, and a timer if its wait is limited."""

    def __init__(
        self, counters: Counters, undo: Callable[[Entry, int], None], changed: Callable[[], None] | None = None
    ) -> None:
        """`changed` is called when a pull begins or stops to wait."""
        self.wanted = 0
        """How many messages the waiting pulls can take."""
        self._counters = counters
        self._undo = undo
        self._changed = changed
        self._waiting: OrderedDict[WaitingPull, PullRequest] = OrderedDict()
        self._by_request: dict[str, WaitingPull] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, pull_request: PullRequest, until: asyncio.Future[None] | None = None) -> Entry | None:
        """Wait for an entry; None if none came in time. A cancelled call loses no message and counts no delivery.

        `until`: wait until it is done, at most.
        """
        loop = asyncio.get_running_loop()
        waiting: WaitingPull = loop.create_future()
        self._waiting[waiting] = pull_request
        self.wanted += pull_request.most
        if pull_request.request_id is not None:
            # the earlier pull with this id lost its client: this one replaces it
            _end(self._by_request.get(pull_request.request_id))
            self._by_request[pull_request.request_id] = waiting
        self._counters.waiting_pulls += 1
        timeout = None if pull_request.wait is None else loop.call_later(pull_request.wait / 1000, _end, waiting)
        if until is not None:
            until.add_done_callback(lambda _: _end(waiting))
        if self._changed is not None:
            self._changed()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and (entry := waiting.result()):
                self._undo(entry, entry.number)
            raise
        finally:
            if timeout is not None:
                timeout.cancel()
            self._remove(waiting)
            if pull_request.request_id is not None and self._by_request.get(pull_request.request_id) is waiting:
                del self._by_request[pull_request.request_id]
            self._counters.waiting_pulls -= 1
            if self._changed is not None:
                self._changed()

    def serve(self, lease: Callable[[PullRequest], Entry | None]) -> None:
        """Give each waiting pull the entry that `lease` returns for it, until `lease` returns None."""
        while self._waiting:
            waiting, pull_request = next(iter(self._waiting.items()))
            if not waiting.done():
                entry = lease(pull_request)
                if entry is None:
                    break
                waiting.set_result(entry)
            self._remove(waiting)

    def end_all(self) -> None:
        """End all waiting pulls without a message."""
        for waiting in self._waiting:
            _end(waiting)

    def _remove(self, waiting: WaitingPull) -> None:
        pull_request = self._waiting.pop(waiting, None)
        if pull_request is not None:
            self.wanted -= pull_request.most


class IdempotentPulls:
    """Remembers which lease was returned for which request id."""

    def __init__(self, leases: Mapping[int, Entry]) -> None:
        """`leases` are the live leases of the group by number."""
        self._leases = leases
        self._answered: dict[str, tuple[Entry, int]] = {}

    def __len__(self) -> int:
        return len(self._answered)

    def find(self, request_id: str, mono: int) -> Entry | None:
        """Return the entry that an earlier pull with this id got, while that lease lasts."""
        entry, number = self._answered.get(request_id, (None, -1))
        if entry is None or self._leases.get(number) is not entry or entry.deadline <= mono:
            return None
        entry.holders += 1
        return entry

    def remember(self, request_id: str, entry: Entry) -> None:
        """Remember the entry that a pull got."""
        if len(self._answered) > 2 * len(self._leases) + _STALE:
            self._answered = {r: (e, n) for r, (e, n) in self._answered.items() if self._leases.get(n) is e}
        self._answered[request_id] = (entry, entry.number)


def _end(waiting: WaitingPull | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


_RETRY: Final = 1.0
"""Seconds before fetching again from a backend that failed."""

_log = logging.getLogger("bridge.engine")


class Prefetcher:
    """Moves deliveries from a subscription into the buffer; calls `arrived` after a fetch that had to wait."""

    def __init__(  # noqa: PLR0913, PLR0917 - the collaborators of one group, built in one place (group.py)
        self,
        subscription: Subscription,
        buffer: PrefetchBuffer,
        clock: Clock,
        options: EngineOptions,
        arrived: Callable[[], None],
        parked: ParkedFetcher,
        wanted: Callable[[], int] | None = None,
    ) -> None:
        """`wanted` returns how many messages are waited for; no more are fetched. None: the buffer is filled."""
        self._subscription = subscription
        self._buffer = buffer
        self._parked = parked
        self._clock = clock
        self._options = options
        self._arrived = arrived
        self._wanted = wanted
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._limit = 0
        """Of the fetch that is under way."""
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
        if buffer.parked and buffer.missing:
            self._parked.fetch()  # there may be space for one of the two only
        # what is fetched on demand is not fetched again: see `OnDemand`
        has_space = buffer.size < options.prefetch and buffer.bytes < options.prefetch_bytes
        if not has_space and (self._wanted is not None or not self._parked.make_space()):
            return fetched
        while (limit := self._capacity()) > 0 and buffer.bytes < options.prefetch_bytes:
            future = self._subscription.fetch(limit, options.prefetch_bytes - buffer.bytes)
            if not future.done():
                self._pending, self._limit = future, limit
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

    def adjust(self) -> bool:
        """Fetch as many messages as are waited for now, if that has changed. Return whether some came at once."""
        pending = self._pending
        if pending is not None and not pending.done() and self._limit != self._capacity():
            self._pending = None
            pending.cancel()
        return self.fill()

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

    def _capacity(self) -> int:
        """Return how many messages may be fetched now."""
        buffer = self._buffer
        free = self._options.prefetch - buffer.size
        return free if self._wanted is None else min(free, self._wanted() - buffer.ready)

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
