"""Publishes every record with one producer, which is replaced when it breaks."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final, Protocol

from adapters.base import Stored
from adapters.kafka.options import Options
from adapters.kafka.outcomes import is_topic_removed
from adapters.kafka.record import Outgoing
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, OutcomeUnknown


class Producer(Protocol):
    """Idempotent, and sends in batches; a record is stored once all replicas in sync have it."""

    async def start(self) -> None:
        """Connect.

        Raises `BackendUnavailable` with what the broker or the network said, `CannotStart` if a retry cannot help.
        """
        ...

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record; the future says where.

        The order of calls is kept within a partition. The future raises `NotStored`, `Rejected` or `OutcomeUnknown`;
        of the first `outcomes.topic_removed`, where the topic or partition is not there any more.
        The topic is one that `partitions` has just returned, so the library need not wait for its metadata.
        """
        ...

    async def partitions(self, topic: str) -> int | None:
        """Number of partitions, asked of the cluster; None: there is no such topic.

        Raises `BackendUnavailable`, or `Refused` where the topic may not be described.
        """
        ...

    @property
    def broken(self) -> bool:
        """Whether the library said that it will never send again: it has to be replaced."""
        ...

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms, and close every thread and socket. Idempotent."""
        ...


def producer_of(options: Options) -> Producer:
    """Return a producer that is not started yet: on librdkafka with `client=confluent`, else on kafka-python.

    Raises `CannotStart` if librdkafka is not installed.
    """
    if options.client != "confluent":
        from adapters.kafka.produce.kafka_python import KafkaPythonProducer  # noqa: PLC0415

        return KafkaPythonProducer(options)
    try:
        from adapters.kafka.produce.librdkafka import LibrdkafkaProducer  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise CannotStart(
            "client=confluent needs confluent-kafka: pip install 'openmessaging-bridge[kafka,fast]'."
        ) from missing
    return LibrdkafkaProducer(options)


_FLUSH: Final = 10_000
"""Milliseconds in which what was accepted is sent when the bridge stops; the engine has waited for most before."""
_WELL_AFTER: Final = 5.0
"""Seconds without a failure after which a stored message ends an outage: one topic may fail while others work."""

_log = logging.getLogger("bridge.kafka")


class Publisher:
    """Sends every record of the bridge, those of a partition in the order of the calls.

    There is one producer for all values of `durability` and `qos`: two would overtake each other.
    """

    def __init__(self, options: Options, make: Callable[[Options], Producer] = producer_of) -> None:
        self._supervisor = ProducerSupervisor(partial(make, options))
        self._failed_at: float | None = None
        """When a record failed last, in seconds of the loop's clock; None: there is no outage."""
        self.on_removed: Callable[[str], None] = lambda _topic: None
        """Called with the name of a topic that has turned out not to be there."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` or `CannotStart`."""
        await self._supervisor.start()

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store a record. The future raises as `Adapter.publish` says."""
        sent = self._supervisor.send(record)
        sent.add_done_callback(partial(self._look, record.topic))
        return sent

    async def partitions(self, topic: str) -> int | None:
        """Number of partitions, asked of the cluster; None: there is no such topic."""
        return await self._supervisor.running().partitions(topic)

    async def close(self) -> None:
        """Send what is accepted, close every connection. Idempotent."""
        await self._supervisor.close(_FLUSH)

    def _look(self, topic: str, sent: asyncio.Future[Stored]) -> None:
        if sent.cancelled():
            return
        error = sent.exception()
        if is_topic_removed(error):
            self.on_removed(topic)
        elif isinstance(error, (BackendUnavailable, OutcomeUnknown)):
            if self._failed_at is None:
                _log.warning("Kafka does not store messages now: %s", error)
            self._failed_at = asyncio.get_running_loop().time()
        elif self._failed_at is not None and error is None:
            self._look_whether_over(self._failed_at)

    def _look_whether_over(self, failed_at: float) -> None:
        if asyncio.get_running_loop().time() - failed_at > _WELL_AFTER:
            self._failed_at = None
            _log.warning("Kafka stores messages again")


_PAUSE: Final = 1.0
"""Seconds between two attempts to replace a producer."""


class ProducerSupervisor:
    """Sends records in the order they come, whichever producer does it."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._starting: asyncio.Task[Producer] | None = None
        self._waiting: list[tuple[Outgoing, asyncio.Future[Stored]]] = []
        """Those who came while a producer was being started."""
        self._again = 0.0
        self._last_error = "There is no connection to Kafka yet."
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Make the producer and connect it, unless there is one. Raises `BackendUnavailable` or `CannotStart`."""
        if self._producer is None or self._producer.broken:
            await asyncio.shield(self._begin())

    def running(self) -> Producer:
        """Return the producer. Raises `BackendUnavailable` while there is none that works."""
        if self._producer is None or self._producer.broken:
            self._replace()
            raise BackendUnavailable(self._last_error)
        return self._producer

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Send a record, or keep it until the producer that is being started can."""
        producer = self._producer
        if producer is not None and not producer.broken:
            return producer.send(record)
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        if self._replace():
            self._waiting.append((record, future))
        else:
            future.set_exception(BackendUnavailable(self._last_error))
        return future

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms, and close everything. Idempotent."""
        self._closed = True
        self._last_error = "The connection to Kafka is closed."
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
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
        producer = self._make()
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
            self._send_late(record, future)

    def _send_late(self, record: Outgoing, future: asyncio.Future[Stored]) -> None:
        if self._producer is None or self._closed:
            future.set_exception(BackendUnavailable(self._last_error))
            return

        def hand_on(sent: asyncio.Future[Stored]) -> None:
            error = sent.exception()
            if future.done():
                return
            if error is None:
                future.set_result(sent.result())
            else:
                future.set_exception(error)

        self._producer.send(record).add_done_callback(hand_on)
