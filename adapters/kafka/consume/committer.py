"""Writes what a group has settled: one commit at a time, carrying everything that has changed since the last one."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from adapters.kafka.consume.settled_ranges import SettledRanges
from adapters.kafka.record import Commits, Part
from bridge.errors import BridgeError

GAP: Final = 0.005
"""Seconds between the starts of two commits, at least. One takes a broker 1.3 to 1.8 ms."""
LAZY: Final = 0.05
"""Seconds in which a commit is made that no caller waits for."""
RETRY: Final = 1.0
"""Seconds after which what could not be written is tried again."""


class Held(Protocol):
    """A partition that is held."""

    @property
    def progress(self) -> SettledRanges:
        """What is to be committed."""
        ...


class Waiter:
    """One acknowledgement that waits for its commit."""

    __slots__ = ("future", "parts")

    def __init__(self, future: asyncio.Future[None], parts: AbstractSet[Part]) -> None:
        self.future = future
        self.parts = parts

    def end(self, error: BridgeError | None) -> None:
        """Answer it."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            self.future.exception()  # whether a caller waits for it or not


class Committer:
    """Gathers what has changed, and writes it."""

    def __init__(self, held: Mapping[Part, Held], write: Callable[[Commits], asyncio.Future[None]]) -> None:
        self._held = held
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._dirty: set[Part] = set()
        self._waiters: list[Waiter] = []
        self._under_way: asyncio.Future[None] | None = None
        self._answering: list[Waiter] = []
        """Those whose commit is under way."""
        self._writing: set[Part] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._not_before = 0.0
        self._closed = False

    def changed(self, parts: Collection[Part]) -> None:
        """Write these soon; no caller waits."""
        self._dirty.update(parts)
        self._arm(LAZY)

    def settled(self, parts: AbstractSet[Part]) -> asyncio.Future[None]:
        """Write these at once, or with the next commit; the future is done when they are written."""
        self._dirty.update(parts)
        waiter = Waiter(self._loop.create_future(), parts)
        self._waiters.append(waiter)
        self._arm(0)
        return waiter.future

    def forget(self, parts: Collection[Part], error: BridgeError) -> None:
        """Forget these partitions; futures that wait for one of them get the error."""
        self._dirty.difference_update(parts)
        for waiters in (self._waiters, self._answering):
            lost = [waiter for waiter in waiters if not waiter.parts.isdisjoint(parts)]
            for waiter in lost:
                waiters.remove(waiter)
                waiter.end(error)

    def stop(self) -> Commits:
        """Begin no commit any more; returns what the last one has to carry."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._gather(self._dirty | self._writing)

    def finish(self, error: BridgeError | None) -> None:
        """Answer all who still wait: the last commit is over."""
        for waiter in (*self._waiters, *self._answering):
            waiter.end(error)
        self._waiters, self._answering = [], []

    def _arm(self, seconds: float) -> None:
        if self._closed or self._under_way is not None:
            return
        at = max(self._loop.time() + seconds, self._not_before)
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._not_before = self._loop.time() + GAP
        self._writing, self._dirty = self._dirty, set()
        self._answering, self._waiters = self._waiters, []
        commits = self._gather(self._writing)
        if not commits:
            self._end(None)
            return
        self._under_way = self._write(commits)
        self._under_way.add_done_callback(self._written)

    def _gather(self, parts: Collection[Part]) -> Commits:
        found = ((part, self._held[part].progress.commit()) for part in parts if part in self._held)
        return {part: commit for part, commit in found if commit is not None}

    def _written(self, future: asyncio.Future[None]) -> None:
        self._under_way = None
        error = future.exception()
        if error is not None and not isinstance(error, BridgeError):
            raise error
        self._end(error)

    def _end(self, error: BridgeError | None) -> None:
        answering, self._answering = self._answering, []
        writing, self._writing = self._writing, set()
        if error is not None:
            self._dirty.update(part for part in writing if part in self._held)
            self._not_before = self._loop.time() + RETRY
        for waiter in answering:
            waiter.end(error)
        if self._waiters:
            self._arm(0)
        elif self._dirty:
            self._arm(LAZY)
