"""The produce side on kafka-python: records go into its accumulator, its sender thread does the rest."""

import asyncio
import contextlib
from functools import partial
from typing import Final

from kafka import errors as kafka
from kafka.protocol.metadata import MetadataRequest

from adapters.base import Stored
from adapters.kafka import errors
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.produce.batch_sender import VERSION, BatchSender
from adapters.kafka.thread_to_loop import ThreadToLoop, complete, until_ended
from bridge.errors import BackendUnavailable, BodyTooLarge, CannotStart

_RECORD_MAX: Final = 64 << 20
"""Bytes. A request above `socket.request.max.bytes` (100 MiB) makes a broker end the connection silently."""
_PAUSE: Final = 0.1
"""Seconds between two tries to ask, while a connection is made."""
_LINGER: Final = 0.002
"""Seconds in which records gather while no request is unanswered; else they gather until it is answered."""
_CLOSED: Final = "The connection to Kafka is closed."


class KafkaPythonProducer:
    """One thread and a connection to each broker; see `Producer`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._waking = False
        """Whether `_wake` is to be called."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` or `CannotStart`; no thread or socket is left then."""
        self._loop = asyncio.get_running_loop()
        self._to_loop = ThreadToLoop(self._loop)
        started: asyncio.Future[None] = self._loop.create_future()
        self._sender = sender = BatchSender(self._options, self._to_loop.put, partial(self._notified, started))
        self._client, self._accumulator = sender.client, sender.accumulator
        sender.start()
        try:
            await started
            if (version := self._client.connections.broker_version) < VERSION:
                raise CannotStart(  # noqa: TRY301 - closed as for any other
                    f"Kafka {VERSION[0]}.{VERSION[1]} or newer is needed; these brokers are {version}."
                )
        except BaseException:
            sender.force_close()
            with contextlib.suppress(RuntimeError):  # it has ended
                self._client.connections.call_soon(self._client.connections.close)
            raise

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record. Never waits, and is not in need of the topic's metadata."""
        future: asyncio.Future[Stored] = self._loop.create_future()
        if len(record.value or b"") > _RECORD_MAX:
            future.set_exception(BodyTooLarge(f"{record.topic}: a message for Kafka has at most {_RECORD_MAX} bytes."))
            return future
        if self._sender.ended:
            future.set_exception(BackendUnavailable(_CLOSED))
            return future
        self._sender.add_topic(record.topic)
        try:
            if self._accumulator.add(record, future) and not self._waking:
                self._waking = True
                self._loop.call_later(_LINGER, self._wake)
        except kafka.IllegalStateError:  # closed since
            future.set_exception(BackendUnavailable(_CLOSED))
        return future

    async def partitions(self, topic: str) -> int | None:
        """Ask the cluster, on the connections of the sender thread; nothing is created by asking."""
        if self._sender.ended:
            raise BackendUnavailable(_CLOSED)
        future: asyncio.Future[int | None] = self._loop.create_future()
        try:
            question = self._client.connections.call_soon(lambda: self._describe(topic))
        except RuntimeError:  # closed since
            raise BackendUnavailable(_CLOSED) from None
        question.add_callback(lambda value: self._to_loop.put(partial(complete, future, value)))
        question.add_errback(
            lambda error: self._to_loop.put(partial(complete, future, None, errors.of_exception(error, topic)))
        )
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT / 1000):  # `wait_for` of 3.11 may lose a cancellation
                return await future
        except TimeoutError:
            raise BackendUnavailable(f"{topic}: Kafka has not answered for {REQUEST_TIMEOUT} ms.") from None

    @property
    def broken(self) -> bool:
        """Whether the sender thread has ended without being closed."""
        return self._sender.ended

    async def close(self, patience: int) -> None:
        """Send accepted records for at most `patience` ms; then each fails, as not stored or as unknown."""
        sender = self._sender
        sender.initiate_close()
        try:
            async with asyncio.timeout(patience / 1000):
                await until_ended(sender)
        except TimeoutError:
            sender.force_close()
            await until_ended(sender)
        finally:
            sender.force_close()
        self._to_loop.drain()

    # On the loop

    def _wake(self) -> None:
        """Have the sender look for records, unless it does so soon."""
        self._waking = False
        if not self._sender.unanswered:
            self._sender.wakeup()

    # On the sender thread

    def _notified(self, started: "asyncio.Future[None]", error: BaseException | None) -> None:
        if error is not None:
            error = errors.no_connection(self._options, self._client.connections.failure)
        self._to_loop.answer(started, error)

    async def _describe(self, topic: str) -> int | None:
        cluster, connections = self._client.cluster, self._client.connections
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        for tries_left in (2, 1, 0):
            try:
                response = await connections.send(request)
                break
            except (kafka.KafkaConnectionError, kafka.NodeNotReadyError):
                if not tries_left:
                    raise
                await connections._net.sleep(_PAUSE)  # noqa: SLF001 - the loop of these very coroutines
        [found] = response.topics
        if found.error_code == errors.UNKNOWN_TOPIC:
            return None
        if found.error_code:
            raise kafka.for_code(found.error_code)
        if topic not in cluster.topics():
            await cluster.add_topic(topic)
        return len(found.partitions)
