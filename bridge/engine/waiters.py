"""Those who wait for a message of one group: futures in a row, woken by whatever makes an entry ready."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from bridge.engine.counters import Counters
from bridge.engine.window import Entry, Keeper


class Want(NamedTuple):
    """What somebody asks for."""

    duration: int
    """How long the message shall be the consumer's, ms."""
    wait: int | None = 0
    """How long to wait for one, ms. None: until the group is closed."""
    request_id: str | None = None
    """"A repeated pull with the same id returns the same message while its lease lives"."""
    keeper: Keeper | None = None
    """Who keeps the lease alive."""


Waiter = asyncio.Future[Entry | None]


class Waiters:
    """First come, first served. A waiter costs a future, and a timer where it does not wait for ever."""

    def __init__(self, counters: Counters, undo: Callable[[Entry, int], None]) -> None:
        self._counters = counters
        self._undo = undo
        self._waiting: OrderedDict[Waiter, Want] = OrderedDict()
        self._by_request: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, want: Want) -> Entry | None:
        """Wait for an entry; None when none came in time. Cancelling loses nothing and counts nothing."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        self._waiting[waiter] = want
        if want.request_id is not None:
            # the older pull of the same id lost its client: this one takes its place
            _give_up(self._by_request.get(want.request_id))
            self._by_request[want.request_id] = waiter
        self._counters.waiting_pulls += 1
        timeout = None if want.wait is None else loop.call_later(want.wait / 1000, _give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (late := waiter.result()):
                self._undo(late, late.number)
            raise
        finally:
            if timeout is not None:
                timeout.cancel()
            self._waiting.pop(waiter, None)
            if want.request_id is not None and self._by_request.get(want.request_id) is waiter:
                del self._by_request[want.request_id]
            self._counters.waiting_pulls -= 1

    def serve(self, lease: Callable[[Want], Entry | None]) -> None:
        """Give each the entry that `lease` finds for it, until it finds none."""
        waiting = self._waiting
        while waiting:
            waiter, want = next(iter(waiting.items()))
            if not waiter.done():
                entry = lease(want)
                if entry is None:
                    break
                waiter.set_result(entry)
            del waiting[waiter]

    def dismiss(self) -> None:
        """Tell all that there is nothing."""
        for waiter in self._waiting:
            _give_up(waiter)


def _give_up(waiter: Waiter | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
