"""The seam between this adapter and a Kafka client library: a produce side and a fetch side, nothing more.

Promises common to both:

- Methods are called on the event loop and never block it; what blocks in the library runs in a thread of the driver's.
- Results cross from the library's threads to the loop in batches: one wake-up for what has gathered, not one each.
- A foreign exception never leaves a driver: it is one of `bridge.errors`, by the tables in `outcomes`.
"""

import asyncio
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Protocol

from adapters.base import Stored
from adapters.kafka.record import Commit, Commits, Outgoing, Part, Record
from bridge.errors import BridgeError


class Acks(Enum):
    """How many copies of a record there are before it counts as stored."""

    ALL = "all"
    """Every replica in sync; idempotent: the library's own repetitions store nothing twice."""
    LEADER = "1"
    NONE = "0"
    """Nobody says: the offset stays unknown, and so does a loss."""


class Producer(Protocol):
    """The produce side: one connection to the cluster, batching by itself."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` with what the broker or the network said, `CannotStart` if in vain."""
        ...

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record; the future says where (offset None where nobody tells).

        The order of calls is kept within a partition. The future raises `NotStored`, `Rejected` or `OutcomeUnknown`;
        of the first `outcomes.topic_gone`, where the topic or partition is not there any more.
        The topic is one that `partitions` has just told of, so the library need not wait for its metadata.
        """
        ...

    async def partitions(self, topic: str) -> int | None:
        """Number of partitions, asked of the cluster; None: there is no such topic.

        Raises `BackendUnavailable`, or `Refused` where the topic may not be described.
        """
        ...

    @property
    def broken(self) -> bool:
        """Whether the library said that it will never send again: it has to be replaced."""
        ...

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms, and let go of every thread and socket. Idempotent."""
        ...


class Member(Protocol):
    """Whoever a consumer works for: a subscription. Every method is called on the event loop and returns at once."""

    def assigned(self, part: Part, committed: Commit | None) -> None:
        """Note a partition that is held from now on, before any of its records arrive."""
        ...

    def arrived(self, records: Sequence[Record]) -> None:
        """Take records: of each partition in order of offsets, each once while the partition is held."""
        ...

    def revoked(self, parts: Collection[Part]) -> Commits:
        """Let go of partitions: no more of their records arrive. Returns what has to be committed before they go."""
        ...

    def lost(self, parts: Collection[Part]) -> None:
        """Let go of partitions that another member has already: nothing of them can be committed any more."""
        ...

    def failed(self, error: BridgeError) -> None:
        """Hear that fetching is in trouble; it goes on by itself as soon as it can. Told once for each trouble."""
        ...


class Consumer(Protocol):
    """The fetch side: one member of one consumer group, joined and polled in the background."""

    async def join(self) -> None:
        """Join the group, and return when the first assignment is made and what lay in it has begun to arrive.

        Of each assigned partition a first record has arrived by then, or there was none: so a first pull misses
        nothing. An assignment may be empty. Without a committed offset a partition starts at its oldest record.
        Raises `BackendUnavailable` or `Refused`; the consumer is closed then.
        """
        ...

    def commit(self, commits: Commits) -> asyncio.Future[None]:
        """Write positions; the future is done when the coordinator has them.

        It raises `BackendUnavailable` (not written) or `OutcomeUnknown`. At most one commit at a time.
        """
        ...

    def pause(self, parts: Collection[Part]) -> None:
        """Stop fetching some partitions soon; what is on its way still arrives. Membership is kept."""
        ...

    def resume(self, parts: Collection[Part]) -> None:
        """Go on fetching them within a few milliseconds, where they stopped."""
        ...

    async def close(self, commits: Commits) -> None:
        """Commit, leave the group (a static member does not) and let go of thread and sockets. Idempotent.

        `Member.revoked` is not called for it. Raises `BackendUnavailable` or `OutcomeUnknown` if the commit failed;
        everything is let go of all the same.
        """
        ...
