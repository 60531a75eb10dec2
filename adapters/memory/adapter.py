"""The asyncio driver around the log: futures, one timer for delayed messages, one for old ones."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from adapters.base import Delivery, Features, Outcome, Replayed, Revoked, Stored, Support
from adapters.clock import wall
from adapters.memory import replay
from adapters.memory.group import Group
from adapters.memory.log import Destination, Held, Log
from adapters.memory.options import Options
from adapters.memory.partition import pack
from adapters.memory.room import SLICE, Room
from adapters.memory.subscription import MemorySubscription
from bridge.errors import BackendUnavailable, BridgeError
from bridge.message import FIELDS, Message

_WALL_CHECK: Final = 1.0
"""Seconds after which a waiting timer looks at the wall clock again: it may have been set forward."""
_SWEEP: Final = 60_000
"""Milliseconds between two looks for messages older than the retention."""

_EMULATED: Final = frozenset({"priority", "expireTime"})
"""Left to the engine's window: it orders by priority, and looks at the clock when it hands out."""


def features(*, durable: bool) -> Features:
    """What the memory backend can do, with a journal and without."""
    fields = {f.name: Support.EMULATED if f.name in _EMULATED else Support.NATIVE for f in FIELDS if f.asks}
    if not durable:
        fields["durability"] = Support.UNSUPPORTED
    return Features(fields=fields, durable=durable, late_groups=True)


class MemoryAdapter:
    """Everything in this process's memory, and gone with it. `publish` and `settle` are done when they return."""

    def __init__(self, options: Options) -> None:
        self.features = features(durable=False)
        self._options = options
        self._log = Log(options)
        self._room = Room(self._log, options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions: set[MemorySubscription] = set()
        self._due: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Be ready to publish. There is nothing to connect to."""
        self._run()

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Keep one message. The future raises `NotStored`, `PartitionUnknown` or `BodyTooLarge`."""
        now = wall()
        try:
            future: asyncio.Future[Stored] = self._running().create_future()
            destination, partition = self._log.place(message)
            record = pack(message)
            self._room.admit(record, now)
        except BridgeError as error:
            return failed(error)
        sequence = self._log.next_sequence()
        if message.due > now:
            self._log.hold(destination, record, message.due, sequence)
            self._arm()
            future.set_result(Stored(partition.number, None))
        else:
            offset = partition.reserve()
            partition.append(record, offset, sequence, now)
            if destination.waiting:
                destination.wake()
            future.set_result(Stored(partition.number, offset))
        return future

    async def partitions(self, destination: str) -> int:
        """Number of partitions, creating the destination on first use. Raises `BackendFull`, `BackendUnavailable`."""
        self._running()
        return len(self._log.destination(destination).partitions)

    async def subscribe(
        self,
        source: str,
        group: str,
        revoked: Revoked,  # noqa: ARG002 - nobody else to share with
        *,
        latest: bool = False,
    ) -> MemorySubscription:
        """Join a group. Raises `BackendFull`, `BackendUnavailable`; `RuntimeError` while it has a subscription."""
        self._running()
        destination = self._log.destination(source)
        return self._join(destination, self._log.group(destination, group, wall(), latest=latest))

    def settle(
        self, subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        """Record the outcome of a subscription's deliveries, at once."""
        group = subscription.group
        try:
            future: asyncio.Future[None] = self._running().create_future()
        except BridgeError as error:
            return failed(error)
        if outcome is Outcome.SETTLED:
            for delivery in deliveries:
                self._log.settle(group, delivery.partition, delivery.position)
        else:
            self._hand_back(subscription, deliveries, outcome)
        future.set_result(None)
        return future

    def leave(self, subscription: MemorySubscription) -> None:
        """Free the group for its next subscription."""
        self._subscriptions.discard(subscription)
        subscription.group.live = False
        subscription.group.idle_since = wall()
        subscription.group.rewind()

    def logs(self) -> Mapping[str, tuple[int, int]]:
        """First offset kept and next one of every log. Raises `BackendUnavailable`."""
        self._running()
        return replay.bounds(self._log)

    def replay(self, log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        """What is kept from an offset on. Raises `DestinationUnknown`, `BackendUnavailable`."""
        self._running()
        return replay.read(self._log, log, start, limit, max_bytes)

    async def close(self) -> None:
        """Let go of everything kept."""
        self._halt()
        self._reset()

    def gauges(self) -> Mapping[str, int]:
        """Messages and bytes held, destinations, groups, and what was dropped to stay within the limits."""
        log, room = self._log, self._room
        return {
            "messages": room.messages,
            "bytes": room.bytes,
            "delayed": log.delayed,
            "destinations": len(log.destinations),
            "groups": log.groups,
            "dropped_by_retention": room.dropped_by_retention,
            "dropped_when_full": room.dropped_when_full,
        }

    # For the durable adapter as well

    def _run(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._arm()
            self._sweep_old()

    def _halt(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.stop()
        for timer in (self._due, self._sweep):
            if timer is not None:
                timer.cancel()
        self._due = self._sweep = self._loop = None

    def _reset(self) -> None:
        self._log.forget_all()
        self._log = Log(self._options)
        self._room = Room(self._log, self._options)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise BackendUnavailable("The memory backend is not started.")
        return self._loop

    def _join(self, destination: Destination, group: Group) -> MemorySubscription:
        if group.live:
            raise RuntimeError(f"{group.name!r} on {destination.name!r} has a subscription already")
        group.live = True
        subscription = MemorySubscription(self, destination, group)
        self._subscriptions.add(subscription)
        return subscription

    @staticmethod
    def _hand_back(subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
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

    def _arm(self) -> None:
        """Set the one timer to when the next held message is due, or to the next look at the wall clock."""
        due = self._log.next_due
        if due is None or self._loop is None:
            return
        at = self._loop.time() + min(max(due - wall(), 0) / 1000, _WALL_CHECK)
        if self._due is None or at < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        """Let out what is due by the wall clock; that it was not early for the timer says nothing."""
        self._due = None
        now = wall()
        for _ in range(SLICE):
            held = self._log.take_due(now)
            if held is None:
                break
            self._let_out(held, now)
        self._arm()

    def _let_out(self, held: Held, now: int) -> None:
        partition = held.partition
        partition.append(held.record, partition.reserve(), self._log.next_sequence(), now)
        held.destination.wake()

    # Old messages

    def _sweep_old(self) -> None:
        """Drop what is too old, a slice in each turn of the loop, and look again a minute later."""
        loop = self._running()
        now = wall()
        if self._room.expire(now):
            self._sweep = loop.call_later(0, self._sweep_old)
            return
        self._forgotten(self._log.forget_idle(now))
        self._sweep = loop.call_later(min(_SWEEP, self._options.retention) / 1000, self._sweep_old)

    def _forgotten(self, groups: list[Group]) -> None:
        """Nothing remembers them here."""


def failed(error: BridgeError) -> asyncio.Future[Any]:
    """Return a future that raises the error."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
