"""Which partitions a librdkafka consumer holds: told to the member as they come and go, on the thread that polls."""

import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from adapters.kafka.drivers.base import Member
from adapters.kafka.drivers.confluent import errors
from adapters.kafka.record import Commit, Commits, Part
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

_log = logging.getLogger(__name__)

_LOOK: Final = 1.0
"""Seconds for one try to learn what is committed."""
PATIENCE: Final = 5.0
"""Seconds that a rebalance waits for the event loop, and a commit for a rebalance or the brokers."""
_AGAIN: Final = 0.02
"""Seconds after which a commit that came upon a rebalance is tried again."""
_REBALANCING: Final = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION})
_NEVER: Final = float("inf")

Call = Callable[[], object]
Answer = Callable[[BridgeError | None], None]
Key = frozenset[tuple[str, int, int, str | None]]


class _Pending:
    """A commit that somebody waits for."""

    __slots__ = ("again_at", "answer", "asked_at", "commits", "written")

    def __init__(self, commits: Commits, asked_at: float, answer: Answer) -> None:
        self.commits = commits
        self.asked_at = asked_at
        self.answer = answer
        self.written: Key = frozenset()
        """What was handed to librdkafka, by which its answer is known."""
        self.again_at: float | None = None


class Membership:
    """Listens to the rebalances of a group and writes its commits."""

    def __init__(self, group: str, member: Member, tell: Callable[[Call], None], stopping: threading.Event) -> None:
        """`tell` has something called on the event loop, as long as the member is to hear of anything."""
        self._group = group
        self._member = member
        self._tell = tell
        self._stopping = stopping
        self.held: set[Part] = set()
        self._since: dict[Part, float] = {}
        self._parted: set[Part] = set()
        """Gone, with all that the member had to say of them written."""
        self.assigned = False
        """Whether there was an assignment, be it an empty one."""
        self.let_go = False
        """Whether partitions have gone; whoever looks resets it."""
        self.wrote = False
        """Whether a commit was written; whoever looks resets it."""
        self._written: dict[Part, int] = {}
        self._pending: _Pending | None = None

    def on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        """Say where each partition begins, before anything of it is fetched."""
        found = self._committed(client, places)
        if found is None:  # to end soon
            return
        for place in found:
            commit = None if place.offset < 0 else Commit(place.offset, place.metadata or "")
            part = Part(place.topic, place.partition)
            self.held.add(part)
            self._since[part] = time.monotonic()
            self._parted.discard(part)
            self._tell(partial(self._member.assigned, part, commit))
            if commit is None:
                place.offset = OFFSET_BEGINNING
        client.incremental_assign(found)
        client.resume(found)  # a pause outlives the stay that it was meant for
        self.assigned = True

    def on_revoke(self, client: Consumer, places: list[TopicPartition]) -> None:
        """Commit for partitions that go, before the next owner can have them."""
        parts = self._forget(places)
        commits = self._ask(parts) if parts else {}
        try:
            if commits:
                _check(client.commit(offsets=_places(commits), asynchronous=False))
            if commits is not None:
                self._parted.update(parts)
        except KafkaException as failed:  # nothing more can be done: what was not committed comes again
            _log.warning("%s: %s", self._group, errors.of_commit(errors.reason_of(failed), self._group).detail)
        client.incremental_unassign(places)

    def on_lost(self, client: Consumer, places: list[TopicPartition]) -> None:
        """Let go of partitions that others have already."""
        parts = self._forget(places)
        if parts:
            self._tell(partial(self._member.lost, parts))
        client.incremental_unassign(places)

    def commit(self, client: Consumer, commits: Commits, asked_at: float, answer: Answer) -> None:
        """Begin to write positions, on behalf of who asked at that time (`time.monotonic`).

        Partitions that have gone since are left out, also where they have come back: what they needed was committed
        when they went, and others may have gone on from there. Where it was not, nothing is written.
        """
        self._pending = _Pending(commits, asked_at, answer)
        self._write(client, self._pending)

    def on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Hear what became of a commit, which may be one that is not waited for any more."""
        pending = self._pending
        if pending is None or pending.written != _key(places):
            return
        failed = next((reason for reason in (error, *(place.error for place in places)) if reason is not None), None)
        if failed is None:
            self.wrote = True
            self._written.update((Part(place.topic, place.partition), place.offset) for place in places)
            self._answer(None)
        elif failed.code() in _REBALANCING:
            pending.again_at = time.monotonic() + _AGAIN
        else:
            self._answer(errors.of_commit(failed, self._group))

    def look_after_commit(self, client: Consumer) -> None:
        """Write it again after a rebalance; do not wait for ever."""
        pending = self._pending
        if pending is None:
            return
        now = time.monotonic()
        if now - pending.asked_at > PATIENCE:
            self.abandon()
        elif pending.again_at is not None and now >= pending.again_at:
            pending.again_at = None
            self._write(client, pending)

    def abandon(self) -> None:
        """Answer whoever still waits for a commit."""
        self._answer(OutcomeUnknown(f"{self._group}: Kafka does not say whether it took the commit."))

    @property
    def committing(self) -> bool:
        """Whether somebody waits for a commit."""
        return self._pending is not None

    def owing(self, client: Consumer) -> bool:
        """Whether there is anything fetched that is not committed yet: then a commit may be asked for soon."""
        positions = client.position([TopicPartition(*part) for part in self.held])
        return any(at.offset > self._written.get(Part(at.topic, at.partition), -1) for at in positions)

    def places(self, parts: Iterable[Part]) -> list[TopicPartition]:
        """Return those of them that are held."""
        return [TopicPartition(*part) for part in self.held.intersection(parts)]

    def _write(self, client: Consumer, pending: "_Pending") -> None:
        ours = {part: at for part, at in pending.commits.items() if self._since.get(part, _NEVER) < pending.asked_at}
        if not pending.commits.keys() - ours.keys() <= self._parted:
            self._answer(BackendUnavailable(f"{self._group}: this bridge does not hold all of these partitions now."))
            return
        if not ours:
            self._answer(None)
            return
        places = _places(ours)
        pending.written = _key(places)
        try:
            client.commit(offsets=places, asynchronous=True)
        except KafkaException as refused:
            self._answer(errors.of_commit(errors.reason_of(refused), self._group))

    def _answer(self, error: BridgeError | None) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.answer(error)

    def _committed(self, client: Consumer, places: list[TopicPartition]) -> list[TopicPartition] | None:
        """Ask until there is an answer, or all is to end."""
        while not self._stopping.is_set():
            try:
                return _check(client.committed(places, _LOOK)) if places else []
            except KafkaException as failed:
                _log.debug("%s: %s", self._group, errors.reason_of(failed).str())
                self._stopping.wait(_LOOK / 10)
        return None

    def _ask(self, parts: list[Part]) -> Commits | None:
        answer: concurrent.futures.Future[Commits] = concurrent.futures.Future()
        self._tell(lambda: _into(answer, partial(self._member.revoked, parts)))
        until = time.monotonic() + PATIENCE
        while not self._stopping.is_set() and time.monotonic() < until:  # when all is to end nobody answers
            with contextlib.suppress(TimeoutError):
                return answer.result(_LOOK / 10)
        return None

    def _forget(self, places: Iterable[TopicPartition]) -> list[Part]:
        parts = [Part(place.topic, place.partition) for place in places]
        gone = [part for part in parts if part in self.held]
        self.held.difference_update(gone)
        for part in gone:
            self._written.pop(part, None)
            self._since.pop(part, None)
        self.let_go = True
        return gone


def _into(answer: "concurrent.futures.Future[Commits]", ask: Callable[[], Commits]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:
        answer.set_exception(error)
        raise


def _places(commits: Commits) -> list[TopicPartition]:
    return [TopicPartition(*part, commit.offset, commit.metadata) for part, commit in commits.items()]


def _key(places: Iterable[TopicPartition]) -> Key:
    return frozenset((at.topic, at.partition, at.offset, at.metadata) for at in places)


def _check(places: list[TopicPartition]) -> list[TopicPartition]:
    """Raise the first error of a partition."""
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places
