"""A member of a group: the partitions it holds, and one commit at a time of everything settled since the last one.

Both readers of topics are such members: the subscription of a group, and the forwarder of delayed messages.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

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

    @property
    def progress(self) -> SettledRanges:
        """What is to be committed."""
        ...


P = TypeVar("P", bound=Partition)


class GroupMember(Member, Generic[P]):
    """Base of each member that commits the records it has settled."""

    def __init__(
        self, options: Options, admin: Admin, group: str, topics: Sequence[str], partitions: Mapping[Part, P]
    ) -> None:
        """`partitions`: those that are held, which the subclass adds and removes."""
        self._consumer = Consumer(options, admin, group, topics, self)
        self._partitions = partitions
        self._commits = Committer(partitions, self._consumer.commit)
        self._loop = asyncio.get_running_loop()
        self.closed = False

    @abstractmethod
    def _release(self, partitions: Collection[P]) -> None:
        """Forget partitions. Their commits are read afterwards, so the attempts of their records are noted before."""

    def revoked(self, parts: Collection[Part]) -> Commits:
        """Release partitions that another bridge will have; returns their last commits."""
        held = {part: self._partitions[part] for part in parts if part in self._partitions}
        self._release(held.values())
        self._commits.forget(held, OutcomeUnknown("The partition moved to another bridge during the commit."))
        return {part: commit for part, each in held.items() if (commit := each.progress.commit()) is not None}

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
        self.lost(list(self._partitions))

    async def _leave(self, consequence: str) -> None:
        """Commit and leave the group; the log says the consequence if that fails."""
        error: BridgeError | None = None
        try:
            await self._consumer.close(self._commits.stop())
        except BridgeError as failure:
            _log.warning("%s: %s", consequence, failure)
            error = failure
        self._commits.finish(error)


class Committer:
    """Gathers the partitions that have changed, and writes their positions."""

    def __init__(self, held: Mapping[Part, Partition], write: Callable[[Commits], asyncio.Future[None]]) -> None:
        self._held = held
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._dirty: set[Part] = set()
        self._waiters: dict[asyncio.Future[None], AbstractSet[Part]] = {}
        """Acknowledgements that wait for their commit, and the partitions that it has to write."""
        self._under_way: asyncio.Future[None] | None = None
        self._answering: dict[asyncio.Future[None], AbstractSet[Part]] = {}
        """Those whose commit is under way."""
        self._writing: set[Part] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """Of the loop's clock; uvloop's handles have no `when` for a call at once."""
        self._not_before = 0.0
        self._closed = False

    def changed(self, parts: Collection[Part]) -> None:
        """Write these soon; no caller waits."""
        self._dirty.update(parts)
        self._arm(LAZY)

    def settled(self, parts: AbstractSet[Part]) -> asyncio.Future[None]:
        """Write these at once, or with the next commit; the future is done when they are written."""
        self._dirty.update(parts)
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters[future] = parts
        self._arm(0)
        return future

    def forget(self, parts: Collection[Part], error: BridgeError) -> None:
        """Forget these partitions; futures that wait for one of them get the error."""
        self._dirty.difference_update(parts)
        for waiters in (self._waiters, self._answering):
            for future in [future for future, of_future in waiters.items() if not of_future.isdisjoint(parts)]:
                del waiters[future]
                complete(future, None, error)

    def stop(self) -> Commits:
        """Begin no commit any more; returns the positions for the last one."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        return self._gather(self._dirty | self._writing)

    def finish(self, error: BridgeError | None) -> None:
        """Answer all acknowledgements that still wait: the last commit is over."""
        for future in (*self._waiters, *self._answering):
            complete(future, None, error)
        self._waiters, self._answering = {}, {}

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
        self._answering, self._waiters = self._waiters, {}
        commits = self._gather(self._writing)
        if commits:
            self._under_way = self._write(commits)
            self._under_way.add_done_callback(self._written)
        else:
            self._end(None)

    def _gather(self, parts: Collection[Part]) -> Commits:
        found = ((part, self._held[part].progress.commit()) for part in parts if part in self._held)
        return {part: commit for part, commit in found if commit is not None}

    def _written(self, future: asyncio.Future[None]) -> None:
        self._under_way = None
        self._end(future.exception())

    def _end(self, error: BaseException | None) -> None:
        answering, self._answering = self._answering, {}
        writing, self._writing = self._writing, set()
        if error is not None:
            self._dirty.update(part for part in writing if part in self._held)
            self._not_before = self._loop.time() + RETRY
        for future in answering:
            complete(future, None, error)
        if self._waiters:
            self._arm(0)
        elif self._dirty:
            self._arm(LAZY)
