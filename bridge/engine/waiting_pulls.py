"""Pulls of one group: the request, the pulls that wait for a message, and the pulls that are repeated."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bridge.engine.counters import Counters
from bridge.engine.leases import Entry, LeaseOwner

_STALE: Final = 256
"""Request ids of ended leases that may pile up before they are removed."""


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


WaitingPull = asyncio.Future[Entry | None]


class WaitingPulls:
    """Serves waiting pulls first come, first served. Each costs a future, and a timer if its wait is limited."""

    def __init__(self, counters: Counters, undo: Callable[[Entry, int], None]) -> None:
        self._counters = counters
        self._undo = undo
        self._waiting: OrderedDict[WaitingPull, PullRequest] = OrderedDict()
        self._by_request: dict[str, WaitingPull] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, pull_request: PullRequest) -> Entry | None:
        """Wait for an entry; None if none came in time. A cancelled call loses no message and counts no delivery."""
        loop = asyncio.get_running_loop()
        waiting: WaitingPull = loop.create_future()
        self._waiting[waiting] = pull_request
        if pull_request.request_id is not None:
            # the earlier pull with this id lost its client: this one replaces it
            _end(self._by_request.get(pull_request.request_id))
            self._by_request[pull_request.request_id] = waiting
        self._counters.waiting_pulls += 1
        timeout = None if pull_request.wait is None else loop.call_later(pull_request.wait / 1000, _end, waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and (entry := waiting.result()):
                self._undo(entry, entry.number)
            raise
        finally:
            if timeout is not None:
                timeout.cancel()
            self._waiting.pop(waiting, None)
            if pull_request.request_id is not None and self._by_request.get(pull_request.request_id) is waiting:
                del self._by_request[pull_request.request_id]
            self._counters.waiting_pulls -= 1

    def serve(self, lease: Callable[[PullRequest], Entry | None]) -> None:
        """Give each waiting pull the entry that `lease` returns for it, until `lease` returns None."""
        while self._waiting:
            waiting, pull_request = next(iter(self._waiting.items()))
            if not waiting.done():
                entry = lease(pull_request)
                if entry is None:
                    break
                waiting.set_result(entry)
            del self._waiting[waiting]

    def end_all(self) -> None:
        """End all waiting pulls without a message."""
        for waiting in self._waiting:
            _end(waiting)


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
