"""The partitions of one group that are assigned to this bridge: it opens, repairs and closes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from adapters.amqp.link import Link
from adapters.base import Delivery
from adapters.rabbitmq.consume.attempts import AttemptsRecord, AttemptsWriter
from adapters.rabbitmq.consume.consumer import Waiter
from adapters.rabbitmq.consume.partition import Partition, RecordDrained
from adapters.rabbitmq.consume.partition_state import Unacked
from adapters.rabbitmq.consume.prefetch_window import PrefetchWindow
from adapters.rabbitmq.consume.repeated_arrivals import RepeatedArrivals
from adapters.rabbitmq.consume.returned import ReturnedMessages
from adapters.rabbitmq.group.membership import Changed, Membership
from adapters.rabbitmq.headers import ACQUIRED_COUNT, DELIVERY_COUNT
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.names import Source, returned_of
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown

_RETRY: Final = 1.0
"""Seconds between attempts to open a partition."""
_FILL: Final = 0.5
"""Seconds in which joining waits for the messages in the queues: another bridge may not have released them yet."""
_ACQUIRED: Final = (4, 3, 0)
"""The version from which quorum queues count deliveries to consumers in another header."""
REFRESH: Final = 300.0
"""Seconds: messages unacknowledged for so long, or up to twice as long, are delivered again on a new channel. RabbitMQ
closes channels after half an hour (`consumer_timeout`)."""
_log = logging.getLogger("bridge.rabbitmq")


class GroupDependencies(NamedTuple):
    """The parts of the adapter that a subscription uses."""

    make_sources: Callable[[], Awaitable[Sequence[Source]]]
    """Declares what is missing of the group; returns its queues."""
    make_membership: Callable[[int, Changed], Membership]
    """Given the number of partitions."""
    record_drained: RecordDrained
    store_deferred: Callable[[Delivery, Source, int], Awaitable[object]]
    """Stores a delivery once more, for the same queue, no earlier than a time in ms since 1970."""
    consuming: Link
    publisher: Publisher
    prefetch: int
    refresh: float = REFRESH


class Owner(Protocol):
    """The subscription that fetches from the partitions."""

    def arrived(self, partition: Partition) -> None:
        """Fetch: a message is there."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Have the engine release partitions; nothing more is fetched from them."""

    def failed(self, error: BridgeError) -> None:
        """Fail a waiting fetch: some of the share cannot be consumed now."""

    def wanted(self) -> int:
        """Return how many messages a waiting fetch still asks for."""


class AssignedPartitions:
    """Consumes the partitions that the membership assigns."""

    def __init__(self, destination: str, dependencies: GroupDependencies, owner: Owner) -> None:
        self.partitions: dict[int, Partition] = {}
        self.last_error: BridgeError | None = None
        """Why some of the share cannot be consumed now."""
        self._destination = destination
        self._dependencies = dependencies
        self._link = dependencies.consuming
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._token = uuid4().hex
        self._positions = count(1)
        self._sources: dict[int, Source] = {}
        self._membership: Membership | None = None
        """None: this bridge consumes all partitions; other programs may as well."""
        self._returned: ReturnedMessages | None = None
        """None: others own the queue, and decide about the messages that exceed its limit."""
        self._share: frozenset[int] = frozenset()
        self._earlier_attempts: dict[int, AttemptsRecord] = {}
        """Of partitions that were consumed when the connection was lost."""
        self._repeated: dict[int, RepeatedArrivals] = {}
        """By partition, kept when the connection is lost."""
        self._must_declare = False
        """Whether a queue was missing, and the group has not been declared again."""
        self._rerun = False
        """Whether the share, or the connection, has changed since it was last applied."""
        self._applying: asyncio.Task[None] | None = None
        self._repairs: dict[Partition, asyncio.Task[None]] = {}
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._closed = False

    async def join(self) -> None:
        """Consume the first share. Raises `BackendUnavailable`, `DestinationUnknown` or `Refused`; `close` it then."""
        self._link.on_lost.append(self._lost)
        self._link.on_connected.append(self._apply_soon)
        await self._make_sources()
        if self.shared:
            self._share = frozenset(self._sources)
        else:
            self._membership = self._dependencies.make_membership(len(self._sources), self._share_changed)
            self._share = await self._membership.join()
        error = await self._open_missing(self._share)
        if error is not None:
            raise error
        if not self.shared:
            use = self._dependencies
            self._returned = ReturnedMessages(use.consuming, use.publisher, returned_of(self._sources[0]))
            self._returned.start()
        await asyncio.gather(*(partition.filled(_FILL) for partition in self.partitions.values()))
        self._later(self._dependencies.refresh, self._refresh)

    @property
    def shared(self) -> bool:
        """Whether the queue is one of others."""
        return any(source.shared for source in self._sources.values())

    async def close(self) -> None:
        """Leave the group, and release all partitions."""
        self._closed = True
        if self._lost in self._link.on_lost:
            self._link.on_lost.remove(self._lost)
            self._link.on_connected.remove(self._apply_soon)
        for timer in self._timers.values():
            timer.cancel()
        if self._applying is not None:
            self._applying.cancel()
            await asyncio.wait((self._applying,))
        if self._returned is not None:
            await self._returned.close()
        if self._membership is not None:
            await self._membership.leave()  # first, so that the other bridges are ready to consume
        await self._close(list(self.partitions.values()))

    def repair(self, partition: Partition, error: BridgeError | None) -> None:
        """Consume a partition on another channel.

        Of a queue of others, any consumer may get the messages of a closed channel: their leases have ended.
        """
        if error is not None:
            _log.warning("%s", error)
        consumed = self.partitions.get(partition.unacked.partition) is partition
        if consumed and not partition.revoked and partition not in self._repairs and not self._closed:
            repair = self._open_anew if partition.source.shared else self._reopen
            self._repairs[partition] = self._loop.create_task(repair(partition))

    # Changes of the share and of the connection:

    def _share_changed(self, share: frozenset[int]) -> None:
        self._share = share
        self._apply_soon()

    def _lost(self, failure: BackendUnavailable) -> None:
        """Release all partitions: the connection is lost."""
        if self._membership is not None:
            self._share = frozenset()  # until the membership computes it again
        partitions = list(self.partitions.values())
        if partitions:
            self._owner.revoked(partitions)
        for partition in partitions:
            partition.lost()
            self._keep_attempts(partition)
            self._drop(partition)
        self._fail(failure)

    def _apply_soon(self) -> None:
        self._rerun = True
        if self._applying is None and not self._closed:
            self._applying = self._loop.create_task(self._apply_share())

    async def _apply_share(self) -> None:
        """Release partitions that are no longer in the share, and consume new ones."""
        try:
            while self._rerun and self._link.up:
                self._rerun = False
                removed = [partition for number, partition in self.partitions.items() if number not in self._share]
                if removed:
                    self._owner.revoked(removed)
                    await self._close(removed)
                error = await self._open_missing(self._share - self.partitions.keys())
                if error is not None:
                    self._fail(error)
                    self._later(_RETRY, self._apply_soon)
        finally:
            self._applying = None

    async def _open_missing(self, numbers: Collection[int]) -> BridgeError | None:
        """Consume partitions; returns why some cannot be consumed."""
        errors = [] if self._must_declare else await self._open_all(numbers)
        if self._must_declare or any(isinstance(error, DestinationUnknown) for error in errors):
            # until this succeeds, queues may exist without their bindings; opening them would not fail
            self._must_declare = True
            try:
                await self._make_sources()
            except BridgeError as error:
                return error
            self._must_declare = False
            errors = await self._open_all(set(numbers) - self.partitions.keys())
        if not errors and not self._repairs:
            self.last_error = None
        return errors[-1] if errors else None

    async def _open_all(self, numbers: Collection[int]) -> list[BridgeError]:
        opened = await asyncio.gather(*(self._open(number) for number in sorted(numbers)))
        return [error for error in opened if error is not None]

    async def _open(self, number: int) -> BridgeError | None:
        source = self._sources.get(number)
        if source is None:
            return DestinationUnknown(f"{self._destination}: there is no partition {number} any more.")
        partition = self.partitions[number] = self._make(source)
        try:
            await partition.open()
        except BridgeError as error:
            if self.partitions.get(number) is partition:
                self._drop(partition)
            return error
        return None

    def _make(self, source: Source) -> Partition:
        number, use = source.partition, self._dependencies
        counter = None if source.shared else DELIVERY_COUNT if self._link.version < _ACQUIRED else ACQUIRED_COUNT
        unacked = Unacked[Waiter](number, self._destination, self._positions, counter)
        partition = Partition(
            source,
            unacked,
            self._link,
            PrefetchWindow(use.prefetch, len(self._sources)),
            self._repeated.setdefault(number, RepeatedArrivals()),
            attempts_writer=AttemptsWriter(self._link, use.publisher, source, self._token, unacked),
            arrived=self._owner.arrived,
            repair=self.repair,
            record_drained=use.record_drained,
            wanted=self._owner.wanted,
        )
        partition.earlier_attempts = self._earlier_attempts.pop(number, None)
        return partition

    async def _make_sources(self) -> None:
        self._sources = {source.partition: source for source in await self._dependencies.make_sources()}

    # Releasing partitions:

    async def _close(self, partitions: Collection[Partition]) -> None:
        """Release partitions; they are dropped only then, because acknowledgements may be under way."""
        repairs = [task for partition in partitions if (task := self._repairs.pop(partition, None)) is not None]
        for task in repairs:
            task.cancel()
        await asyncio.gather(*repairs, return_exceptions=True)
        await asyncio.gather(*(partition.close() for partition in partitions))
        for partition in partitions:
            if self.partitions.get(partition.unacked.partition) is partition:
                self._drop(partition)

    def _keep_attempts(self, partition: Partition) -> None:
        """Keep the attempts until this bridge consumes the partition again."""
        unacked, record = partition.unacked, partition.earlier_attempts
        if unacked.attempts_known:
            record = AttemptsRecord(self._token, unacked.attempts_record(), partition.attempts_writer.window)
        if record is not None and not partition.source.shared:
            self._earlier_attempts[unacked.partition] = record

    def _drop(self, partition: Partition) -> None:
        number = partition.unacked.partition
        del self.partitions[number]
        if not partition.has_history and number in self._sources:
            self._sources[number] = self._sources[number]._replace(history=None)
        repair = self._repairs.pop(partition, None)
        if repair is not None and repair is not asyncio.current_task():
            repair.cancel()
        sent, unsent = partition.unacked.waiters()
        for waiter in sent:
            waiter.fail(OutcomeUnknown("The bridge lost the partition during the acknowledgement."))
        for waiter in unsent:
            waiter.fail(partition_lost())

    # Repairs:

    async def _reopen(self, partition: Partition) -> None:
        while True:
            try:
                await partition.reopen()
            except DestinationUnknown as error:
                self._fail(error)
                await self._open_anew(partition)
                return
            except BridgeError as error:
                self._fail(error)
                await asyncio.sleep(_RETRY)
            else:
                self._repairs.pop(partition, None)
                self._apply_soon()  # it clears `last_error` if nothing else is wrong
                return

    async def _open_anew(self, partition: Partition) -> None:
        """Release a partition, and consume it again; only the attempts of unsettled messages are kept, if it is own."""
        self._owner.revoked([partition])
        await partition.abandon()
        self._keep_attempts(partition)
        self._drop(partition)
        self._apply_soon()

    def _refresh(self) -> None:
        """Repair partitions with messages that were unacknowledged the last time, or that have become few or small."""
        for partition in list(self.partitions.values()):
            outgrown, has_stale = partition.window.review(), partition.unacked.has_stale()
            # a queue of others counts what returns: its messages stay on their channel until RabbitMQ closes that
            if (outgrown or has_stale or partition.is_too_wide) and not partition.source.shared:
                self.repair(partition, None)
        self._later(self._dependencies.refresh, self._refresh)

    def _fail(self, error: BridgeError) -> None:
        if not self._closed:
            self.last_error = error
            _log.warning("%s: %s", self._destination, error)
            self._owner.failed(error)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if call in self._timers:
            self._timers[call].cancel()
        if not self._closed:
            self._timers[call] = self._loop.call_later(seconds, call)


def partition_lost() -> BackendUnavailable:
    """Return the error of acknowledgements for a partition that is not consumed any more."""
    return BackendUnavailable("The bridge no longer has the partition; the message is delivered again.")
