"""The contract between the engine and a backend: eight methods, and optional capabilities of one or two methods each.

`adapters/testing` tests an adapter against this contract. For all of it:

- Everything runs on one event loop; no method is called from another thread.
- The engine calls `start` until it succeeds, and publishes and subscribes only after that. It has at most one open
  subscription to a group, and closes all subscriptions before it closes the adapter.
- An adapter does not retry, does not sleep without limit and does not swallow errors. It raises `bridge.errors`, and
  the engine decides what to do. It raises `NotStored` only if that is certain, and `OutcomeUnknown` if it is not.
- Foreign exceptions are translated in the adapter, `raise New from old`. If one gets out of the adapter, it is a defect
  of the adapter and is logged. A request that meets it is answered 500 `internal`, which leaves open whether
  the message was stored; a lease that the request was about continues. Outside a request, the engine fetches again and
  writes dead letters again as after `BackendUnavailable`. It does not start the adapter again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from bridge.message import Message

DEAD_LETTER_SUFFIX: Final = ".dlq"
"""Ending of destinations that hold dead letters. A backend keeps their messages until a group has pulled them, also if
its options say that other destinations keep nothing for later groups."""


class Support(StrEnum):
    """How a backend honours a field."""

    NATIVE = "native"
    EMULATED = "emulated"
    UNSUPPORTED = "unsupported"


class Features(NamedTuple):
    """The abilities of a backend. Code and tests read these, and never check an adapter's name."""

    fields: Mapping[str, Support]
    """By the specification's name, every field of `FIELDS` that requests a behaviour: the engine does not start if one
    is missing. Clients get `Support.UNSUPPORTED` as `ignored`."""
    durable: bool
    """Messages, settlements and attempts survive `kill -9` of the bridge."""
    late_groups: bool
    """A group created after the first message starts at the oldest message still kept."""
    shared_groups: bool = False
    """Bridges on the same backend serve a group together, each with its share of the partitions."""
    property_refusal: Callable[[str], str | None] | None = None
    """Returns why a client may not use a name for a property, or None if it may. None: all names are allowed. The
    engine publishes dead letters without asking, so an adapter can store every name."""


class Stored(NamedTuple):
    """Where a message was stored. None: the backend has no such number, or not yet (a delayed message)."""

    partition: int | None
    offset: int | None


class Delivery(NamedTuple):
    """A message fetched for one group, not yet settled."""

    message: Message
    """Complete: a message of a native producer has a messageId, too, the same one on each redelivery."""
    partition: int
    """Opaque: the adapter's own number for a sequence that it delivers in order, which may differ from
    `message.partition`. The engine keeps the order of a key within it, and `Revoked` names it."""
    position: int
    """The adapter's own handle, unique within the partition: an offset, a delivery tag."""
    attempts: int
    """How often this message had been delivered before."""


class Outcome(Enum):
    """The result of deliveries, which the engine reports to their subscription."""

    LEASED = "leased"
    """Delivered to a consumer; `attempts` counts it. Only durable backends get it, so that deliveryCount survives a
    restart. It may be recorded lazily; the engine does not wait for it."""
    SETTLED = "settled"
    """Done for this group: acknowledged, expired, or confirmed in the dead-letter destination."""
    RELEASED = "released"
    """Returned unsettled with the `attempts` it carries. It is delivered again when the group is subscribed to the next
    time, or earlier. The engine uses it only for what it still has when it closes the subscription."""


Revoked = Callable[[Collection[int]], Sequence[Delivery]]
"""A function of the engine that a subscription calls when partitions have moved to another bridge of the group.

The engine removes their messages, ends their leases, and returns the deliveries that were not settled, with the
attempts they carry: a lease that ends so is no failure of its consumer. Called on the event loop; it returns at once.
"""


class Subscription(Protocol):
    """One group's view of one destination.

    An adapter limits what it has fetched from its backend and the engine has not fetched yet: in bytes, or in messages
    if the backend's protocol cannot limit bytes. The engine limits its own prefetch buffer (`limits.prefetch`).
    """

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return available messages, in stored order per partition; if there are none, wait for some.

        If messages are available the future is already done when this returns; otherwise it costs nothing while it
        waits. At least one delivery, at most `limit` (>= 1). Their sizes (`Message.size`) do not exceed `max_bytes`,
        unless there is only one. Cancelling a pending future loses no message. One fetch at a time. The future, never
        the call, raises `BackendUnavailable`; the engine calls again later.
        """
        ...

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        """Return the messages of deliveries again: fetched, not settled, and dropped by the engine to save memory.

        Partition and position stay as they were; order and attempts do not matter, as the engine has both. A delivery
        that the result lacks is one that the backend has not kept; the engine settles it. One call at a time, also
        while a fetch is pending. The future is done within a minute. It, never the call, raises `BackendUnavailable`;
        the engine calls again later.
        """
        ...

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome; the future is done when it is as durable as the backend can make it.

        Settling twice, or settling a message that the backend no longer keeps, is harmless. The future raises
        `BackendUnavailable` (not recorded) or `OutcomeUnknown`: the message is delivered again, or may be. It raises
        one of them, too, after `close` or for a partition that another bridge has now, unless the outcome can still be
        recorded. A delivery counts by its partition, position and attempts: its message may be empty.
        """
        ...

    async def close(self) -> None:
        """Stop fetching and free the subscription's resources. The group and its state stay. Idempotent."""
        ...


class Adapter(Protocol):
    """One backend."""

    features: Features

    async def start(self) -> None:
        """Connect, recover, be ready to publish.

        Raises `BackendUnavailable`; the engine calls again after a pause. Raises `CannotStart` if a retry cannot help.
        """
        ...

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Store one complete message (ids, times and, if there are partitions, the partition are set).

        An adapter keeps every field of it as it is. If the adapter is `Partitioned`, the engine has asked for the
        destination's partitions before.

        A message with a `due` time in the future must become visible no earlier than then, and then takes its place in
        the order of its key. The engine delivers a message only when it is due, so a backend with coarse timers may
        return it from `fetch` a little earlier; until then it takes up space in the engine's prefetch buffer.

        Concurrent calls keep their order within a partition. The future is done when the message is stored as its
        `durability` asks; if that is at once, it is done when this returns. It raises `NotStored`, `OutcomeUnknown`
        or a `Rejected`; the call itself does not raise. A caller that no longer waits does not withdraw the message.
        """
        ...

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> Subscription:
        """Join `group` on `source`, creating both on first use.

        A new group starts at the oldest message kept, or with `latest` after the newest; an existing one continues.
        Stored messages are available when this returns, so that a first pull without waiting misses none. An adapter
        may stop waiting for its backend after half a second or more; messages that arrive later are fetched later.
        A backend that shares partitions among bridges takes them back with `revoked`.

        Raises `DestinationUnknown` if creating is switched off, or `BackendUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Flush accepted messages and free every resource. Idempotent.

        The engine also closes an adapter whose start has failed. A message published afterwards is `NotStored`.
        """
        ...


Published = Stored | Exception | asyncio.Future[Stored]
"""The result of one message of `publish_many`: where it is stored, why it is not, or the future of `publish`."""


@runtime_checkable
class PublishesMany(Protocol):
    """Optional capability: the messages of a batch are published in one call, without a future for each."""

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        """Store messages as calls of `publish` in the same order would.

        Returns one result for each, in the same order. A message that is stored or refused at once needs no future.
        """
        ...


class TransactionState(StrEnum):
    """Where a transaction is in its life."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"


class Transaction(NamedTuple):
    """A transaction, open or ended lately."""

    id: str
    """It may begin with its owner and the control character U+001F, which clients cannot send."""
    state: TransactionState
    began: int
    """When its first message was prepared, ms since 1970."""
    timeout: int
    """Milliseconds from `began` on that it may stay open."""
    check: str | None
    """The URL that is asked for the result after the timeout; None: it is rolled back without a question."""
    messages: int
    """Number of prepared messages. An adapter may say 0 for a transaction that has ended."""
    size: int
    """`Message.size` of all of them, bytes."""


Complete = Callable[[Sequence[Message]], Awaitable[Sequence[Message | None]]]
"""A function of the engine that completes prepared messages: it sets the storeTimestamp and the partition.

One result for each message, in the same order; None: it is not stored, because it has expired or repeats an earlier
one. Raises `BackendUnavailable` or `DestinationUnknown`; then the commit has changed nothing.
"""


@runtime_checkable
class Transactional(Protocol):
    """Optional capability: messages are prepared, and are later stored together or dropped together.

    No group gets a prepared message. A transaction begins with its first message and ends once. It survives whatever a
    stored message survives. Every bridge on the same backend may prepare, commit and roll back; if two end a
    transaction at once, one wins. An ended transaction is remembered for at least an hour, if there are no more than
    `ENDED_MAX` of them.
    """

    transactions: Support
    """`Support.NATIVE`: a commit stores all messages or none. `Support.EMULATED`: if the bridge or the backend fails
    during a commit, messages may be stored twice; a commit that stored a part of them is finished after the restart."""

    def known_transactions(self) -> Mapping[str, Transaction]:
        """Return the transactions by their id: all open ones, and those that ended lately.

        Raises `BackendUnavailable` before the start. What other bridges did may be missing for a moment.
        """
        ...

    def prepare(self, transaction: Transaction, message: Message) -> Awaitable[None]:
        """Add a message to a transaction, which begins with its first; durable when the awaitable is done.

        An adapter that stores it at once returns a future that is done. The call may raise what the awaitable raises.

        `began`, `timeout` and `check` count if the transaction begins; otherwise they stay as they were. The message
        has its messageId, bornTimestamp and bornHost. Concurrent calls keep their order. Raises `TransactionEnded`,
        `NotStored`, `OutcomeUnknown` or a `Rejected`.
        """
        ...

    def commit(self, transaction: str, complete: Complete) -> Awaitable[Sequence[Stored | None]]:
        """Store the messages in the order in which they were prepared, and end the transaction.

        An adapter that stores them at once returns a future that is done. The call may raise what the awaitable raises.
        Returns one result for each message, as `complete` does. Asks `complete` once what is to be committed is
        certain. If it was committed before, returns an empty sequence. Raises `TransactionUnknown`; `TransactionEnded`
        if it was rolled back; `NotStored` or a `Rejected` (it is still open); or `OutcomeUnknown` (a call again ends
        it, or reports how it ended).
        """
        ...

    async def rollback(self, transaction: str) -> None:
        """Drop the messages and end the transaction. Does nothing if it was rolled back before.

        Raises as `commit` does, with `TransactionEnded` if it was committed.
        """
        ...


ENDED_MAX: Final = 100_000
"""Number of ended transactions that an adapter remembers."""


@runtime_checkable
class Deferring(Protocol):
    """Optional capability of a subscription: a delivery need not stay open while it waits for a long time."""

    def defer(self, delivery: Delivery, until: int) -> asyncio.Future[None]:
        """Settle a delivery and deliver its message again no earlier than `until`, ms since 1970.

        Only this group gets it again, with the `attempts` it carries, behind messages that arrived meanwhile. If
        `fetch` returns it earlier the engine delivers it at once, because the `due` time of its message is over. The
        future is done when that is as durable as a message. It raises `BackendUnavailable`, a `Rejected`, or
        `OutcomeUnknown`: then the delivery is still open, and with `OutcomeUnknown` its message may be delivered twice.
        """
        ...


@runtime_checkable
class Windowed(Protocol):
    """Optional capability of a subscription: its backend limits how many messages of a partition are unsettled."""

    def count_waiting_by(self, count: Callable[[], Mapping[int, int]]) -> None:
        """Use a function of the engine that counts, by partition, the fetched messages that wait.

        They wait for their key, their due time or the end of a pause, and no consumer has them. They must not keep
        other messages of their partition out, as far as the backend can have more of them unsettled.
        """
        ...


@runtime_checkable
class OnDemand(Protocol):
    """Optional capability of a subscription: it may fetch from its backend only what consumers wait for.

    Such a backend counts each message that returns to it as a failed delivery, even if no consumer had received it, and
    drops a message that returns too often. While `on_demand` is true, the engine fetches no more messages than are
    waited for, and cancels a fetch when fewer are. It delivers what it has fetched at once, without the order of a key,
    and fetches nothing again.
    """

    @property
    def on_demand(self) -> bool:
        """Return whether this subscription is one; it never changes."""
        ...

    def searched(self) -> asyncio.Future[None]:
        """Return a future that is done when nothing that the backend has now will arrive for a fetch that follows.

        So a pull that does not wait finds a message that is there. Done after about half a second; never raises.
        """
        ...


@runtime_checkable
class Rejoining(Protocol):
    """Optional capability of a subscription: it may lose its membership of the group, and joins again automatically."""

    @property
    def not_ready_reason(self) -> str | None:
        """Return why nothing can be fetched for the group now, in one sentence; None: it is a member.

        While there is a reason, `fetch` fails with it, and the partitions of the subscription have been revoked.
        """
        ...


@runtime_checkable
class Lagging(Protocol):
    """Optional capability of a subscription: it can tell how far the group is behind."""

    @property
    def lag(self) -> int | None:
        """Return about how many messages are in the log and not settled by the group, without I/O; None: not known.

        If bridges share the group, only those of this bridge's partitions count.
        """
        ...


@runtime_checkable
class Partitioned(Protocol):
    """Optional capability: destinations have partitions, and the engine chooses among them."""

    new_partitions: int
    """Number of partitions that a new destination gets."""
    creates: bool
    """Whether the backend's options allow to create destinations; otherwise dead letters need one that exists."""

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        """Return the number of partitions (>= 1). Cheap once known.

        A destination that does not exist is created; without `create` nothing is created, and `DestinationUnknown` is
        raised. The engine asks without `create` first, and decides whether a client may have the destination created.
        Raises `DestinationUnknown` also if the backend's options forbid to create it, and `BackendUnavailable`.
        """
        ...

    def known_partitions(self, destination: str) -> int | None:
        """Return the number if it is known and may be used now; None: the engine calls `partitions`."""
        ...


@runtime_checkable
class Buffering(Protocol):
    """Optional capability: during an outage the adapter keeps messages that it could not send, and sends them after it.

    It keeps their order. Only what was certainly not sent waits; the engine's limits of messages in flight bound it.
    """

    unsent_timeout: int
    """Milliseconds that a message waits at most before it is sent; then the future of `publish` raises `NotStored`,
    and the message is not sent any more. The engine sets it before the start, to the time it waits itself."""


@runtime_checkable
class Monitored(Protocol):
    """Optional capability: the adapter notices an outage of its backend, also while no request needs the backend."""

    @property
    def not_ready_reason(self) -> str | None:
        """Return why the backend cannot be used now, in one sentence; None: it can. Without I/O, after the start.

        It changes within 2 s of the loss and of the return. An adapter need not wait before it gives a reason: the
        engine waits for a moment, in which a connection to another broker of a cluster may succeed.
        """
        ...


@runtime_checkable
class Deletable(Protocol):
    """Optional capability: an operator can purge and delete destinations and groups.

    The engine has closed its subscriptions to the groups concerned, and opens none before the call has returned. Both
    methods are durable when they return. They raise `DestinationUnknown` if the destination or the group does not
    exist, `BackendUnavailable` (nothing was changed) or `OutcomeUnknown`.
    """

    async def purge(self, destination: str, group: str | None) -> None:
        """Drop every message that is stored now; with a group, settle them for that group.

        Delayed messages that are not in the log yet stay for a group. For a destination they are dropped, too, also
        those that another bridge has accepted; what a group has deferred is dropped with its messages. Offsets are not
        used again, unless the log is created anew.
        """
        ...

    async def delete(self, destination: str, group: str | None) -> None:
        """Remove a destination with its messages and groups, or one group of it. The next use creates it anew.

        Delayed messages are removed as `purge` drops them.
        """
        ...


@runtime_checkable
class MetadataStore(Protocol):
    """Optional capability: stores entries of the bridge, such as callback registrations, as durably as messages."""

    stored_in: str
    """Where the entries are stored, in one word for people: `journal`."""

    async def put(self, key: str, value: str | None) -> None:
        """Write or replace an entry, or with None delete it; durable when this returns.

        Raises `BackendUnavailable` or `BackendFull` (nothing was changed), or `OutcomeUnknown`.
        """
        ...

    def all(self) -> Mapping[str, str]:
        """Return every entry by its key. Raises `BackendUnavailable` before the start."""
        ...


class Replayed(NamedTuple):
    """Messages of one log from an offset on."""

    offsets: Sequence[int]
    """Ascending; an offset is missing if no message had it, or if its message was dropped."""
    messages: Sequence[Message]
    """One for each offset, complete except for the fields that a delivery adds."""
    next: int
    """The offset to continue with: everything before it has been read."""
    dropped: Sequence[tuple[int, int]]
    """Ranges of offsets before `next` whose messages were dropped: start and end, the end not included."""


@runtime_checkable
class Replayable(Protocol):
    """Optional capability: the log can be read again by offsets, without a group, as long as its messages are kept.

    A log is named `<epoch>/<destination>/<partition>`. A new epoch begins whenever offsets begin again. After a restart
    either every message that was read before is still there, or the epoch is another; the message of an offset never
    changes. A delayed message enters the log when it is due.
    """

    def logs(self) -> Iterator[Mapping[str, tuple[int, int]]]:
        """Yield the first offset kept and the next one of every log that ever had a message, some logs at a time.

        Each part, which may be empty, takes a few milliseconds at most: its reader may answer other requests before
        the next one. Logs that appear or disappear meanwhile may be missing. Raises `BackendUnavailable` before the
        start, when it is called.
        """
        ...

    def replay(self, log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        """Return the messages kept from `start` on, at most `limit` (>= 1).

        Their sizes (`Message.size`) do not exceed `max_bytes`, unless there is only one. Raises `DestinationUnknown`
        for a log that does not exist, or no longer exists, and `BackendUnavailable` before the start.
        """
        ...

    def delayed(self, since: int) -> Sequence[Message]:
        """Return the messages that are in no log yet, as they are not due; only those stored at `since` or later.

        `since`: ms since 1970. Raises `BackendUnavailable` before the start.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """Optional capability: the backend has its own figures to show on `/metrics`."""

    help_texts: Mapping[str, str]
    """What each gauge and each total counts, by its name (lower_snake_case, few, never from a client's input)."""

    def gauges(self) -> Mapping[str, int]:
        """Return current values by name; a name may be left out while there is nothing to measure."""
        ...

    def totals(self) -> Mapping[str, int]:
        """Return values that only grow, counted since the start, by name; a name may be left out as above."""
        ...
