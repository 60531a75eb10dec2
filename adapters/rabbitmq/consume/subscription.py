"""One group's view of one destination, on the partitions that are this bridge's share for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from adapters.amqp.link import Link
from adapters.base import Delivery, Outcome, Revoked
from adapters.rabbitmq.consume.assigned import AssignedPartitions, Changed, Dependencies, Sharing, partition_lost
from adapters.rabbitmq.consume.attempts import AttemptsStore
from adapters.rabbitmq.consume.consumer import Waiter
from adapters.rabbitmq.consume.partition import Drained, Partition
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendUnavailable, BridgeError

EVERY: Final = 5.0
"""Seconds between two counts. One queue costs a round trip of 0.2 ms."""
_SHARE: Final = 20
"""A group of a thousand queues is counted at most a twentieth of the time."""
_WANTED: Final = 120.0
"""Seconds for which the count goes on after it was last read: two intervals of a slow scraper."""


class ReadyCount:
    """How many messages lie in the queues of a subscription: the broker is asked while the count is read."""

    def __init__(self, link: Link, queues: Callable[[], Collection[str]]) -> None:
        self._link = link
        self._queues = queues
        self._latest: int | None = None
        self._read = 0.0
        self._counting: asyncio.Task[None] | None = None

    def latest(self) -> int | None:
        """Return the count, which is up to some seconds old; None: not known yet, or the broker does not tell."""
        self._read = time.monotonic()
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count())
        return self._latest

    def stop(self) -> None:
        """Count no more."""
        if self._counting is not None:
            self._counting.cancel()

    async def _count(self) -> None:
        try:
            while time.monotonic() - self._read < _WANTED:
                begun = time.monotonic()
                try:
                    self._latest = await self._ask()
                except BridgeError:  # a queue is gone, or the connection
                    self._latest = None
                await asyncio.sleep(max(EVERY, _SHARE * (time.monotonic() - begun)))
        finally:
            self._latest = self._counting = None

    async def _ask(self) -> int:
        channel = await self._link.channel()  # its own: the broker closes it if a queue is not there
        try:
            return sum(
                [
                    int((await channel.ask(queue, "queue_declare", queue=queue, passive=True)).message_count)
                    for queue in self._queues()
                ]
            )
        finally:
            await channel.close()


REFRESH: Final = 300.0
"""Seconds: what is delivered and not acknowledged for so long, or up to twice as long, comes on a new channel. RabbitMQ
closes channels after half an hour (`consumer_timeout`)."""

StoreDeferred = Callable[[Delivery, Source, int], Awaitable[object]]


class RabbitMQSubscription:
    """Fetches from the queues of its partitions, and acknowledges what the engine settles."""

    def __init__(  # noqa: PLR0913 - the collaborators, in one place (adapter.py)
        self,
        destination: str,
        make_sources: Callable[[], Awaitable[Sequence[Source]]],
        revoked: Revoked,
        *,
        consuming: Link,
        publisher: Publisher,
        make_membership: Callable[[int, Changed], Sharing],
        record_drained: Drained,
        prefetch: int,
        store_deferred: StoreDeferred,
        refresh: float = REFRESH,
    ) -> None:
        """`make_sources` declares what is missing of the group; `make_membership` is given their number.

        `store_deferred` stores a delivery once more, to come again to the same queue, ms since 1970 from then on.
        """
        self.closed = False
        notes = AttemptsStore(consuming, publisher)
        self._assigned = AssignedPartitions(
            destination,
            Dependencies(make_sources, make_membership, record_drained, consuming, notes, prefetch, refresh),
            self,
        )
        self._ready = ReadyCount(consuming, self._queues)
        self._revoked = revoked
        self._store_deferred = store_deferred
        self._loop = asyncio.get_running_loop()
        self._fetchable: dict[Partition, None] = {}
        """Partitions with something to fetch, in the order in which they are served."""
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._requested = (1, 0)
        self._answering = False

    async def join(self) -> None:
        """Consume this bridge's share; what lies in its queues has come when this returns.

        Raises `BackendUnavailable`, `DestinationUnknown` or `Refused`; nothing is left to close then.
        """
        try:
            await self._assigned.join()
        except BaseException:
            await self.close()
            raise

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return what is at hand, else a future that waits and raises `BackendUnavailable` in trouble, once closed."""
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
        return future

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome: what is settled the broker has written down, and removed, when the future is done.

        The future raises `BackendUnavailable` where the partition is not this bridge's any more, and `OutcomeUnknown`
        where it went, or the channel was closed, while the acknowledgement was on its way.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if outcome is Outcome.SETTLED:
            self._settle(deliveries, future)
            return future
        for delivery in deliveries:
            partition = self._assigned.partitions.get(delivery.partition)
            if partition is not None and partition.unacked.attempt(delivery.position, delivery.attempts):
                partition.changed()
        future.set_result(None)
        return future

    def defer(self, delivery: Delivery, until: int) -> asyncio.Future[None]:
        """Put a delivery off: a copy waits outside the group, and once that is stored the original is settled."""
        return asyncio.ensure_future(self._defer(delivery, until))

    @property
    def lag(self) -> int | None:
        """See `adapters.base.Lagging`: what the broker counted a moment ago, and what was delivered here."""
        ready = self._ready.latest()
        unacknowledged = sum(partition.unacked.unacknowledged for partition in self._assigned.partitions.values())
        return None if ready is None else ready + unacknowledged

    def gauges(self) -> Mapping[str, int]:
        """What is held here now."""
        held = [partition.unacked for partition in self._assigned.partitions.values()]
        return {
            "held_partitions": len(held),
            "buffered_records": sum(each.waiting for each in held),
            "buffered_bytes": sum(each.bytes for each in held),
        }

    async def close(self) -> None:
        """Leave the group, and give back what is not settled, with a note of how often it was handed out."""
        if not self.closed:
            self.closed = True
            self._ready.stop()
            self.failed(_closed())
            await self._assigned.close()

    # What the holders of partitions report:

    def arrived(self, partition: Partition) -> None:
        """Something can be fetched, perhaps with more that comes in this turn of the loop."""
        if partition.leaving:
            return
        self._fetchable[partition] = None
        if self._pending is not None and not self._answering:
            self._answering = True
            self._loop.call_soon(self._answer)

    def broken(self, partition: Partition, error: BridgeError) -> None:
        """The broker has ended a consumer: because it was slow, or because its queue is gone."""
        self._assigned.broken(partition, error)

    def oversized(self, partition: Partition) -> None:
        """Too many bytes of it wait to be fetched."""
        self._assigned.repair(partition)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Have the engine release them; the next holder needs what it says of attempts."""
        held = {partition.unacked.partition: partition.unacked for partition in partitions}
        for partition in partitions:
            partition.leaving = True
            self._fetchable.pop(partition, None)
        for delivery in self._revoked(list(held)):
            held[delivery.partition].attempt(delivery.position, delivery.attempts)

    def failed(self, error: BridgeError) -> None:
        """Fail the fetch that waits; the engine asks again."""
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_exception(BackendUnavailable(error.detail))
            pending.exception()  # whether a caller waits for it or not

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
        turns = self._fetchable
        while turns and len(found) < limit:
            partition = next(iter(turns))
            size = partition.unacked.next_size
            if size is None:
                del turns[partition]
                continue
            if found and size > max_bytes:
                break
            del turns[partition]
            turns[partition] = None  # behind the others
            delivery = partition.unacked.take()
            max_bytes -= len(delivery.message.body)
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
