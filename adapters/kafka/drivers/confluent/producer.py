"""The produce side on librdkafka: no thread of ours, its reports are fetched by a timer of the event loop."""

import asyncio
import logging
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from adapters.base import Stored
from adapters.kafka import outcomes
from adapters.kafka.drivers.base import Acks
from adapters.kafka.drivers.confluent import errors
from adapters.kafka.drivers.confluent.security import Settings, check, settings_of
from adapters.kafka.options import DELIVERY_TIMEOUT, REQUEST_TIMEOUT, Options
from adapters.kafka.record import Outgoing
from bridge.errors import BackendUnavailable, TooManyInFlight

_log = logging.getLogger(__name__)

_BUSY: Final = 0.001
"""Seconds between two looks for reports while there are any to come. With a thread that waits for them it took 24 us of
CPU per message and 41,600 a second came through; so 13 us and 52,300."""
_IDLE: Final = 1.0
"""While nothing is in flight there are only librdkafka's errors to hear of."""
_START: Final = 4.0
_LOOK: Final = 0.01
_UNKNOWN: Final = 5_000
"""Milliseconds that a topic may be unknown before the records for it fail: it may have been made a moment ago."""


class ConfluentProducer:
    """See `drivers.base.Producer`."""

    def __init__(self, options: Options, acks: Acks) -> None:
        self._what = f"Kafka at {','.join(options.servers)}"
        self._settings = settings_of(options) | _settings(options, acks) | {"error_cb": self._failed}
        self._security = options.security
        self._open = False
        self._broken = False
        self._all_down = False
        self._reason = "no answer"
        self._outages = errors.Outages()
        self._asked: set[asyncio.Future[int | None]] = set()

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` or `CannotStart`; no thread or socket is left then."""
        self._loop = asyncio.get_running_loop()
        # In a thread: with OAUTHBEARER it sleeps until it has its first token.
        self._client = await self._loop.run_in_executor(None, self._make)
        self._produce = self._client.produce
        self._open = self._busy = True
        self._timer = self._loop.call_later(_BUSY, self._poll)
        deadline = self._loop.time() + _START
        try:
            while not _connected(self._client):
                if self._all_down or self._loop.time() > deadline:
                    raise BackendUnavailable(f"{self._what}: {self._reason}.")  # noqa: TRY301 - closed as for any other
                await asyncio.sleep(_LOOK)
        except BaseException:
            await self.close(0)
            raise
        self._reason = "the connection broke"

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record."""
        topic, partition, timestamp, key, value, headers = record
        sent = _Sent(topic, self._loop)
        if not self._open:
            sent.set_exception(BackendUnavailable("The connection to Kafka is closed."))
            return sent
        try:
            self._produce(topic, value, key, partition, sent.report, None, timestamp, list(headers))
        except BufferError:
            sent.set_exception(TooManyInFlight(f"{topic}: librdkafka's own queue is full."))
        except KafkaException as refused:
            error = errors.reason_of(refused)
            self._broken |= errors.fatal(error)
            sent.set_exception(errors.of_send(error, topic))
        else:
            if not self._busy:
                self._busy = True
                self._timer.cancel()
                self._timer = self._loop.call_later(_BUSY, self._poll)
        return sent

    async def partitions(self, topic: str) -> int | None:
        """Ask the cluster; nothing is created by asking."""
        if not self._open:
            raise BackendUnavailable("The connection to Kafka is closed.")
        asked = self._loop.run_in_executor(None, self._describe, topic)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        try:
            return await asyncio.shield(asked)
        except KafkaException as failed:
            raise errors.of_request(errors.reason_of(failed), topic) from failed

    @property
    def broken(self) -> bool:
        """Whether librdkafka raised an error that it calls fatal."""
        return self._broken

    async def close(self, patience: int) -> None:
        """Send what is accepted, withdraw what is left, end librdkafka's threads."""
        if not self._open:
            return
        self._open = False
        try:
            async with asyncio.timeout(patience / 1000):
                while len(self._client):  # noqa: ASYNC110 - librdkafka tells nobody
                    await asyncio.sleep(_BUSY)
        except TimeoutError:
            pass
        finally:
            await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _end(self) -> None:
        self._client.purge(blocking=False)
        while len(self._client):  # noqa: ASYNC110 - as above; until the last report has been heard
            await asyncio.sleep(_BUSY)
        self._timer.cancel()
        if self._asked:
            await asyncio.wait(self._asked)
        await self._loop.run_in_executor(None, self._client.close)

    def _poll(self) -> None:
        """Hear the reports there are, and come again."""
        try:
            self._client.poll(0)
        finally:
            self._busy = len(self._client) > 0
            self._timer = self._loop.call_later(_BUSY if self._busy else _IDLE, self._poll)

    def _failed(self, error: KafkaError) -> None:
        """Hear from `poll` of what is not about one record."""
        if errors.fatal(error):
            self._broken = True
            _log.error("%s: %s", self._what, error.str())
        elif error.code() == errors.ALL_DOWN:
            self._all_down = True
            if self._outages.new():
                _log.warning("%s: %s", self._what, self._reason)
        else:
            self._reason = error.str()

    # In a thread

    def _make(self) -> confluent_kafka.Producer:
        check(self._security)
        try:
            return confluent_kafka.Producer(self._settings)
        except KafkaException as refused:
            raise errors.of_creation(errors.reason_of(refused), self._what) from refused

    def _describe(self, topic: str) -> int | None:
        found = self._client.list_topics(topic, REQUEST_TIMEOUT / 1000).topics[topic]
        if found.error is not None and found.error.code() == outcomes.UNKNOWN_TOPIC:
            return None
        if found.error is not None and not found.partitions:
            raise KafkaException(found.error)
        return len(found.partitions)


class _Sent(asyncio.Future[Stored]):
    """The future of one record. Its own method is the callback: no object more for each record."""

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._topic = topic

    def report(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """Hear from `poll` what became of the record."""
        if self.done():  # nobody waits any more
            return
        if error is not None:
            self.set_exception(errors.of_delivery(error, self._topic))
        else:
            self.set_result(Stored(message.partition(), message.offset()))


def _settings(options: Options, acks: Acks) -> Settings:
    settings: Settings = {
        "acks": acks.value,
        "enable.idempotence": acks is Acks.ALL,
        "compression.type": options.compression,
        "linger.ms": 2,
        "batch.size": 256 << 10,
        "batch.num.messages": 10_000,
        "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
        "message.timeout.ms": DELIVERY_TIMEOUT,
        "request.timeout.ms": REQUEST_TIMEOUT,
        "queue.buffering.max.messages": 1_000_000,  # the engine bounds what is in flight
        "topic.metadata.propagation.max.ms": _UNKNOWN,
    }
    if acks is Acks.LEADER:  # without idempotence a repetition would overtake what was sent after it
        settings["max.in.flight.requests.per.connection"] = 1
    return settings


def _connected(client: confluent_kafka.Producer) -> bool:
    """Whether any broker has answered; without waiting."""
    try:
        return bool(client.cluster_id(0))
    except KafkaException:
        return False
