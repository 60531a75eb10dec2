"""The contract between the engine and a backend: seven methods, and optional powers of a method or two each.

Promises common to all of them:

- Everything runs on one event loop; no method is called from another thread.
- An adapter never retries, never sleeps unbounded, never swallows: it raises `bridge.errors`, and the engine
  decides once. `NotStored` only when it is certain; `OutcomeUnknown` when it is not.
- Foreign exceptions are translated at the adapter's edge, `raise New from old`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from bridge.message import Message


class Support(StrEnum):
    """How a backend honours a field."""

    NATIVE = "native"
    EMULATED = "emulated"
    UNSUPPORTED = "unsupported"


class Features(NamedTuple):
    """What a backend can do. Code and tests ask this, never for an adapter's name."""

    fields: Mapping[str, Support]
    """By the specification's name, for every field that asks for behaviour."""
    durable: bool
    """Messages, settlements and attempts survive `kill -9` of the bridge."""
    late_groups: bool
    """A group that comes late starts at the oldest message still kept."""
    shared_groups: bool = False
    """Bridges on the same backend serve a group together, each with its share of the partitions."""


class Stored(NamedTuple):
    """Where a message went. None: the backend has no such notion, or does not know it yet (a delayed message)."""

    partition: int | None
    offset: int | None


class Delivery(NamedTuple):
    """A message fetched for one group, not yet settled."""

    message: Message
    """Complete: also one that was written without the bridge has a messageId, the same on each redelivery."""
    partition: int
    position: int
    """The adapter's own handle, unique within the partition: an offset, a delivery tag."""
    attempts: int
    """How often this message had been handed out before."""


class Outcome(Enum):
    """What the engine tells a subscription about deliveries."""

    LEASED = "leased"
    """Handed out; `attempts` counts it. Told to durable backends only, so that deliveryCount survives a restart.
    It may be recorded lazily, and nobody waits for it."""
    SETTLED = "settled"
    """Done for this group: acknowledged, expired, or confirmed in the dead-letter destination."""
    RELEASED = "released"
    """Given back unharmed with the `attempts` it carries: whoever fetches next may have it."""


Revoked = Callable[[Collection[int]], Sequence[Delivery]]
"""What the engine gives a subscription, to be told that partitions have gone to another bridge of the group.

The engine forgets what it holds of them, ends their leases, and returns the deliveries that were not settled, with the
attempts they carry: a lease cut short so is no failure of its consumer. Called on the event loop; it returns at once.
"""


class Subscription(Protocol):
    """One group's view of one destination."""

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return what is at hand, in stored order per partition; else wait until there is something.

        The future is already done when this returns if anything could be handed out now, so a first pull misses
        nothing; otherwise it costs nothing while it waits. At least one delivery, at most `limit` (>= 1), stopping
        before the bodies exceed `max_bytes` where that leaves one. Cancelling a pending future loses nothing.
        One fetch at a time. The future, never the call, raises `BackendUnavailable`; the engine calls again later.
        """
        ...

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome; the future is done when it is as durable as the backend can make it.

        Settling twice, or settling what the backend no longer keeps, is harmless.
        The future raises `BackendUnavailable` (not recorded) or `OutcomeUnknown`.
        """
        ...

    async def close(self) -> None:
        """Stop fetching and free what the subscription holds. The group and its state stay. Idempotent."""
        ...


class Adapter(Protocol):
    """One backend."""

    features: Features

    async def start(self) -> None:
        """Connect, recover, be ready to publish.

        Raises `BackendUnavailable`; the engine calls again after a pause. Raises `CannotStart` where that is in vain.
        """
        ...

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Store one complete message (ids, times and, where there are partitions, the partition are set).

        A message whose `due` lies ahead must become visible no earlier than then, and takes its place in the order of
        its key when it does. Concurrent calls keep their order within a partition. The future is done when the
        message is stored as its `durability` asks; where that is at once, it is done when this returns. It raises
        `NotStored`, `OutcomeUnknown` or a `Rejected`; the call itself does not raise. A caller that no longer waits
        does not withdraw the message.
        """
        ...

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> Subscription:
        """Join `group` on `source`, creating both on first use.

        A new group starts at the oldest message kept, or with `latest` after the newest; a known one goes on.
        A backend that shares partitions out among bridges takes them back through `revoked`.

        Raises `DestinationUnknown` where creating is switched off, or `BackendUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Flush what was accepted and let go of every resource. Idempotent."""
        ...


@runtime_checkable
class Deferring(Protocol):
    """Optional power of a subscription: a delivery need not stay open while it waits for a long time."""

    def defer(self, delivery: Delivery, until: int) -> asyncio.Future[None]:
        """Put off what was fetched: it is settled, and comes again no earlier than `until`, ms since 1970.

        It comes to this group alone, with the `attempts` it carries, behind others that came meanwhile. The future
        is done when that is as durable as a message. It raises `BackendUnavailable`, a `Rejected`, or `OutcomeUnknown`:
        the delivery is still open then, and with `OutcomeUnknown` may come again beside it.
        """
        ...


@runtime_checkable
class Partitioned(Protocol):
    """Optional power: destinations have partitions, and the engine chooses among them."""

    async def partitions(self, destination: str) -> int:
        """Number of partitions (>= 1), creating the destination on first use. Cheap once known.

        Raises `DestinationUnknown` or `BackendUnavailable`.
        """
        ...


@runtime_checkable
class Notebook(Protocol):
    """Optional power: the bridge's own few notes, such as who wants callbacks, survive wherever messages do."""

    kept_in: str
    """Where the notes are, in one word for people: `journal`."""

    async def keep(self, key: str, value: str | None) -> None:
        """Keep a note in the place of an earlier one, or with None drop it; durable when this returns.

        Raises `BackendUnavailable` or `BackendFull` (all is as before), or `OutcomeUnknown`.
        """
        ...

    def kept(self) -> Mapping[str, str]:
        """Every note by its key. Raises `BackendUnavailable` before the start."""
        ...


class Replayed(NamedTuple):
    """What lies in one log from an offset on."""

    offsets: Sequence[int]
    """Ascending, with holes where offsets never were a message's, or its message was dropped."""
    messages: Sequence[Message]
    """One for each offset, complete but for what a delivery adds."""
    next: int
    """Where to go on: nothing before it is left to read."""
    dropped: Sequence[tuple[int, int]]
    """Runs of offsets before `next` whose messages are gone: the first, and the one after the last."""


@runtime_checkable
class Replayable(Protocol):
    """Optional power: the log can be read again by offsets, without a group, as long as its messages are kept.

    A log has a name of one word, `<epoch>/<destination>/<partition>`. The epoch is that of one life of the logs: there
    is a new one whenever offsets begin anew. What was read once is there after a restart, or the epoch is another; what
    an offset holds never changes. A delayed message enters the log when it is due.
    """

    def logs(self) -> Mapping[str, tuple[int, int]]:
        """Return the first offset kept and the next one of every log in which there ever was a message.

        Raises `BackendUnavailable` before the start.
        """
        ...

    def replay(self, log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        """Return what is kept from `start` on, at most `limit` (>= 1) messages.

        It stops before the bodies exceed `max_bytes` where that leaves one. Raises `DestinationUnknown` for a log that
        there is not, or not any more, and `BackendUnavailable` before the start.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """Optional power: the backend has figures of its own worth showing on `/status` and `/metrics`."""

    def gauges(self) -> Mapping[str, int]:
        """Current values by name (lower_snake_case, few, never from a client's input)."""
        ...
