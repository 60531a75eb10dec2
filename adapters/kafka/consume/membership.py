"""The coroutines on kafka-python's IO thread: commits, and the partitions of a member that come and go.

A commit is sent by the coordinator's own coroutine, on the thread that it is made for. `commit_async` cannot be used:
while the coordinator is being looked up it returns the future of the look-up, which says that all is well before
anything was sent (3.0.12), and its queue of callbacks is emptied by two threads.
"""

import asyncio
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, Protocol

from kafka import KafkaConsumer, errors
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.future import Future
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from adapters.kafka.errors import InstanceTaken, of_exception
from adapters.kafka.mapping import Commit, Commits, Part, Record
from adapters.kafka.thread_to_loop import ThreadToLoop
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

_PATIENCE: Final = 5.0
"""Seconds that a rebalance waits for the event loop."""
_REBALANCE: Final = 20.0
"""Seconds that a commit waits for a rebalance to end: less than the default of `timeouts.produce`, after which its
caller would be told that the outcome is unknown. With a broker on a busy machine a rebalance took more than 5 s."""
_LOOK: Final = 0.01
"""Seconds after which a waiting commit checks again whether the rebalance is over; the library has no callback."""
_REACH: Final = 2_000
"""Milliseconds in which the coordinator must be found, and the topics' metadata come."""
_DOUBTFUL: Final = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.RequestTimedOutError,
    errors.Cancelled,
)
"""The request may have reached the coordinator."""

Terms = dict[Part, int]
"""Partitions, each with the number of its stay with this member: it may go and come back while a commit waits."""
_log = logging.getLogger("bridge.kafka")


class Member(Protocol):
    """The owner of a consumer. Every method is called on the event loop and returns at once."""

    @abstractmethod
    def assigned(self, part: Part, committed: Commit | None) -> None:
        """Note a partition that is held from now on, before any of its records arrive."""

    @abstractmethod
    def arrived(self, records: Sequence[Record]) -> None:
        """Take records: of each partition in order of offsets, each once while the partition is held."""

    def revoked(self, parts: Collection[Part]) -> Commits:
        """Release partitions: no more of their records arrive. Returns what has to be committed before they go."""

    def lost(self, parts: Collection[Part]) -> None:
        """Release partitions that another member has already: nothing of them can be committed any more."""

    def failed(self, error: BridgeError) -> None:
        """Note that nothing can be fetched now; it continues automatically. Called once for each outage."""

    def ended(self, error: BridgeError) -> None:
        """Drop all partitions: the membership has ended, and the consumer joins again later."""


class _Rebalancing(BackendUnavailable):
    """Nothing was sent, because the group is rebalancing."""


class Membership(AsyncConsumerRebalanceListener):  # type: ignore[misc] # has no types
    """Gives a `Member` its partitions, and commits for it."""

    def __init__(self, consumer: KafkaConsumer, group: str, member: Member, thread_to_loop: ThreadToLoop) -> None:
        self.consumer = consumer
        self.parts: Terms = {}
        """Assigned, and reported to the member."""
        self.unknown: set[Part] = set()
        """Assigned, but their committed offsets could not be read yet; they are paused."""
        self.fenced = False
        """Whether a commit was refused because another bridge has joined with the same instance."""
        self.closing = False
        """Whether the member is not called any more, except for `break_off`."""
        self.final: dict[Part, Commit] = {}
        """The last commits that are not written yet."""
        self._coordinator = consumer._coordinator  # noqa: SLF001 - the only place that shows when a rebalance is over
        self._cluster = consumer._cluster  # noqa: SLF001 - it has the ids of topics
        self._net = consumer._net  # noqa: SLF001 - the loop of the IO thread
        self._what = f"The offsets of the group {group}"
        self._member = member
        self._to_loop = thread_to_loop
        self._logs: dict[Part, object] = {}
        """The id of the topic when a partition was assigned; None: the brokers have none (before 2.8)."""
        self._known: Terms = {}
        """The event loop's copy of `parts`. It stays as it is from `closing` on."""
        self._term = 0

    # On the event loop:

    def begin_commit(self, commits: Commits, future: asyncio.Future[None]) -> None:
        """Write positions, then complete the future."""
        known = {part: self._known.get(part, 0) for part in commits}

        async def commit() -> None:
            try:
                await self._commit(commits, known)
            except BridgeError as error:
                self._to_loop.answer(future, error)
            except BaseException as error:  # any error, also the end of the IO thread: a caller waits
                self._to_loop.answer(future, OutcomeUnknown(f"{self._what}: {type(error).__name__} {error}."))
                if not isinstance(error, Exception):
                    raise
            else:
                self._to_loop.answer(future, None)

        try:
            self._net.call_soon_threadsafe(commit)
        except Exception as error:  # noqa: BLE001 - the IO thread has ended, or raises its own failure
            self._to_loop.answer(future, BackendUnavailable(f"{self._what}: {error}."))

    def close(self, final: Commits) -> None:
        """Call the member no more; commit this at the end."""
        self.final = {part: at for part, at in final.items() if part in self._known}
        self.closing = True

    # On the polling thread:

    def break_off(self) -> None:
        """End without a last commit: the member loses all that it holds, also what has gone and is not reported yet."""
        self.closing = True
        self._to_loop.put(self._lose_all)

    # On the IO thread:

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Report each partition and its committed offset to the member, before any record of it is fetched."""
        self.unknown |= {Part(*tp) for tp in assigned}
        try:
            await self.announce()
        except errors.KafkaError:
            self.consumer.pause(*assigned)  # the poller tries again

    async def announce(self) -> None:
        """Read the committed offsets of new partitions. Raises `KafkaError`; they stay unknown then."""
        places = [TopicPartition(*part) for part in sorted(self.unknown)]
        found: dict[TopicPartition, OffsetAndMetadata] = await self._coordinator.fetch_committed_offsets_async(
            places, timeout_ms=_PATIENCE * 1000
        )
        for place in places:
            part = Part(*place)
            if part not in self.unknown:  # taken away meanwhile
                continue
            self.unknown.discard(part)
            at = found.get(place)
            if at is not None:  # else the library goes on as if it had found nothing: at the oldest record
                self.consumer.seek(place, at.offset)
            # there is a NUL behind the text
            self._hold(part, None if at is None else Commit(at.offset, (at.metadata or "").rstrip("\0")))
            self.consumer.resume(place)

    def replaced(self) -> list[Part]:
        """Return the partitions that have another log now: their topic was deleted and created again."""
        return [part for part in self.parts if self._is_other(part, if_removed=False)]

    async def renew(self) -> None:
        """Start again with those, at their oldest record: their committed offsets may still be of the old log."""
        places = [TopicPartition(*part) for part in self.replaced()]
        parts = self._forget(places)
        self._to_loop.put(partial(self._lost, parts))
        self.consumer.seek_to_beginning(*places)
        self.consumer.resume(*places)  # a pause ends with the log that it was meant for
        for part in parts:
            self._hold(part, None)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit for partitions that go, before the next owner can have them."""
        parts = self._forget(revoked)
        try:
            commits = self._last(parts) if self.closing else await self._ask(parts)
            await self._write(await self._of_this_log(commits))
        except (errors.KafkaError, BridgeError) as error:
            _log.warning("%s: uncommitted messages are delivered again: %s", self._what, error)
        else:
            for part in commits:
                self.final.pop(part, None)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Release partitions that others have already."""
        if parts := self._forget(lost):
            self._to_loop.put(partial(self._lost, parts))

    async def commit_final(self) -> None:
        """Commit for the last time. Raises `BackendUnavailable`, `OutcomeUnknown`, also if a partition has gone."""
        final, self.final = self.final, {}
        mine = {part: at for part, at in final.items() if self.parts.get(part) == self._known[part]}
        await self._write(await self._of_this_log(mine))
        if len(mine) < len(final):
            raise OutcomeUnknown(f"{self._what}: partitions moved to another bridge before the last commit.")

    async def _commit(self, commits: Commits, known: Terms) -> None:
        until = time.monotonic() + _REBALANCE
        while True:
            while self._coordinator.state is not MemberState.STABLE and time.monotonic() < until and not self.closing:
                await self._net.sleep(_LOOK)
            # a partition that was revoked, and perhaps assigned again, was committed then
            mine = {part: at for part, at in commits.items() if self.parts.get(part, -1) == known[part]}
            rest = {part: at for part, at in mine.items() if not self._is_other(part, if_removed=False)}
            try:
                await self._write(rest)
            except _Rebalancing:  # it began after the look above
                if time.monotonic() >= until or self.closing:
                    raise
                await self._net.sleep(_LOOK)
            else:
                break
        if len(rest) < len(mine):
            raise BackendUnavailable(f"{self._what}: the topic was just recreated.")

    async def _write(self, commits: Commits) -> None:
        """Raises `BackendUnavailable`, `OutcomeUnknown`, or `Refused`."""
        if not commits:
            return
        # A NUL behind the text, as confluent-kafka writes it: librdkafka adds none when it reads, and confluent-kafka
        # 2.16.1 reads up to one. Without it, that returned the text with the bytes after it in memory, or raised
        # UnicodeDecodeError: in a busy process 6 of 48 times.
        offsets = {
            TopicPartition(*part): OffsetAndMetadata(at.offset, at.metadata and f"{at.metadata}\0", -1)
            for part, at in commits.items()
        }
        try:
            reached = await self._coordinator.ensure_coordinator_ready_async(timeout_ms=_REACH)
        except errors.KafkaError as error:
            raise of_exception(error, self._what) from error
        if not reached:
            raise BackendUnavailable(f"{self._what}: there is no connection to Kafka.")
        try:
            await self._coordinator._send_offset_commit_request(offsets)  # noqa: SLF001
        except errors.FencedInstanceIdError as error:
            self.fenced = True
            raise InstanceTaken(self._what) from error
        except errors.RebalanceInProgressError as error:
            raise _Rebalancing(f"{self._what}: the group is rebalancing.") from error
        except errors.CommitFailedError as error:
            raise BackendUnavailable(f"{self._what}: this bridge is not a member of the group now.") from error
        except _DOUBTFUL as error:
            raise OutcomeUnknown(f"{self._what}: Kafka does not say whether it recorded them.") from error
        except errors.KafkaError as error:
            raise of_exception(error, self._what) from error

    async def _of_this_log(self, commits: Commits) -> Commits:
        """Leave out topics that are gone: a new one of the same name must not begin with commits of the old one.

        A topic that vanishes is one of the reasons for partitions to go, so the brokers are asked.
        """
        if not commits:
            return commits
        with contextlib.suppress(errors.KafkaError):
            await self._coordinator._manager.wait_for(self._cluster.request_update(), _REACH)  # noqa: SLF001
        return {part: at for part, at in commits.items() if not self._is_other(part, if_removed=True)}

    def _is_other(self, part: Part, *, if_removed: bool) -> bool:
        """Whether the topic was deleted and created again; `if_removed`: the result if it does not exist now."""
        now, then = self._log_of(part), self._logs.get(part)
        return then is not None and (if_removed if now is None else now != then)

    def _log_of(self, part: Part) -> object:
        found = self._cluster.topic_id(part.topic)
        return found if found is not None and found.int else None

    def _hold(self, part: Part, commit: Commit | None) -> None:
        self._term += 1
        self.parts[part] = self._term
        self._logs[part] = self._log_of(part)
        self._to_loop.put(partial(self._assigned, part, self._term, commit))

    def _forget(self, places: Collection[TopicPartition]) -> list[Part]:
        parts = [Part(*place) for place in places]
        self.unknown.difference_update(parts)
        return [part for part in parts if self.parts.pop(part, None) is not None]

    def _last(self, parts: list[Part]) -> Commits:
        return {part: self.final[part] for part in parts if part in self.final}

    async def _ask(self, parts: list[Part]) -> Commits:
        """Have the member release partitions; return their last commits."""
        if not parts:
            return {}
        answer = Future()

        def ask() -> None:
            if self.closing:  # since the question
                commits = self._last(parts)
            else:
                for part in parts:
                    self._known.pop(part, None)
                commits = self._member.revoked(parts)
            with contextlib.suppress(Exception):  # the IO thread has ended, or broke down
                # done on any other thread, the future would not wake this one
                self._net.call_soon_threadsafe(lambda: answer.success(commits))

        self._to_loop.put(ask)
        found: Commits = await self._coordinator._manager.wait_for(answer, _PATIENCE * 1000)  # noqa: SLF001
        return found

    # On the event loop again:

    def _assigned(self, part: Part, term: int, commit: Commit | None) -> None:
        if not self.closing:
            self._known[part] = term
            self._member.assigned(part, commit)

    def _lost(self, parts: list[Part]) -> None:
        if not self.closing:
            for part in parts:
                self._known.pop(part, None)
            self._member.lost(parts)

    def _lose_all(self) -> None:
        parts = list(self._known)
        self._known.clear()
        if parts:
            self._member.lost(parts)
