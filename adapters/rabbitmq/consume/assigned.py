"""The partitions of one group that this bridge holds: it opens them, repairs them, and closes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from adapters.amqp.link import Link
from adapters.rabbitmq.consume.attempts import AttemptsRecord, AttemptsStore, AttemptsWriter, attempts_queue
from adapters.rabbitmq.consume.consumer import Waiter
from adapters.rabbitmq.consume.partition import Drained, Listener, Partition
from adapters.rabbitmq.consume.unacked import PrefetchWindow, Unacked
from adapters.rabbitmq.message.headers import ACQUIRED_COUNT, DELIVERY_COUNT
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown

_RETRY: Final = 1.0
"""Seconds after which a partition is tried again that could not be had."""
_FILL: Final = 0.5
"""Seconds for which joining waits for messages that lie in a queue: another bridge may not have released it yet."""
_ACQUIRED: Final = (4, 3, 0)
"""Since when quorum queues count in another header what they hand out."""
_log = logging.getLogger("bridge.rabbitmq")

Changed = Callable[[frozenset[int]], None]


class Sharing(Protocol):
    """The part of this bridge in a group that several bridges serve."""

    async def join(self) -> frozenset[int]:
        """Return the first share."""

    async def leave(self) -> None:
        """Leave the group."""


class Dependencies(NamedTuple):
    """How a group comes by what it needs."""

    make_sources: Callable[[], Awaitable[Sequence[Source]]]
    """Declares what is missing of the group; returns its queues."""
    make_membership: Callable[[int, Changed], Sharing]
    """Given the number of partitions."""
    record_drained: Drained
    consuming: Link
    notes: AttemptsStore
    prefetch: int
    refresh: float
    """Seconds: what is delivered and not acknowledged for so long, or up to twice as long, comes on a new channel."""


class Holder(Listener, Protocol):
    """The subscription that fetches from the partitions."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These go: nothing more is fetched from them, and they keep what was handed out."""

    def failed(self, error: BridgeError) -> None:
        """Some of the share cannot be consumed at the moment."""


class AssignedPartitions:
    """Holds what the membership says."""

    def __init__(self, destination: str, dependencies: Dependencies, holder: Holder) -> None:
        self.partitions: dict[int, Partition] = {}
        self.last_error: BridgeError | None = None
        """Why some of the share cannot be consumed at the moment."""
        self._destination = destination
        self._dependencies = dependencies
        self._link = dependencies.consuming
        self._holder = holder
        self._loop = asyncio.get_running_loop()
        self._token = uuid4().hex
        self._positions = count(1)
        self._sources: dict[int, Source] = {}
        self._membership: Sharing | None = None
        """None: all partitions are this bridge's; no share is known."""
        self._share: frozenset[int] = frozenset()
        self._earlier_attempts: dict[int, AttemptsRecord] = {}
        """Of partitions that were held when the connection was lost."""
        self._must_declare = False
        """Whether something of the group was not there, and has not been made again."""
        self._rerun = False
        self._moving: asyncio.Task[None] | None = None
        self._repairs: dict[Partition, asyncio.Task[None]] = {}
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._closed = False

    async def join(self) -> None:
        """Hold the first share. Raises `BackendUnavailable`, `DestinationUnknown` or `Refused`; `close` it then."""
        self._link.on_lost.append(self._lost)
        self._link.on_connected.append(self._move)
        sources = await self._dependencies.make_sources()
        self._set_sources(sources)
        if any(source.shared for source in sources):
            self._share = frozenset(self._sources)
        else:
            self._membership = self._dependencies.make_membership(len(sources), self._changed)
            self._share = await self._membership.join()
        error = await self._acquire(self._share)
        if error is not None:
            raise error
        await asyncio.gather(*(partition.filled(_FILL) for partition in self.partitions.values()))
        self._later(self._dependencies.refresh, self._refresh)

    async def close(self) -> None:
        """Leave the group, and give back what is unacked."""
        self._closed = True
        if self._lost in self._link.on_lost:
            self._link.on_lost.remove(self._lost)
            self._link.on_connected.remove(self._move)
        for timer in self._timers.values():
            timer.cancel()
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.wait((self._moving,))
        if self._membership is not None:
            await self._membership.leave()  # first: the others stand ready then
        await self._close(list(self.partitions.values()))

    def broken(self, partition: Partition, error: BridgeError) -> None:
        """The broker has ended a consumer."""
        _log.warning("%s", error)
        self.repair(partition)

    def repair(self, partition: Partition) -> None:
        """Consume on another channel."""
        held = self.partitions.get(partition.unacked.partition) is partition
        if held and not partition.leaving and partition not in self._repairs and not self._closed:
            again = self._open_anew if partition.has_history else self._reopen  # of two queues nothing is matched
            self._repairs[partition] = self._loop.create_task(again(partition))

    # What the membership and the link report:

    def _changed(self, share: frozenset[int]) -> None:
        self._share = share
        self._move()

    def _lost(self, failure: BackendUnavailable) -> None:
        """The connection is lost, and all that was delivered on it with it."""
        if self._membership is not None:
            self._share = frozenset()  # the membership gives it when it is in the group again
        partitions = list(self.partitions.values())
        if partitions:
            self._holder.revoked(partitions)
        for partition in partitions:
            partition.lost()
            self._keep_attempts(partition)
            self._drop(partition)
        self._fail(failure)

    # Moving:

    def _move(self) -> None:
        """Release what is no longer in the share, and consume what is new in it."""
        self._rerun = True
        if self._moving is None and not self._closed:
            self._moving = self._loop.create_task(self._apply_share())

    async def _apply_share(self) -> None:
        try:
            while self._rerun and self._link.up:
                self._rerun = False
                removed = [partition for number, partition in self.partitions.items() if number not in self._share]
                if removed:
                    self._holder.revoked(removed)
                    await self._close(removed)
                error = await self._acquire(self._share - self.partitions.keys())
                if error is not None:
                    self._fail(error)
                    self._later(_RETRY, self._move)
        finally:
            self._moving = None

    async def _acquire(self, numbers: Collection[int]) -> BridgeError | None:
        """Consume these; returns why some cannot be had."""
        errors = [] if self._must_declare else await self._open_all(numbers)
        if self._must_declare or any(isinstance(error, DestinationUnknown) for error in errors):
            # if it fails on the way, queues may be there that nothing is bound to: opening them would not show it
            self._must_declare = True
            try:
                self._set_sources(await self._dependencies.make_sources())
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
        number = source.partition
        counter = None if source.shared else DELIVERY_COUNT if self._link.version < _ACQUIRED else ACQUIRED_COUNT
        unacked = Unacked[Waiter](number, self._destination, self._positions, counter)
        attempts_writer = None
        if not source.shared:
            attempts_writer = AttemptsWriter(
                self._dependencies.notes, attempts_queue(source.queue, number), self._token, unacked
            )
        partition = Partition(
            source,
            unacked,
            self._link,
            PrefetchWindow(self._dependencies.prefetch, len(self._sources)),
            attempts_writer=attempts_writer,
            listener=self._holder,
            record_drained=self._dependencies.record_drained,
        )
        partition.earlier_attempts = self._earlier_attempts.pop(number, None)
        return partition

    def _set_sources(self, sources: Sequence[Source]) -> None:
        self._sources = {source.partition: source for source in sources}

    # Letting go:

    async def _close(self, partitions: Collection[Partition]) -> None:
        """Give back what these hold; they are held until that is done, for acknowledgements that are under way."""
        await self._end_repairs(partitions)
        await asyncio.gather(*(partition.close() for partition in partitions))
        for partition in partitions:
            if self.partitions.get(partition.unacked.partition) is partition:
                self._drop(partition)

    async def _end_repairs(self, partitions: Collection[Partition]) -> None:
        tasks = [task for partition in partitions if (task := self._repairs.pop(partition, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep_attempts(self, partition: Partition) -> None:
        """Keep what is known of attempts for the next time this bridge holds the partition."""
        unacked = partition.unacked
        note = (
            AttemptsRecord(self._token, unacked.attempts_record())
            if unacked.attempts_known
            else partition.earlier_attempts
        )
        if note is not None and not partition.source.shared:
            self._earlier_attempts[unacked.partition] = note

    def _drop(self, partition: Partition) -> None:
        number = partition.unacked.partition
        del self.partitions[number]
        if partition.source.history is None and number in self._sources:
            self._sources[number] = self._sources[number]._replace(history=None)
        repair = self._repairs.pop(partition, None)
        if repair is not None and repair is not asyncio.current_task():
            repair.cancel()
        sent, unsent = partition.unacked.waiters()
        for waiter in sent:
            waiter.fail(OutcomeUnknown("The bridge lost the partition during the acknowledgement."))
        for waiter in unsent:
            waiter.fail(partition_lost())

    # Repairing:

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
                self._move()  # which notes that the trouble is over, if it is
                return

    async def _open_anew(self, partition: Partition) -> None:
        """Hold a partition anew, with nothing known of it but how often what was not settled was handed out."""
        self._holder.revoked([partition])
        await partition.abandon()
        self._keep_attempts(partition)
        self._drop(partition)
        self._move()

    def _refresh(self) -> None:
        """Repair partitions with a message that was here already the last time, or whose messages are small again."""
        for partition in list(self.partitions.values()):
            oldest = partition.unacked.oldest_tag
            if partition.window.review() or (oldest and oldest <= partition.seen):
                self.repair(partition)
            partition.seen = partition.unacked.newest_tag
        self._later(self._dependencies.refresh, self._refresh)

    def _fail(self, error: BridgeError) -> None:
        if not self._closed:
            self.last_error = error
            _log.warning("%s: %s", self._destination, error)
            self._holder.failed(error)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if call in self._timers:
            self._timers[call].cancel()
        if not self._closed:
            self._timers[call] = self._loop.call_later(seconds, call)


def partition_lost() -> BackendUnavailable:
    """Return what becomes of acknowledgements for a partition that is not held any more."""
    return BackendUnavailable("The bridge no longer has the partition; the message is delivered again.")
