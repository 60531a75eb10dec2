"""One partition that this bridge consumes: its consumer, acknowledgements, attempts, and its history if it has one.

A history is a queue that is consumed before the partition's own queue, on the same channel: see `group.groups`. It is
deleted once all its messages are settled. If this bridge ends before, the next one begins with the rest of the history.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.consume.attempts import AttemptsRecord, AttemptsWriter
from adapters.rabbitmq.consume.consumer import Acks, Consumer, RequestingConsumer, Waiter
from adapters.rabbitmq.consume.partition_state import Unacked
from adapters.rabbitmq.consume.prefetch_window import PREFETCH_MAX, PrefetchWindow
from adapters.rabbitmq.consume.repeated_arrivals import RepeatedArrivals
from adapters.rabbitmq.group.queues_and_history import END
from adapters.rabbitmq.mapping import is_marker
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BridgeError, DestinationUnknown, OutcomeUnknown

_READS: Final = 3
"""Attempts to read the attempts record. Then the broker's count is used, which may be too high."""
_RETRY: Final = 1.0
"""Seconds between two of them."""
_QUIET_LOOKS: Final = 3
"""How often, one `_RETRY` apart, a queue must be empty until what it did not deliver again is taken for removed: it may
not have taken back the messages of the last channel yet."""
_SEARCH: Final = 2.0
"""Seconds in which messages that are ready arrive, also on a busy machine; another consumer may get them."""
_log = logging.getLogger("bridge.rabbitmq")

RecordDrained = Callable[[int], Awaitable[None]]
"""Enters in the catalogue that the history of a partition has been consumed. Raises a `BridgeError`."""
Arrived = Callable[["Partition"], None]
"""Called when a message can be fetched."""
Repair = Callable[["Partition", BridgeError | None], None]
"""Called when the partition needs another channel: with an error if the broker has ended the consumer, without if too
many bytes wait to be fetched."""


class Partition:
    """Moves messages from a queue to an `Unacked`, and acknowledgements back."""

    def __init__(  # noqa: PLR0913 - the parts of a partition, put together in one place (assigned.py)
        self,
        source: Source,
        unacked: Unacked[Waiter],
        link: Link,
        window: PrefetchWindow,
        repeated: RepeatedArrivals,
        *,
        attempts_writer: AttemptsWriter,
        arrived: Arrived,
        repair: Repair,
        record_drained: RecordDrained,
        wanted: Callable[[], int],
    ) -> None:
        """`wanted` returns how many messages are waited for; no more are requested of a queue of others."""
        self.source = source
        self.unacked = unacked
        self.attempts_writer = attempts_writer
        self._removed = asyncio.Event()
        """Whether the broker has removed acknowledged messages."""
        self.acks = Acks(unacked, self._removed.set)
        self.window = window
        self._repeated = repeated
        self.revoked = False
        """Whether the engine has released it: nothing more is fetched."""
        self.earlier_attempts: AttemptsRecord | None = None
        """What this bridge knew when it lost the connection."""
        self._link = link
        self._on_arrived = arrived
        self._repair = repair
        self._record_drained = record_drained
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer | None = None
        self._prefetch = 0
        """Of the consumer that gets messages now."""
        self._since = 0
        """The newest delivery tag when it began."""
        self._least = 0
        """Least prefetch of the next consumer on another channel."""
        self._widened = False
        """Whether more messages may be unacknowledged than usually."""
        self._replacing: asyncio.Task[None] | None = None
        self._discarding = False
        """Whether too many bytes have arrived: the following messages are delivered again on another channel."""
        self._missing = 0
        """Messages that were in the queue and have not arrived yet."""
        self._filled: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._expecting: asyncio.Task[None] | None = None
        self._end_tag = 0
        """Delivery tag of the mark that ends the history."""
        self._finishing: asyncio.Task[None] | None = None
        """Consumes the partition's own queue, and deletes the history when it is settled."""
        if source.shared:
            unacked.set_attempts(None)

    @property
    def is_full(self) -> bool:
        """Whether RabbitMQ may deliver nothing more before messages are acknowledged."""
        return self._held >= self._prefetch

    @property
    def is_too_wide(self) -> bool:
        """Whether few messages are left of those that more consumers were added for."""
        return self._widened and self._held <= self.window.count // 2

    def widen(self, waiting: int, free_bytes: int) -> None:
        """Have more messages delivered, up to `free_bytes`, if so many of those here wait in the engine."""
        consumer = self._consumer
        if consumer is None or self._replacing is not None or self._reading is not None:
            return
        ends_history = self._end_tag and consumer.queue != self.source.queue
        size = self.unacked.unacknowledged_bytes() // max(self._held, 1)
        prefetch = self.window.more(self._held, waiting, size, free_bytes)
        if prefetch and not ends_history and self._undelivered <= 0:
            self._replacing = self._loop.create_task(self._replace_consumer(consumer, prefetch))

    async def open(self) -> None:
        """Consume. Raises `DestinationUnknown` if the queue does not exist, `Refused` or `BackendUnavailable`."""
        await self._open()

    async def filled(self, seconds: float) -> None:
        """Wait until the messages in the queue have arrived; at most so long, as another consumer may have them."""
        if self._missing > 0:
            self._filled = self._loop.create_future()
            await asyncio.wait((self._filled,), timeout=seconds)
            self._filled = None
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=seconds)

    async def reopen(self) -> None:
        """Consume on another channel: fetched messages stay fetched.

        All unacknowledged messages are delivered again, in their order. Raises as `open` does.
        """
        self._stop_replacing()
        if self._consumer is not None:
            # a quorum queue that takes messages back again before it has delivered all of them changes their order
            keep = self._widened and not self.is_too_wide
            self._least = min(self._held + max(self._undelivered, 0), PREFETCH_MAX) if keep else 0
            if self._consumer.open:
                await self.acks.hold()
        await self._close_channel()
        for waiter in self.unacked.channel_closed():
            waiter.fail(OutcomeUnknown("RabbitMQ closed the channel during the acknowledgement."))
        self._end_tag = 0
        await self._open()
        if self.unacked.expected:
            self._expecting = self._loop.create_task(self._complete_expected())

    async def close(self) -> None:
        """Release it: record the attempts, and return unsettled messages to the queue."""
        self._stop_replacing()
        await self.acks.finish()
        await self.attempts_writer.finish()
        await self._close_channel()

    def lost(self) -> None:
        """Release it after the connection is lost."""
        self._stop()
        self.attempts_writer.stop()

    async def abandon(self) -> None:
        """Release it without a record: this bridge opens it again in a moment."""
        self.attempts_writer.stop()
        await self._close_channel()

    @property
    def _held(self) -> int:
        """Number of messages that are here and not acknowledged."""
        return len(self.unacked.unacknowledged)

    @property
    def _undelivered(self) -> int:
        """How many messages more RabbitMQ may deliver to the consumer now."""
        return self._prefetch - sum(tag > self._since for tag in self.unacked.unacknowledged)

    async def _replace_consumer(self, consumer: Consumer, prefetch: int) -> None:
        """Consume with another consumer on the same channel, beside the messages that are here."""
        try:
            # acknowledgements are held back: their confirmation is by a consumer, which would become the active one
            if await self.acks.hold() and await self.attempts_writer.record_window(self._held + prefetch):
                self._since, self._prefetch = next(reversed(self.unacked.unacknowledged), 0), prefetch
                self._widened = True
                await consumer.replace(prefetch)
        except BridgeError as error:
            self._repair(self, error)
        finally:
            if self._consumer is consumer:
                self.acks.resume()
        self._replacing = None

    def _stop_replacing(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()
            self._replacing = None

    async def _open(self) -> None:
        if self.source.history is not None:
            self.unacked.two_queues = True
            try:
                await self._consume(self.source.history)
            except DestinationUnknown:  # another bridge has consumed it
                self._history_is_consumed()
        if self.source.history is None:
            await self._consume(self.source.queue)

    async def _consume(self, queue: str) -> None:
        channel, ended = await self._link.channel(), partial(self._repair, self)
        if self.source.shared:
            await self._request(RequestingConsumer(channel, self._arrived, ended, self._requested, queue))
            return
        prefetch = self._prefetch = max(self.window.for_consumer(len(self.unacked.fetched)), self._least)
        self._since, self._widened = 0, self._least > 0
        if not self._widened:
            self.attempts_writer.window = 0
        consumer = Consumer(channel, prefetch, self._arrived, ended)
        self._consumer = consumer
        self._discarding = False
        self._missing = prefetch  # until the count is known
        try:
            ready = await consumer.consume(queue)
        except BaseException:
            self._consumer = None
            await consumer.close()
            raise
        self._missing += min(ready, prefetch) - prefetch
        self.acks.begin(consumer)

    async def _request(self, consumer: RequestingConsumer) -> None:
        """Request what is wanted, of a queue that exists, on a new channel."""
        try:
            await consumer.ready()
        except BaseException:
            await consumer.close()
            raise
        self._consumer = consumer
        self.acks.begin(consumer)
        consumer.request()

    def _requested(self) -> int:
        """Return how many messages to request now: what is waited for."""
        return self.window.for_request(self._wanted() - len(self.unacked.waiting))

    def request(self) -> None:
        """Request of a queue of others what is wanted now."""
        if isinstance(self._consumer, RequestingConsumer):
            self._consumer.request()

    async def search(self) -> None:
        """Wait until the messages that are ready in a queue of others have arrived, if they were requested."""
        consumer = self._consumer
        with suppress(BridgeError):
            if isinstance(consumer, RequestingConsumer) and await consumer.ready():
                await asyncio.sleep(_SEARCH)  # the caller does not wait any longer than until they have

    async def _close_channel(self) -> None:
        consumer = self._consumer
        self._stop()
        if consumer is not None:
            await consumer.close()

    def _stop(self) -> None:
        self._consumer = None
        self.acks.begin(None)
        for task in (self._reading, self._finishing, self._expecting):
            if task is not None:
                task.cancel()
        self._reading = self._finishing = self._expecting = None
        self._stop_replacing()

    def _arrived(self, arrival: Arrival) -> None:
        if self._discarding:
            return
        self._missing -= 1
        if not self._missing and self._filled is not None and not self._filled.done():
            self._filled.set_result(None)
        unacked = self.unacked
        if not is_marker(arrival.properties):
            if self._repeated.repeats(arrival):
                unacked.discard(arrival.tag)
            else:
                self._accept(arrival)
        elif self.source.history is not None and not self._end_tag and is_marker(arrival.properties, END):
            self._end_tag = arrival.tag
            unacked.hold_end(arrival.tag)
            self._complete_removed()
            self._finishing = self._loop.create_task(self._finish_history(self.source.history))
        else:
            unacked.discard(arrival.tag)
        if unacked.to_ack:
            self.acks.settled()
        if unacked.attempts_missing:
            if self._reading is None:
                self._reading = self._loop.create_task(self._read_attempts())
        elif unacked.waiting:
            self._on_arrived(self)

    def _accept(self, arrival: Arrival) -> None:
        backfilled = self.source.history is not None and not self._end_tag
        size = self.unacked.arrived(arrival, backfilled=backfilled)
        self._complete_removed()
        shrinks = self.window.arrived(size, self.unacked.bytes, widened=self._widened)
        if shrinks and not self.source.shared:  # a message that returns to a queue of others counts as delivered
            self._discarding = True
            self._repair(self, None)

    def _complete_removed(self) -> None:
        removed, self.unacked.removed = self.unacked.removed, []
        for waiter in removed:
            waiter.done()

    async def _complete_expected(self) -> None:
        """Complete what is not delivered again: the broker has removed it, and its confirmation was lost.

        The next new message shows it as well. But none may come.
        """
        looks, unacked, consumer = 0, self.unacked, self._consumer
        with suppress(BridgeError):  # the channel has ended: another one begins
            while consumer is not None and unacked.expected and looks < _QUIET_LOOKS:
                expected = unacked.expected
                await asyncio.sleep(_RETRY)
                empty = consumer.queue == self.source.queue and not await consumer.ready()
                looks = looks + 1 if empty and unacked.expected == expected else 0
            unacked.expect_no_more()
            self._complete_removed()

    async def _read_attempts(self) -> None:
        """Read the record of the bridge that consumed the partition before; nothing is fetched until then."""
        record = None
        for _ in range(_READS):
            try:
                record = await self.attempts_writer.read()
            except BridgeError as error:
                _log.warning("%s: delivery counts cannot be read: %s", self.source.queue, error)
                await asyncio.sleep(_RETRY)
            else:
                break
        mine = self.earlier_attempts
        if mine is not None and (record is None or record.by == mine.by):
            record = mine  # this bridge wrote it, and knew more than that when it lost the connection
        self.unacked.set_attempts(None if record is None else record.attempts)
        self._reading = None
        if record is not None and record.window > self._prefetch and self._consumer is not None:
            # the earlier bridge had more messages: all of them must be here before this bridge ends
            self.attempts_writer.window = window = min(record.window, PREFETCH_MAX)
            self._replacing = self._loop.create_task(self._replace_consumer(self._consumer, window))
        self._on_arrived(self)

    @property
    def has_history(self) -> bool:
        """Whether the history still exists."""
        return self.source.history is not None

    def _history_is_consumed(self) -> None:
        self.unacked.two_queues = False
        self.source = self.source._replace(history=None)

    async def _finish_history(self, history: str) -> None:
        """Consume the partition's own queue as well, and delete the history once all its messages are settled."""
        consumer = self._consumer
        if consumer is None:
            return
        try:
            if self._replacing is not None:
                await asyncio.wait((self._replacing,))
            self._since = self._end_tag
            await consumer.consume(self.source.queue)
            while self.unacked.backfilled:
                self._removed.clear()
                await self._removed.wait()
            await self._enter_drained()
            await consumer.delete(history)
        except BridgeError as error:
            self._repair(self, error)
            return
        self._history_is_consumed()
        self.unacked.discard(self._end_tag)
        self.acks.settled()

    async def _enter_drained(self) -> None:
        """Enter it in the catalogue before the queue is deleted.

        A queue that was deleted just before its broker was killed may come back as a mere name. Then declaring it
        passively succeeds, and consuming it ends the connection (3.10.8).
        """
        while True:
            try:
                return await self._record_drained(self.source.partition)
            except BridgeError as error:
                _log.info("%s: the end of its history is not in the catalogue: %s", self.source.queue, error)
                await asyncio.sleep(_RETRY)
