"""A member of a group: the partitions it holds, and one commit at a time of everything settled since the last one.

Both readers of topics are such members: the subscription of a group, and the forwarder of delayed messages.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from adapters.kafka.admin import Admin
from adapters.kafka.consume.consumer import Consumer
from adapters.kafka.consume.membership import Member
from adapters.kafka.consume.settled_ranges import SettledRanges
from adapters.kafka.mapping import Commits, Part
from adapters.kafka.options import Options
from adapters.kafka.thread_to_loop import complete
from bridge.errors import BridgeError, OutcomeUnknown

GAP: Final = 0.005
"""Seconds between the starts of two commits, at least. One takes a broker 1.3 to 1.8 ms."""
LAZY: Final = 0.05
"""Seconds in which a commit is made that no caller waits for."""
RETRY: Final = 1.0
"""Seconds after which a failed commit is tried again."""

_log = logging.getLogger("bridge.kafka")


class Partition(Protocol):
    """A partition that is held."""

    progress: SettledRanges
    """What is to be committed."""


class GroupMember(Member):
    """Base of each member that commits the records it has settled."""

    def __init__(
        self, options: Options, admin: Admin, group: str, topics: Sequence[str], partitions: Mapping[Part, Partition]
    ) -> None:
        """`partitions`: those that are held, which the subclass adds and removes."""
        self.closed = False
        self._consumer = Consumer(options, admin, group, topics, self)
        self._held = partitions
        self._loop = asyncio.get_running_loop()
        self._dirty: set[Part] = set()
        """To be committed."""
        self._waiters: dict[asyncio.Future[None], AbstractSet[Part]] = {}
        """Acknowledgements that wait for their commit, and the partitions that it has to write."""
        self._committing: asyncio.Future[None] | None = None
        """A commit; `_answering` wait for it, and it writes `_writing`."""
        self._answering: dict[asyncio.Future[None], AbstractSet[Part]] = {}
        self._writing: set[Part] = set()
        self._commit_timer: asyncio.TimerHandle | None = None
        self._commit_at = 0.0
        """Of the loop's clock; uvloop's handles have no `when` for a call at once."""
        self._not_before = 0.0
        self._leaving = False

    @abstractmethod
    def _release(self, parts: Collection[Part]) -> None:
        """Forget partitions. Their commits are read before, so the attempts of their records are noted first."""

    def revoked(self, parts: Collection[Part]) -> Commits:
        """Release partitions that another bridge will have; returns their last commits."""
        held = {part: self._held[part].progress for part in parts if part in self._held}
        self._release(held)
        self._dirty.difference_update(held)
        error = OutcomeUnknown("The partition moved to another bridge during the commit.")
        for waiters in (self._waiters, self._answering):
            for future in [future for future, of_future in waiters.items() if not of_future.isdisjoint(held)]:
                del waiters[future]
                complete(future, None, error)
        return {part: commit for part, progress in held.items() if (commit := progress.commit()) is not None}

    def lost(self, parts: Collection[Part]) -> None:
        """Release partitions that another bridge has already."""
        self.revoked(parts)

    def failed(self, error: BridgeError) -> None:
        """Log that nothing can be fetched now."""
        if not self.closed:
            _log.warning("%s", error)

    def ended(self, error: BridgeError) -> None:
        """Drop all partitions: another consumer joins later, and logs it."""
        del error
        self.lost(list(self._held))

    def _commit_soon(self, parts: Collection[Part]) -> None:
        self._dirty.update(parts)
        self._schedule_commit(LAZY)

    def _commit(self, parts: AbstractSet[Part]) -> asyncio.Future[None]:
        """Write these at once, or with the next commit; the future is done when they are written."""
        self._dirty.update(parts)
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters[future] = parts
        self._schedule_commit(0)
        return future

    async def _leave(self, consequence: str) -> None:
        """Commit and leave the group; the log says the consequence if that fails."""
        self._leaving = True
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        error: BridgeError | None = None
        try:
            await self._consumer.close(self._gather(self._dirty | self._writing))
        except BridgeError as failure:
            _log.warning("%s: %s", consequence, failure)
            error = failure
        for future in (*self._waiters, *self._answering):
            complete(future, None, error)
        self._waiters, self._answering = {}, {}

    def _schedule_commit(self, seconds: float) -> None:
        if self._leaving or self._committing is not None:
            return
        at = max(self._loop.time() + seconds, self._not_before)
        if self._commit_timer is None or at < self._commit_at:
            if self._commit_timer is not None:
                self._commit_timer.cancel()
            self._commit_at = at
            self._commit_timer = self._loop.call_at(at, self._begin_commit)

    def _begin_commit(self) -> None:
        self._commit_timer = None
        self._not_before = self._loop.time() + GAP
        self._writing, self._dirty = self._dirty, set()
        self._answering, self._waiters = self._waiters, {}
        if commits := self._gather(self._writing):
            self._committing = self._consumer.commit(commits)
            self._committing.add_done_callback(lambda done: self._end_commit(done.exception()))
        else:
            self._end_commit(None)

    def _gather(self, parts: Collection[Part]) -> Commits:
        found = ((part, self._held[part].progress.commit()) for part in parts if part in self._held)
        return {part: commit for part, commit in found if commit is not None}

    def _end_commit(self, error: BaseException | None) -> None:
        self._committing = None
        answering, self._answering = self._answering, {}
        writing, self._writing = self._writing, set()
        if error is not None:
            self._dirty.update(part for part in writing if part in self._held)
            self._not_before = self._loop.time() + RETRY
        for future in answering:
            complete(future, None, error)
        if self._waiters:
            self._schedule_commit(0)
        elif self._dirty:
            self._schedule_commit(LAZY)
