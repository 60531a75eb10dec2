"""The adapter without a journal: futures around the log, one timer for delayed messages, one for old ones."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from adapters.base import Delivery, Features, Outcome, Published, Replayed, Revoked, Stored, Support
from adapters.memory.backend_state import SLICE, BackendState, DelayedMessage
from adapters.memory.capacity_and_retention import Capacity
from adapters.memory.destination import Destination
from adapters.memory.group import StoredGroup
from adapters.memory.options import Options
from adapters.memory.partition import Partition
from adapters.memory.record import Record, pack
from adapters.memory.subscription import MemorySubscription
from adapters.memory.transactions import Transactions
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError
from bridge.message import FIELDS, Message

_WALL_CHECK: Final = 1.0
"""Seconds after which a waiting timer reads the wall clock again: it may have been set forward."""
_EXPIRE_EVERY: Final = 60_000
"""Milliseconds between two searches for messages older than the retention."""

_EMULATED: Final = frozenset({"priority", "expireTime"})
"""The engine's prefetch buffer does these: it orders by priority, and checks the expiry when it leases."""


def features(*, durable: bool) -> Features:
    """Return the features of the memory backend, with a journal and without."""
    fields = {f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.is_feature}
    if not durable:
        fields["durability"] = Support.UNSUPPORTED
    return Features(fields=fields, durable=durable, late_groups=True)


class MemoryAdapter(Transactions):
    """Stores everything in this process's memory. `publish` and `settle` are complete when they return."""

    help_texts: Mapping[str, str] = {
        "messages": "Messages kept.",
        "bytes": "Bytes that these messages take, an estimate from above.",
        "delayed": "Kept messages that are not due yet.",
        "destinations": "Destinations.",
        "groups": "Consumer groups, open or not.",
        "dropped_by_retention": "Messages dropped because they were older than the retention.",
        "dropped_when_full": "Messages that every group had settled, dropped because the memory was full.",
    }

    def __init__(self, options: Options) -> None:
        self.features = features(durable=False)
        self.new_partitions, self.creates = options.partitions, True
        self._options = options
        self._store = BackendState(options)
        self._capacity = Capacity(self._store, options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions: set[MemorySubscription] = set()
        self._counting = False
        """Whether `_count` is called in the next turn of the loop."""
        self._due_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._forgetting: Iterator[None] = iter(())
        """What is left of the search for what is too old."""

    async def start(self) -> None:
        """Start the timers; there is nothing to connect to."""
        self._open()

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Store one message. The future raises `NotStored`, `PartitionUnknown` or `BodyTooLarge`."""
        published = self._store_message(message, wall())
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        if isinstance(published, Stored):
            future.set_result(published)
        else:
            future.set_exception(published)
        return future

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        """Store messages; see `PublishesMany`. The errors are those of `publish`."""
        now = wall()
        return [self._store_message(message, now) for message in messages]

    def _store_message(self, message: Message, now: int) -> Stored | BridgeError:
        try:
            self._running()
            destination, partition = self._store.place(message)
            record = pack(message)
            self._admit(record, now)
        except BridgeError as error:
            return error
        return self._append(message, destination, partition, record, now)

    def _admit(self, record: Record, now: int) -> None:
        self._capacity.admit(record, now)

    def _append(
        self, message: Message, destination: Destination, partition: Partition, record: Record, now: int
    ) -> Stored:
        store = self._store
        sequence = store.next_sequence()
        if message.delay_time and (due := message.due) > now:
            store.add_delayed(destination, record, due, sequence)
            self._set_due_timer()
            return Stored(partition.number, None)
        offset = partition.reserve()
        partition.append(record, offset, sequence, now)
        if destination.listeners:
            destination.notify()
        return Stored(partition.number, offset)

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        """Return the number of partitions; see `Partitioned`. Raises `BackendFull`, `BackendUnavailable`."""
        self._running()
        found = self._store.destination(destination) if create else self._store.existing(destination)
        return len(found.partitions)

    def known_partitions(self, destination: str) -> int | None:
        """Return the number of partitions of a destination that exists."""
        known = self._store.destinations.get(destination)
        return None if known is None else len(known.partitions)

    async def subscribe(
        self,
        source: str,
        group: str,
        revoked: Revoked,  # noqa: ARG002 - no other bridge shares the backend
        *,
        latest: bool = False,
    ) -> MemorySubscription:
        """Join a group. Raises `BackendFull`, `BackendUnavailable`; `RuntimeError` while it has a subscription."""
        self._running()
        destination = self._store.destination(source)
        stored = self._store.group(destination, group, wall(), latest=latest)
        self._count_soon()
        return self._join(destination, stored)

    def settle(
        self, subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        """Record the outcome of a subscription's deliveries at once."""
        group = subscription.group
        try:
            future: asyncio.Future[None] = self._running().create_future()
        except BridgeError as error:
            return failed(error)
        if outcome is Outcome.SETTLED:
            self._store.settle(group, deliveries)
        else:
            self._release(subscription, deliveries, outcome)
        future.set_result(None)
        return future

    def leave(self, subscription: MemorySubscription) -> None:
        """Make the group available for its next subscription."""
        self._subscriptions.discard(subscription)
        subscription.group.subscribed = False
        subscription.group.idle_since = wall()
        subscription.group.rewind()

    def logs(self) -> Iterator[Mapping[str, tuple[int, int]]]:
        """Yield the bounds of every log; see `Replayable`. Raises `BackendUnavailable`."""
        self._running()
        return self._store.bounds()

    def replay(self, log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        """Return stored messages; see `Replayable`. Raises `DestinationUnknown`, `BackendUnavailable`."""
        self._running()
        return self._store.replay(log, start, limit, max_bytes)

    def delayed(self, since: int) -> Sequence[Message]:
        """Return delayed messages; see `Replayable`. Raises `BackendUnavailable`."""
        self._running()
        return self._store.delayed_since(since)

    async def purge(self, destination: str, group: str | None) -> None:
        """Drop all messages, or settle them for a group; see `Deletable`."""
        self._running()
        found = self._store.existing(destination)
        if group is None:
            await self._drop_messages(found)
        else:
            purged = self._store.existing_group(found, group)
            self._store.purge_group(found, purged)
            self._group_purged(purged)
            await self._counted()
        await self._recorded()

    async def delete(self, destination: str, group: str | None) -> None:
        """Remove a destination or a group; see `Deletable`."""
        self._running()
        found = self._store.existing(destination)
        if group is None:
            await self._drop_messages(found)
            for _ in self._drop_slices(found):  # what was stored since: at once
                pass
            groups = [self._store.existing_group(found, name) for name in found.groups]
            self._store.remove(found)
            self._groups_forgotten(groups)
            self._destinations_forgotten([found])
        else:
            deleted = self._store.existing_group(found, group)
            self._store.remove_groups(found, [deleted])
            self._groups_forgotten([deleted])
            await self._counted()
        await self._recorded()

    async def close(self) -> None:
        """Stop the timers and subscriptions, and forget all messages."""
        self._stop()
        self._reset()

    def gauges(self) -> Mapping[str, int]:
        """Return messages and bytes stored, destinations and groups."""
        store, capacity = self._store, self._capacity
        return {
            "messages": capacity.messages,
            "bytes": capacity.bytes,
            "delayed": store.delayed,
            "destinations": len(store.destinations),
            "groups": store.groups,
        }

    def totals(self) -> Mapping[str, int]:
        """Return messages dropped to stay within the limits."""
        capacity = self._capacity
        return {
            "dropped_by_retention": capacity.dropped_by_retention,
            "dropped_when_full": capacity.dropped_when_full,
        }

    # Used by the durable adapter, too

    def _open(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._set_due_timer()
            self._expire_old()

    def _stop(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.stop()
        for timer in (self._due_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._due_timer = self._expiry_timer = self._loop = None

    def _reset(self) -> None:
        self._store.forget_all()
        self._store = BackendState(self._options)
        self._capacity = Capacity(self._store, self._options)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise BackendUnavailable("The memory backend is not started.")
        return self._loop

    def _join(self, destination: Destination, group: StoredGroup) -> MemorySubscription:
        if group.subscribed:
            raise RuntimeError(f"{group.name!r} on {destination.name!r} has a subscription already")
        group.subscribed = True
        subscription = MemorySubscription(self, group, destination.listeners)
        self._subscriptions.add(subscription)
        return subscription

    @staticmethod
    def _release(subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        cursors = subscription.group.cursors
        for delivery in deliveries:
            cursor = cursors[delivery.partition]
            if outcome is Outcome.RELEASED and not subscription.closed:
                cursor.release(delivery.position, delivery.attempts)
            else:
                cursor.count(delivery.position, delivery.attempts)
        if outcome is Outcome.RELEASED:
            subscription.wake()

    # Delayed messages

    def _set_due_timer(self) -> None:
        """Set the timer to the next due time, or to the next reading of the wall clock."""
        due = self._store.next_due
        if due is None or self._loop is None:
            return
        at = self._loop.time() + min(max(due - wall(), 0) / 1000, _WALL_CHECK)
        if self._due_timer is None or at < self._due_timer.when():
            if self._due_timer is not None:
                self._due_timer.cancel()
            self._due_timer = self._loop.call_at(at, self._append_due)

    def _append_due(self) -> None:
        """Append what is due by the wall clock, which may disagree with the timer, and set the timer again."""
        self._due_timer = None
        now = wall()
        for _ in range(SLICE):
            delayed = self._store.pop_due(now)
            if delayed is None:
                break
            self._append_delayed(delayed, now)
        self._set_due_timer()

    def _append_delayed(self, delayed: DelayedMessage, now: int) -> None:
        partition = delayed.partition
        partition.append(delayed.record, partition.reserve(), self._store.next_sequence(), now)
        delayed.destination.notify()

    # Old messages

    def _expire_old(self) -> None:
        """Drop and forget what is too old, and search again a minute later."""
        self._forgetting = self._forget_old(wall())
        self._forget_some()

    def _forget_some(self) -> None:
        """Go on with this in the next turn of the loop, until it is complete."""
        if next(self._forgetting, self) is self:
            seconds, then = min(_EXPIRE_EVERY, self._options.retention) / 1000, self._expire_old
        else:
            seconds, then = 0, self._forget_some
        self._expiry_timer = self._running().call_later(seconds, then)

    def _forget_old(self, now: int) -> Iterator[None]:
        while self._capacity.expire(now):
            yield
        for groups in self._store.forget_idle(now):
            self._groups_forgotten(groups)
            self._count_soon()
            yield
        for destinations in self._store.forget_empty(now):
            self._destinations_forgotten(destinations)
            yield

    def _count_soon(self) -> None:
        """Count what a group has settled all at once, a slice in each turn of the loop."""
        if self._loop is not None and not self._counting:
            self._counting = True
            self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._counting = False
        if self._store.count_step():
            self._count_soon()

    async def _counted(self) -> None:
        """Wait until all of this is counted. Counting goes on if the caller is cancelled."""
        self._count_soon()
        while self._counting:  # noqa: ASYNC110 - the very turns of the loop are waited for
            await asyncio.sleep(0)
        self._running()

    async def _drop_messages(self, destination: Destination) -> None:
        """Drop what is stored now, a slice in each turn of the loop."""
        for _ in self._drop_slices(destination):
            await asyncio.sleep(0)
            self._running()

    def _drop_slices(self, destination: Destination) -> Iterator[None]:
        """Drop what is stored when this begins; yields after each slice."""
        yield from self._drop_delayed(destination)
        ends = [partition.end for partition in destination.partitions]
        while self._capacity.purge(destination, ends):
            yield

    def _drop_delayed(self, destination: Destination) -> Iterator[None]:
        for count, (sequence, record) in enumerate(self._store.take_delayed(destination), 1):
            self._capacity.remove(record)
            self._delayed_dropped(sequence)
            if count % SLICE == 0:
                yield

    # Only a journal has stored the following, and overrides these methods

    def _groups_forgotten(self, groups: list[StoredGroup]) -> None:
        """Note that groups were forgotten or deleted."""

    def _destinations_forgotten(self, destinations: list[Destination]) -> None:
        """Note that destinations were forgotten or deleted."""

    def _delayed_dropped(self, sequence: int) -> None:
        """Note that a delayed message was dropped."""

    def _group_purged(self, group: StoredGroup) -> None:
        """Note that a group has settled every message."""

    async def _recorded(self) -> None:
        """Wait until all of this is recorded."""


def failed(error: BridgeError) -> asyncio.Future[Any]:
    """Return a future that raises the error."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
