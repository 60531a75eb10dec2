"""One group's view of one destination: it fetches from the partitions that are assigned to this bridge."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from adapters.amqp.link import Link
from adapters.base import Delivery, Outcome, Revoked
from adapters.rabbitmq.consume.assigned import AssignedPartitions, GroupDependencies, partition_lost
from adapters.rabbitmq.consume.consumer import Waiter
from adapters.rabbitmq.consume.fetch_again import FetchAgain
from adapters.rabbitmq.consume.partition import Partition
from adapters.rabbitmq.consume.prefetch_window import UNACKNOWLEDGED_BYTES
from bridge.errors import BackendUnavailable, BridgeError

INTERVAL: Final = 5.0
"""Seconds between two counts. One queue costs a round trip of 0.2 ms."""
_SHARE: Final = 20
"""Counting takes at most a twentieth of the time, also for a group of a thousand queues."""
_UNREAD: Final = 120.0
"""Seconds after which a count that is not read stops: two intervals of a slow scraper."""
_REVIEW: Final = 0.2
"""Seconds between two looks at partitions that are full while a fetch waits."""
_AGAIN: Final = 30.0
"""Seconds in which messages must be delivered again; then the engine tries again."""


class ReadyCount:
    """The number of messages in the queues of a subscription, counted while it is read."""

    def __init__(self, link: Link, queues: Callable[[], Collection[str]]) -> None:
        self._link = link
        self._queues = queues
        self._latest: int | None = None
        self._read = 0.0
        self._counting: asyncio.Task[None] | None = None

    def latest(self) -> int | None:
        """Return the last count, some seconds old; None: there is none yet, or a queue or the connection is missing."""
        self._read = time.monotonic()
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count_repeatedly())
        return self._latest

    def stop(self) -> None:
        """Stop counting."""
        if self._counting is not None:
            self._counting.cancel()

    async def _count_repeatedly(self) -> None:
        try:
            while time.monotonic() - self._read < _UNREAD:
                begun = time.monotonic()
                try:
                    self._latest = await self._count()
                except BridgeError:
                    self._latest = None
                await asyncio.sleep(max(INTERVAL, _SHARE * (time.monotonic() - begun)))
        finally:
            self._latest = self._counting = None

    async def _count(self) -> int:
        async with self._link.temporary_channel() as channel:
            answers = [await channel.ask(queue, "queue_declare", queue=queue, passive=True) for queue in self._queues()]
        return sum(int(answer.message_count) for answer in answers)


class RabbitMQSubscription:
    """Fetches from the queues of its partitions, and acknowledges what the engine settles."""

    fetches_again = False
    """Not used yet: of 12,000 messages in batches, with kills of the broker, 27 did not come (decision 0090)."""

    def __init__(self, destination: str, revoked: Revoked, dependencies: GroupDependencies) -> None:
        self.closed = False
        self._assigned = AssignedPartitions(destination, dependencies, self)
        self._ready = ReadyCount(dependencies.consuming, self._queues)
        self._revoked = revoked
        self._store_deferred = dependencies.store_deferred
        self._loop = asyncio.get_running_loop()
        self._fetchable: dict[Partition, None] = {}
        """Partitions with messages to fetch, in the order in which they are served."""
        self.on_demand = False
        """See `OnDemand`: so it is on a queue of others."""
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._requested = (1, 0)
        self._requesting = False
        """Whether messages are to be requested in the next iteration of the loop."""
        self._answering = False
        self._count_waiting: Callable[[], Mapping[int, int]] = dict
        self._review: asyncio.TimerHandle | None = None
        self._again: FetchAgain | None = None

    async def join(self) -> None:
        """Consume this bridge's share; the messages in its queues have arrived when this returns.

        Raises `BackendUnavailable`, `DestinationUnknown` or `Refused`; it is closed then.
        """
        try:
            await self._assigned.join()
        except BaseException:
            await self.close()
            raise
        self.on_demand = self._assigned.shared

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """See `Subscription`. Raises `BackendUnavailable` also while some of the share cannot be consumed."""
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        last_error = self._assigned.last_error
        if self.closed:
            future.set_exception(_closed())
        elif found := self._take(limit, max_bytes):
            future.set_result(found)
        elif last_error is not None:
            future.set_exception(BackendUnavailable(last_error.detail))
        else:
            self._pending, self._requested = future, (limit, max_bytes)
            if self.on_demand:
                future.add_done_callback(lambda _: self._request_soon())
                self._request_soon()
            elif self._review is None and any(each.is_full for each in self._assigned.partitions.values()):
                self._review = self._loop.call_later(_REVIEW, self._make_space)
        return future

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        """See `Subscription`: the partitions are consumed on other channels."""
        self._again = again = FetchAgain(self._loop.create_future(), self._find)
        try:
            again.start(deliveries)
        except BackendUnavailable as error:
            again.fail(error)
        if not again.future.done():
            for partition in again.partitions:
                self._assigned.repair(partition, None)
            timeout = self._loop.call_later(
                _AGAIN, again.fail, BackendUnavailable("RabbitMQ has not delivered all messages again.")
            )
            again.future.add_done_callback(lambda _: timeout.cancel())
        return again.future

    def count_waiting_by(self, count: Callable[[], Mapping[int, int]]) -> None:
        """See `Windowed`."""
        self._count_waiting = count

    def searched(self) -> asyncio.Future[None]:
        """See `OnDemand`."""
        return asyncio.ensure_future(self._search())

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """See `Subscription`. Settled messages are removed from the broker's log when the future is done.

        It raises `BackendUnavailable` if the partition is not this bridge's any more, and `OutcomeUnknown` if the
        partition or the channel was lost during the acknowledgement.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if outcome is Outcome.SETTLED:
            self._settle(deliveries, future)
            return future
        for delivery in deliveries:
            partition = self._assigned.partitions.get(delivery.partition)
            if partition is not None and partition.unacked.set_attempt(delivery.position, delivery.attempts):
                partition.attempts_writer.changed()
        future.set_result(None)
        return future

    def defer(self, delivery: Delivery, until: int) -> asyncio.Future[None]:
        """See `Deferring`: a copy waits outside the group; once it is stored, the delivery is settled."""
        return asyncio.ensure_future(self._defer(delivery, until))

    @property
    def lag(self) -> int | None:
        """See `Lagging`: the broker's last count, and what is unacknowledged here."""
        ready = self._ready.latest()
        unacknowledged = sum(len(partition.unacked.unacknowledged) for partition in self._assigned.partitions.values())
        return None if ready is None else ready + unacknowledged

    def gauges(self) -> Mapping[str, int]:
        """See `Measured`."""
        each = [partition.unacked for partition in self._assigned.partitions.values()]
        return {
            "held_partitions": len(each),
            "buffered_records": sum(len(unacked.waiting) for unacked in each),
            "buffered_bytes": sum(unacked.bytes for unacked in each),
        }

    async def close(self) -> None:
        """Leave the group, return unsettled messages to their queues, and record their attempts."""
        if not self.closed:
            self.closed = True
            self._ready.stop()
            self.failed(_closed())
            self._stop_fetching_again(_closed())
            if self._review is not None:
                self._review.cancel()
            await self._assigned.close()

    # Called by `AssignedPartitions`:

    def arrived(self, partition: Partition) -> None:
        """Answer a waiting fetch at the end of this iteration of the loop: more messages may arrive in it."""
        if partition.revoked:
            return
        self._fetchable[partition] = None
        if self._pending is not None and not self._answering:
            self._answering = True
            self._loop.call_soon(self._answer)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Have the engine release partitions, and take over its attempts for the next bridge."""
        by_number = {partition.unacked.partition: partition for partition in partitions}
        for partition in partitions:
            partition.revoked = True
            self._fetchable.pop(partition, None)
        self._stop_fetching_again(partition_lost())
        for delivery in self._revoked(list(by_number)):
            by_number[delivery.partition].unacked.set_attempt(delivery.position, delivery.attempts)

    def failed(self, error: BridgeError) -> None:
        """Fail a waiting fetch; the engine fetches again."""
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_exception(BackendUnavailable(error.detail))
            pending.exception()  # no caller may be waiting for it

    def _find(self, number: int) -> Partition:
        partition = self._assigned.partitions.get(number)
        if partition is None or partition.revoked or self.closed:
            raise partition_lost()
        return partition

    def _stop_fetching_again(self, error: BridgeError) -> None:
        """Fail a call of `fetch_again`; the engine calls again for what it still has."""
        if self._again is not None:
            self._again.fail(error)

    def _make_space(self) -> None:
        """Have more messages of full partitions delivered while the engine waits for some."""
        self._review = None
        full = [each for each in self._assigned.partitions.values() if each.is_full and not each.revoked]
        if full and self._pending is not None and not self._pending.done():
            waiting = self._count_waiting()
            held = sum(each.unacked.unacknowledged_bytes() for each in self._assigned.partitions.values())
            for each in full:
                each.widen(waiting.get(each.unacked.partition, 0), UNACKNOWLEDGED_BYTES - held)
            self._review = self._loop.call_later(_REVIEW, self._make_space)

    def wanted(self) -> int:
        """Return how many messages a waiting fetch still asks for."""
        return 0 if self._pending is None or self._pending.done() else self._requested[0]

    def _request_soon(self) -> None:
        """Request what is wanted once in an iteration of the loop: several pulls may begin to wait in it."""
        if not self._requesting:
            self._requesting = True
            self._loop.call_soon(self._request)

    def _request(self) -> None:
        self._requesting = False
        for partition in self._assigned.partitions.values():
            partition.request()

    async def _search(self) -> None:
        await asyncio.gather(*(partition.search() for partition in self._assigned.partitions.values()))
        self._answer()

    def _queues(self) -> list[str]:
        sources = [partition.source for partition in self._assigned.partitions.values()]
        return [queue for source in sources for queue in (source.history, source.queue) if queue is not None]

    async def _defer(self, delivery: Delivery, until: int) -> None:
        partition = self._assigned.partitions.get(delivery.partition)
        if partition is None or self.closed:
            raise partition_lost()
        await self._store_deferred(delivery, partition.source, until)
        await self.settle([delivery], Outcome.SETTLED)

    def _settle(self, deliveries: Sequence[Delivery], future: asyncio.Future[None]) -> None:
        waiter = Waiter(future)
        lost = self.closed
        touched: set[Partition] = set()
        for delivery in deliveries:
            partition = self._assigned.partitions.get(delivery.partition)
            waits = None if partition is None else partition.unacked.settle(delivery.position, waiter)
            if waits is None or partition is None:
                lost = True
            elif waits:
                waiter.left += 1
                touched.add(partition)
        if lost:
            waiter.fail(partition_lost())
        elif not waiter.left:
            future.set_result(None)
        for partition in touched:
            partition.acks.settled()

    def _take(self, limit: int, max_bytes: int) -> list[Delivery]:
        found: list[Delivery] = []
        fetchable = self._fetchable
        while fetchable and len(found) < limit:
            partition = next(iter(fetchable))
            size = partition.unacked.next_size
            if size is None:
                del fetchable[partition]
                continue
            if found and size > max_bytes:
                break
            del fetchable[partition]
            fetchable[partition] = None  # behind the others
            delivery = partition.unacked.take()
            max_bytes -= size
            found.append(delivery)
        return found

    def _answer(self) -> None:
        self._answering = False
        pending = self._pending
        if pending is None:
            return
        if pending.done():
            self._pending = None
        elif found := self._take(*self._requested):
            self._pending = None
            pending.set_result(found)


def _closed() -> BackendUnavailable:
    return BackendUnavailable("The subscription is closed.")
