"""Publishes every record with one producer, which is replaced when it breaks."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final, Protocol

from adapters.base import Stored
from adapters.kafka.errors import TopicRemoved
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import Options
from adapters.kafka.thread_to_loop import cancel, complete, copy
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown, needs_extra


class Producer(Protocol):
    """Idempotent, and sends in batches; a record is stored once all replicas in sync have it."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` with the reason, or `CannotStart` if a retry cannot help."""

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record; the future says where.

        The order of calls is kept within a partition. The future raises `NotStored`, `Rejected` or `OutcomeUnknown`;
        of the first `TopicRemoved`, if the topic or partition does not exist any more.
        The topic is one that `partitions` has just returned, so the library need not wait for its metadata.
        """

    async def partitions(self, topic: str) -> int | None:
        """Ask the cluster for the number of partitions; None: no such topic. Raises `BackendUnavailable`, `Refused`."""

    @property
    def broken(self) -> bool:
        """Whether it will never send again and has to be replaced."""

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms, and close every thread and socket. Idempotent."""


def producer_of(options: Options) -> Producer:
    """Return a producer that is not started yet. Raises `CannotStart` if its library is not installed."""
    if options.client != "confluent":
        from adapters.kafka.produce.kafka_python_producer import KafkaPythonProducer  # noqa: PLC0415

        return KafkaPythonProducer(options)
    try:
        from adapters.kafka.produce.librdkafka_producer import LibrdkafkaProducer  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise needs_extra("client=confluent", "confluent-kafka", "kafka,fast") from missing
    return LibrdkafkaProducer(options)


_FLUSH: Final = 10_000
"""Milliseconds in which what was accepted is sent when the bridge stops; the engine has waited for most before."""
_WELL_AFTER: Final = 5.0
"""Seconds without a failure after which a stored message ends an outage: one topic may fail while others work."""
_PAUSE: Final = 1.0
"""Seconds between two attempts to replace a producer."""

_log = logging.getLogger("bridge.kafka")


class Publisher:
    """Sends every record of the bridge, those of a partition in the order of the calls.

    There is one producer for all values of `durability` and `qos`: two would overtake each other.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer: Producer | None = None
        self._starting: asyncio.Task[Producer] | None = None
        self._waiting: list[tuple[Outgoing, asyncio.Future[Stored]]] = []
        """Records that came while a producer was being started."""
        self._again = 0.0
        self._last_error = "There is no connection to Kafka yet."
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False
        self._failed_at: float | None = None
        """When a record failed last, in seconds of the monotonic clock; None: there is no outage."""
        self.on_removed: Callable[[str], None] = lambda _topic: None
        """Called with the name of a topic that turns out not to exist any more."""

    async def start(self) -> None:
        """Make the producer and connect it, unless there is one. Raises `BackendUnavailable` or `CannotStart`."""
        if self._producer is None or self._producer.broken:
            await asyncio.shield(self._begin())

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store a record, or keep it until the producer that is being started can. Raises as `Adapter.publish` says."""
        producer = self._producer
        if producer is not None and not producer.broken:
            sent = producer.send(record)
        else:
            sent = asyncio.get_running_loop().create_future()
            if self._replace():
                self._waiting.append((record, sent))
            else:
                sent.set_exception(BackendUnavailable(self._last_error))
        sent.add_done_callback(partial(self._look, record.topic))
        return sent

    async def partitions(self, topic: str) -> int | None:
        """See `Producer`."""
        if self._producer is None or self._producer.broken:
            self._replace()
            raise BackendUnavailable(self._last_error)
        return await self._producer.partitions(topic)

    async def close(self, patience: int = _FLUSH) -> None:
        """Send what is accepted for at most `patience` ms, and close everything. Idempotent."""
        self._closed = True
        self._last_error = "The connection to Kafka is closed."
        if self._starting is not None:
            await cancel([self._starting])
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(patience)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _replace(self) -> bool:
        """Begin to make another producer, unless the last attempt was only just; whether one is being made."""
        if self._starting is None and not self._closed and monotonic() >= self._again:
            self._begin()
        return self._starting is not None

    def _begin(self) -> asyncio.Task[Producer]:
        if self._starting is None:
            self._again = monotonic() + _PAUSE
            broken, self._producer = self._producer, None
            if broken is not None:
                leaving = asyncio.create_task(broken.close(0))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
            self._starting = asyncio.create_task(self._connect())
            self._starting.add_done_callback(self._begun)
        return self._starting

    async def _connect(self) -> Producer:
        producer = producer_of(self._options)
        await producer.start()
        return producer

    def _begun(self, task: asyncio.Task[Producer]) -> None:
        self._starting = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self._producer = task.result()
            else:
                self._last_error = error.detail if isinstance(error, BridgeError) else str(error)
        waiting, self._waiting = self._waiting, []
        for record, future in waiting:
            if self._producer is None or self._closed:
                complete(future, None, BackendUnavailable(self._last_error))
            else:
                self._producer.send(record).add_done_callback(partial(copy, future))

    def _look(self, topic: str, sent: asyncio.Future[Stored]) -> None:
        """Log the begin and the end of an outage, and report a topic that does not exist any more."""
        if sent.cancelled():
            return
        error = sent.exception()
        if error is None:
            if self._failed_at is not None and monotonic() - self._failed_at > _WELL_AFTER:
                self._failed_at = None
                _log.warning("Kafka stores messages again")
        elif isinstance(error, TopicRemoved):
            self.on_removed(topic)
        elif isinstance(error, (BackendUnavailable, OutcomeUnknown)):
            if self._failed_at is None:
                _log.warning("Kafka does not store messages now: %s", error)
            self._failed_at = monotonic()
