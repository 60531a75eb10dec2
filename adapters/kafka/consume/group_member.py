"""A member of a consumer group on kafka-python, as the event loop sees it. It joins again if its membership ends.

Three threads meet here. The event loop calls these methods. The poller's own thread is in `poll` for most of the time.
The library's IO thread runs the coroutines of `Membership`: commits, and what happens when partitions come and go.
Foreign exceptions never leave it: they are errors of the bridge, by the tables in `errors`.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, repeat
from typing import Final, Protocol

from adapters.kafka import names
from adapters.kafka.admin import Admin
from adapters.kafka.consume.membership import Member
from adapters.kafka.consume.poller import Poller
from adapters.kafka.consume.settled_ranges import SettledRanges
from adapters.kafka.errors import InstanceTaken
from adapters.kafka.mapping import Commits, Part
from adapters.kafka.options import Options
from adapters.kafka.thread_to_loop import cancel, complete
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, OutcomeUnknown

_CLOSING: Final = 6.0
"""Seconds that leaving may take; if it takes longer, it ends later, in the background."""
_LAST_COMMIT: Final = 2.0
"""Seconds that a commit under way may take before."""
_PAUSES: Final = (1, 2, 4, 8, 16, 30)
"""Seconds between attempts to join; the last one repeats."""
GAP: Final = 0.005
"""Seconds between the starts of two commits, at least. One takes a broker 1.3 to 1.8 ms."""
LAZY: Final = 0.05
"""Seconds in which a commit is made that no caller waits for."""
RETRY: Final = 1.0
"""Seconds after which a failed commit is tried again."""
_WALL_CHECK: Final = 10.0
"""Seconds after which the wall clock is read again: it may have been set."""

_log = logging.getLogger("bridge.kafka")


class Partition(Protocol):
    """A partition that is held."""

    progress: SettledRanges
    """What is to be committed."""


class GroupMember(Member):
    """Base of each member: one membership after another, the partitions that it holds, and their commits.

    Each poller is one membership, joined and polled in the background. There is one commit at a time, of everything
    settled since the last one. Both readers of topics are such members: the subscription of a group, and the forwarder
    of delayed messages.
    """

    def __init__(
        self, options: Options, admin: Admin, group: str, topics: Sequence[str], partitions: Mapping[Part, Partition]
    ) -> None:
        """`partitions`: those that are held, which the subclass adds and removes.

        A group with several destinations has a static member of the instance for each, named by its first topic.
        """
        if options.instance is not None:
            options = options._replace(instance=names.member(options.instance, topics[0]))
        self._options = options
        self._admin = admin
        self._group = group
        self._topics = topics
        self._held = partitions
        self._loop = asyncio.get_running_loop()
        self.closed = False
        self.not_ready_reason: str | None = None
        """Why this bridge is not a member of the group now; None: it is."""
        self._poller: Poller | None = None
        self._joining: asyncio.Task[None] | None = None
        self._final: Commits = {}
        """To be committed when a poller that has not joined yet is stopped."""
        self._leaving = False
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
        self._timer: asyncio.TimerHandle | None = None

    async def join(self) -> None:
        """Join the group, and return when the first assignment is made and its records have begun to arrive.

        Of each assigned partition a first record has arrived by then, or there was none: so a first pull misses
        nothing. An assignment may be empty. Without a committed offset a partition starts at its oldest record.
        Raises `BackendUnavailable` or `Refused`; nothing is left to close then.
        """
        self._poller = poller = Poller(self._loop, self._options, self._group, self._topics, self)
        try:
            await asyncio.shield(poller.joined)
        except BaseException:
            self._poller = None
            poller.stop(self._final)
            await asyncio.shield(asyncio.wait((poller.ended,), timeout=_CLOSING))
            raise
        poller.ended.add_done_callback(self._ended)

    def join_soon(self) -> None:
        """Join the group, and try again until that succeeds."""
        self._joining = self._loop.create_task(self._join_repeatedly(None))

    def _set_paused(self, parts: Collection[Part], *, paused: bool) -> None:
        """Stop fetching some partitions soon, or go on within a few milliseconds; the membership is kept.

        What is on its way still arrives. Fetching goes on where it stopped.
        """
        if self._poller is not None:
            self._poller.set_paused(parts, paused=paused)

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

    def _wake_at(self, due: float | None, now: int, call: Callable[[], None]) -> None:
        """Set the one timer to a time of the wall clock, or to `_WALL_CHECK` from now if that is sooner; None: to none.

        Times are milliseconds since 1970. It is never early, as the wall clock is rounded down.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_later(min(max((due - now) / 1000, 0.001), _WALL_CHECK), call)

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
        for timer in (self._timer, self._commit_timer):
            if timer is not None:
                timer.cancel()
        error: BridgeError | None = None
        try:
            await self._disconnect(self._gather(self._dirty | self._writing))
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
            self._write(commits).add_done_callback(lambda done: self._end_commit(done.exception()))
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

    def _write(self, commits: Commits) -> asyncio.Future[None]:
        """Write positions, at most one commit at a time; the future is done when the coordinator has them.

        It raises `BackendUnavailable` (not written) or `OutcomeUnknown`. Partitions that go before the commit is sent
        are left out: their last commit was written when they went.
        """
        self._committing = future = self._loop.create_future()
        if self._poller is None:
            future.set_exception(BackendUnavailable(self.not_ready_reason or "The bridge has left the group."))
        else:
            self._poller.commit(commits, future)
        return future

    async def _disconnect(self, commits: Commits) -> None:
        """Commit, leave the group (a static member does not), and close threads and sockets. Idempotent.

        `revoked` is not called for it. Raises `BackendUnavailable` or `OutcomeUnknown` if the commit failed;
        everything is closed then, too.
        """
        self._leaving, self._final, poller = True, commits, self._poller
        if self._joining is not None:
            await cancel([self._joining])
        if poller is None:
            return
        if self._committing is not None:
            await asyncio.wait((self._committing,), timeout=_LAST_COMMIT)
        poller.stop(commits)
        await asyncio.wait((poller.ended,), timeout=_CLOSING)
        if not poller.ended.done():
            raise BackendUnavailable(
                "Kafka has not answered in time: the bridge left the group without a final commit."
            )
        if commits:
            poller.ended.result()

    def _ended(self, ended: asyncio.Future[None]) -> None:
        error = ended.exception()
        if self._leaving:
            return
        if not isinstance(error, BridgeError):
            error = BackendUnavailable("The consumer of a group has ended; the log has the details.")
        self._poller = None
        self._not_ready(error)
        self.ended(error)
        self._joining = self._loop.create_task(self._join_repeatedly(error))

    async def _join_repeatedly(self, error: Exception | None) -> None:
        """Join until that succeeds; `error`: why the membership has ended, None: there was none."""
        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        taken = False
        while True:
            if error is not None:
                await asyncio.sleep(next(pauses))
            try:
                taken = taken or isinstance(error, InstanceTaken)
                if taken and self._options.instance in await self._admin.instances(self._group):
                    continue  # joining would remove the other bridge, which would then remove this one
                taken = False
                await self.join()
            except Exception as failure:  # noqa: BLE001 - even a defect must not end the attempts
                if not isinstance(failure, (BridgeError, CannotStart)):
                    _log.exception("joining a group has failed")
                error = failure
                self._not_ready(failure)
            else:
                if error is not None:
                    self.not_ready_reason = None
                    _log.warning("this bridge is a member of the group %s again, after: %s", self._group, error)
                return

    def _not_ready(self, error: Exception) -> None:
        if str(error) != self.not_ready_reason:
            self.not_ready_reason = str(error)
            _log.warning("this bridge is not a member of the group %s, and joins again: %s", self._group, error)
