"""One partition while this bridge holds it: its consumer, its acknowledgements, its note, and any history it has.

A history is a queue that is read before the partition's own one, on the same channel: see `history`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.consume.attempts import AttemptsRecord, AttemptsWriter
from adapters.rabbitmq.consume.consumer import Acks, Consumer, Waiter
from adapters.rabbitmq.consume.unacked import PrefetchWindow, Unacked
from adapters.rabbitmq.group.history import Deduplicator, Verdict
from adapters.rabbitmq.message.mapping import is_marker
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BridgeError, DestinationUnknown, OutcomeUnknown

_READS: Final = 3
"""Attempts to read a note. Then the broker's count is taken: too high is better than a partition that stands still."""
_RETRY: Final = 1.0
"""Seconds after which a note that could not be read is asked for again."""
_log = logging.getLogger("bridge.rabbitmq")


Drained = Callable[[int], Awaitable[None]]
"""Notes that the history of a partition is read. Raises the error tree."""


class Listener(Protocol):
    """The owner of partitions."""

    def arrived(self, partition: "Partition") -> None:
        """Something can be fetched."""

    def broken(self, partition: "Partition", error: BridgeError) -> None:
        """The broker has ended the consumer."""

    def oversized(self, partition: "Partition") -> None:
        """Too many bytes wait to be fetched: the partition needs another channel."""


class Partition:
    """Moves messages between a queue and an `Unacked`."""

    def __init__(  # noqa: PLR0913 - what a partition is made of, in one place (assigned.py)
        self,
        source: Source,
        unacked: Unacked[Waiter],
        link: Link,
        window: PrefetchWindow,
        *,
        attempts_writer: AttemptsWriter | None,
        listener: Listener,
        record_drained: Drained,
    ) -> None:
        """Without a `attempts_writer` there is no note: the queue is not the bridge's own."""
        self._record_drained = record_drained
        self.source = source
        self.unacked = unacked
        self.acks = Acks(unacked, self._on_removed)
        self.seen = 0
        """The newest tag at the last check of how old the oldest one is."""
        self.window = window
        self.leaving = False
        """Whether nothing more may be fetched: the engine has released it."""
        self.earlier_attempts: AttemptsRecord | None = None
        """What this bridge itself noted when it last held the partition and lost the connection."""
        self._link = link
        self._attempts_writer = attempts_writer
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer | None = None
        self._discarding = False
        """Whether too much has come: the rest comes again, on another channel."""
        self._missing = 0
        """Messages that lay in the queue and have not come yet."""
        self._filled: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._deduplicator: Deduplicator | None = None
        self._passing: asyncio.Task[None] | None = None
        """From the history to the own queue, or from both to the own queue alone."""
        self._settled = asyncio.Event()
        """Whether the broker has forgotten something."""
        self._record = self._marker = 0
        """Tags of what ends the history, and what ends the time in which both are read."""
        if attempts_writer is None:
            unacked.set_attempts(None)

    @property
    def has_history(self) -> bool:
        """Whether the history is still there."""
        return self._deduplicator is not None

    async def open(self) -> None:
        """Consume. Raises `DestinationUnknown` if the queue is gone, `Refused` or `BackendUnavailable`."""
        if self.source.history is not None:
            await self._open_history(self.source.history)
        if self._deduplicator is None:
            await self._consume(self.source.queue)

    async def filled(self, patience: float) -> None:
        """Wait until what lay in the queue has come, or another consumer seems to have it."""
        if self._missing > 0:
            self._filled = self._loop.create_future()
            await asyncio.wait((self._filled,), timeout=patience)
            self._filled = None
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=patience)

    def changed(self) -> None:
        """Write down soon how often messages were handed out."""
        if self._attempts_writer is not None:
            self._attempts_writer.changed()

    async def reopen(self) -> None:
        """Consume on another channel: what was handed out stays so. Raises as `open` does."""
        if self._consumer is not None and self._consumer.open:
            await self.acks.quiet()
        await self._close_channel()
        for waiter in self.unacked.channel_closed():
            waiter.fail(OutcomeUnknown("RabbitMQ closed the channel during the acknowledgement."))
        await self._consume(self.source.queue)

    async def close(self) -> None:
        """Release it: write down what is known, and give back what is not settled."""
        await self.acks.quiet()
        if self._attempts_writer is not None:
            await self._attempts_writer.finish()
        await self._close_channel()

    def lost(self) -> None:
        """Release it: the connection is lost, or the queue is gone."""
        self._stop()
        if self._attempts_writer is not None:
            self._attempts_writer.stop()

    async def abandon(self) -> None:
        """Release it, and write nothing down: this bridge goes on with it in a moment."""
        if self._attempts_writer is not None:
            self._attempts_writer.stop()
        await self._close_channel()

    async def _consume(self, queue: str) -> None:
        prefetch = self.window.beside(self.unacked.fetched)
        consumer = Consumer(await self._link.channel(), prefetch, self._on_ended, shared=self.source.shared)
        self._consumer = consumer
        self._discarding = False
        self.seen = 0
        self._missing = prefetch  # until the count is known
        try:
            ready = await consumer.consume(queue, self._arrived)
        except BaseException:
            self._consumer = None
            await consumer.close()
            raise
        self._missing += min(ready, prefetch) - prefetch
        self.acks.begin(consumer)

    async def _close_channel(self) -> None:
        consumer = self._consumer
        self._stop()
        if consumer is not None:
            await consumer.close()

    def _stop(self) -> None:
        self._consumer = None
        self.acks.begin(None)
        for task in (self._reading, self._passing):
            if task is not None:
                task.cancel()
        self._reading = self._passing = None

    def _arrived(self, arrival: Arrival) -> None:
        if self._discarding:
            return
        self._missing -= 1
        if not self._missing and self._filled is not None and not self._filled.done():
            self._filled.set_result(None)
        unacked = self.unacked
        if self._deduplicator is not None:
            self._classify(self._deduplicator, arrival)
        elif is_marker(arrival.properties):
            unacked.discard(arrival.tag)
        else:
            self._accept(arrival)
        if unacked.to_ack:
            self.acks.settled()
        if unacked.attempts_missing:
            if self._reading is None and self._attempts_writer is not None:
                self._reading = self._loop.create_task(self._read(self._attempts_writer))
        elif unacked.waiting:
            self._listener.arrived(self)

    def _accept(self, arrival: Arrival) -> None:
        self.unacked.arrived(arrival)
        removed, self.unacked.removed = self.unacked.removed, []
        for waiter in removed:
            waiter.done()
        if self.window.arrived(len(arrival.body), self.unacked.bytes):
            self._discarding = True
            self._listener.oversized(self)

    async def _read(self, attempts_writer: AttemptsWriter) -> None:
        """Read what the previous holder of the partition has written down; nothing is handed out before that."""
        note = None
        for _ in range(_READS):
            try:
                note = await attempts_writer.read()
            except BridgeError as error:
                _log.warning("%s: delivery counts cannot be read: %s", self.source.queue, error)
                await asyncio.sleep(_RETRY)
            else:
                break
        mine = self.earlier_attempts
        if mine is not None and (note is None or note.by == mine.by):
            note = mine  # it was this bridge, and it knew more when it had to leave than it had written down
        self.unacked.set_attempts(None if note is None else note.attempts)
        self._reading = None
        self._listener.arrived(self)

    def _on_ended(self, error: BridgeError) -> None:
        self._listener.broken(self, error)

    def _on_removed(self) -> None:
        self._settled.set()

    # The history:

    async def _open_history(self, queue: str) -> None:
        self._deduplicator, self.unacked.deduplicating = Deduplicator(), True
        try:
            await self._consume(queue)
        except DestinationUnknown:
            self._history_is_read()  # by the previous holder of the partition

    def _history_is_read(self) -> None:
        self._deduplicator, self.unacked.deduplicating = None, False
        self.source = self.source._replace(history=None)

    def _classify(self, deduplicator: Deduplicator, arrival: Arrival) -> None:
        verdict = deduplicator.arrived(arrival)
        if verdict is Verdict.KEEP:
            self.unacked.arrived(arrival, backfilled=not self._record)
        elif verdict is Verdict.DROP:
            self.unacked.discard(arrival.tag)
        elif verdict is Verdict.NEXT:
            self.unacked.hold(arrival.tag)
            self._record = arrival.tag
            self._passing = self._loop.create_task(self._pass(self._both))
        else:
            self.unacked.hold(arrival.tag)
            self._marker = arrival.tag
            self._passing = self._loop.create_task(self._pass(self._own))

    async def _pass(self, step: Callable[[Consumer, str], Awaitable[None]]) -> None:
        consumer, history = self._consumer, self.source.history
        if consumer is not None and history is not None:
            try:
                await step(consumer, history)
            except BridgeError as error:
                self._listener.broken(self, error)

    async def _both(self, consumer: Consumer, _history: str) -> None:
        """Read the own queue, too: what it has in common with the history is dropped."""
        await consumer.consume(self.source.queue, self._arrived)

    async def _drained(self) -> None:
        """Have it noted first: a queue that was deleted just before its broker was killed may come back as a name.

        Then to look for it succeeds, and to consume it ends the connection (3.10.8).
        """
        while True:
            try:
                await self._record_drained(self.source.partition)
            except BridgeError as error:
                _log.info("%s: that its log was read is not recorded: %s", self.source.queue, error)
                await asyncio.sleep(_RETRY)
            else:
                return

    async def _own(self, consumer: Consumer, history: str) -> None:
        """Read the own queue alone, once everything of the history is settled."""
        while self.unacked.backfilled:
            self._settled.clear()
            await self._settled.wait()
        await self._drained()
        await consumer.delete(history)
        self._history_is_read()
        self.unacked.discard(self._record)
        self.unacked.discard(self._marker)
        self.acks.settled()
