"""Producing with librdkafka: without a thread, its delivery reports are fetched by a timer of the event loop."""

import asyncio
import logging
import time
from functools import partial
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from adapters.base import Stored
from adapters.kafka import errors
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import DELIVERY_TIMEOUT, METADATA_AGE, REQUEST_TIMEOUT, Options, Security
from adapters.kafka.produce.alone import AloneSender
from adapters.kafka.security import TokenProvider, tls_context
from bridge.errors import BackendUnavailable, BodyTooLarge, BridgeError, CannotStart, OutcomeUnknown, TooManyInFlight

# ruff: noqa: SLF001 - librdkafka's own codes are named with an underscore

_log = logging.getLogger(__name__)

Settings = dict[str, object]
"""By librdkafka's names."""

_CRITICAL: Final = 2
"""In syslog's numbers. A less important line is written for each attempt to connect, twice a second in an outage; what
it says reaches us as an error as well, and is reported once."""
_TOKEN_AGE: Final = 30.0
"""Seconds after which librdkafka asks for another token, also if this one is valid for longer."""

_BUSY: Final = 0.001
"""Seconds between two looks for reports while there are any to come. With a thread that waits for them it took 24 us of
CPU per message and 41,600 a second came through; so 13 us and 52,300."""
_IDLE: Final = 1.0
"""While nothing is in flight there are only librdkafka's errors to hear of."""
_ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
"""librdkafka says it after the reasons, again and again while it tries to connect."""
_QUIET: Final = 5.0
"""Seconds without an error after which an outage is over; it is tried twice a second to connect."""
_ALONE: Final[Settings] = {"batch.num.messages": 1, "linger.ms": 0}
_OF_BATCH: Final = errors.OF_BATCH | {KafkaError._INVALID_DIFFERENT_RECORD}
_START: Final = 4.0
_LOOK: Final = 0.01
_UNKNOWN: Final = 5_000
"""Milliseconds that a topic may be unknown before the records for it fail: it may have been made a moment ago."""


class LibrdkafkaProducer:
    """See `Producer`."""

    def __init__(self, options: Options, *, alone: bool = False) -> None:
        """With `alone` each record is a batch; otherwise those of a refused batch are sent again so."""
        self._what = f"Kafka at {','.join(options.servers)}"
        self._settings = _settings_of(options) | {"error_cb": self._failed} | (_ALONE if alone else {})
        self._alone = None if alone else AloneSender(partial(LibrdkafkaProducer, options, alone=True))
        self._security = options.security
        self.broken = False
        """Whether librdkafka raised an error that it calls fatal."""
        self._open = False
        self._all_down = False
        self._reason = "no answer"
        self._down_at = -_QUIET
        """When an outage was reported last, in seconds of the monotonic clock."""
        self._questions: set[asyncio.Future[int | None]] = set()

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
            while not self._connected():
                if self._all_down or self._loop.time() > deadline:
                    raise BackendUnavailable(f"{self._what}: {self._reason}.")  # noqa: TRY301 - closed as for any other
                await asyncio.sleep(_LOOK)
        except BaseException:
            await self.close(0)
            raise
        self._reason = "the connection was lost"

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        """Store one record."""
        topic, partition, timestamp, key, value, headers = record
        sent: asyncio.Future[Stored] = self._loop.create_future()
        if not self._open:
            sent.set_exception(BackendUnavailable("The connection to Kafka is closed."))
            return sent
        try:
            report = partial(_report, sent, record, self._alone)
            self._produce(topic, value, key, partition, report, None, timestamp, list(headers))
        except BufferError:
            sent.set_exception(TooManyInFlight(f"{topic}: librdkafka's own queue is full."))
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            self.broken |= _is_fatal(error)
            sent.set_exception(_of_send(error, topic))
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
        question = self._loop.run_in_executor(None, self._describe, topic)
        self._questions.add(question)
        question.add_done_callback(self._questions.discard)
        try:
            return await asyncio.shield(question)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.code() > 0:
                raise errors.of_code(error.code(), topic) from failed
            raise BackendUnavailable(f"{topic}: {error.str()}.") from failed

    async def close(self, patience: int) -> None:
        """Send what is accepted, withdraw what is left, end librdkafka's threads."""
        if not self._open:
            return
        self._open = False
        try:
            async with asyncio.timeout(patience / 1000):
                while len(self._client):  # noqa: ASYNC110 - librdkafka has no callback
                    await asyncio.sleep(_BUSY)
        except TimeoutError:
            pass
        finally:
            if self._alone is not None:
                await self._alone.close(patience)
            await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _end(self) -> None:
        self._client.purge(blocking=False)
        while len(self._client):  # noqa: ASYNC110 - as above; until the last report has arrived
            await asyncio.sleep(_BUSY)
        self._timer.cancel()
        if self._questions:
            await asyncio.wait(self._questions)
        await self._loop.run_in_executor(None, self._client.close)

    def _poll(self) -> None:
        """Handle the delivery reports there are, and schedule the next call."""
        try:
            self._client.poll(0)
        finally:
            self._busy = len(self._client) > 0
            self._timer = self._loop.call_later(_BUSY if self._busy else _IDLE, self._poll)

    def _failed(self, error: KafkaError) -> None:
        """Handle an error of `poll` that is not about one record."""
        if _is_fatal(error):
            self.broken = True
            _log.error("%s: %s", self._what, error.str())
        elif error.code() == _ALL_DOWN:
            self._all_down = True
            before, self._down_at = self._down_at, time.monotonic()
            if self._down_at - before > _QUIET:
                _log.warning("%s: %s", self._what, self._reason)
        else:
            self._reason = error.str()

    def _connected(self) -> bool:
        """Whether any broker has answered; without waiting."""
        try:
            return bool(self._client.cluster_id(0))
        except KafkaException:
            return False

    # In a thread

    def _make(self) -> confluent_kafka.Producer:
        """Make the client. Says what is wrong with a file or a token, as librdkafka does not."""
        if self._security.tls:
            tls_context(self._security)
        if self._security.mechanism == "OAUTHBEARER":
            try:
                TokenProvider(self._security).token()
            except Exception as error:  # a file, the network, an invalid answer
                raise BackendUnavailable(f"There is no token for Kafka: {error}.") from error
        try:
            return confluent_kafka.Producer(self._settings)
        except KafkaException as refused:  # it got no token in time, or does not understand its settings
            reason: KafkaError = refused.args[0]
            is_login = reason.code() == KafkaError.SASL_AUTHENTICATION_FAILED
            raise (BackendUnavailable if is_login else CannotStart)(f"{self._what}: {reason.str()}.") from refused

    def _describe(self, topic: str) -> int | None:
        found = self._client.list_topics(topic, REQUEST_TIMEOUT / 1000).topics[topic]
        if found.error is not None and found.error.code() == errors.UNKNOWN_TOPIC:
            return None
        if found.error is not None and not found.partitions:
            raise KafkaException(found.error)
        return len(found.partitions)


def _report(
    sent: asyncio.Future[Stored],
    record: Outgoing,
    alone: AloneSender | None,
    error: KafkaError | None,
    message: confluent_kafka.Message,
) -> None:
    """Complete the future of a record; called by `poll`. As a method of a subclass of `Future` it took 2.3 us more."""
    if sent.done():  # no caller waits any more
        return
    if error is None:
        sent.set_result(Stored(message.partition(), message.offset()))
    elif alone is not None and error.code() in _OF_BATCH:
        alone.send(record, sent)
    else:
        sent.set_exception(_of_delivery(error, record.topic))


def _settings_of(options: Options) -> Settings:
    return {
        "bootstrap.servers": ",".join(options.servers),
        "client.id": f"oms-bridge-{options.instance}" if options.instance else "oms-bridge",
        "socket.timeout.ms": REQUEST_TIMEOUT,
        "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT,
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": METADATA_AGE,
        "topic.metadata.propagation.max.ms": _UNKNOWN,
        "allow.auto.create.topics": False,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": options.compression,
        "linger.ms": 2,
        "batch.size": 256 << 10,
        "batch.num.messages": 10_000,
        "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
        "message.timeout.ms": DELIVERY_TIMEOUT,
        "request.timeout.ms": REQUEST_TIMEOUT,
        "queue.buffering.max.messages": 1_000_000,  # the engine bounds what is in flight
        "log.connection.close": False,
        "log_level": _CRITICAL,
        "logger": logging.getLogger(__name__),
        **_security(options.security),
    }


def _security(security: Security) -> Settings:
    protocol = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    files = {
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
    }
    settings: Settings = {"security.protocol": protocol, **{name: str(path) for name, path in files.items() if path}}
    if security.mechanism == "OAUTHBEARER":
        provider = TokenProvider(security)

        def token_and_end(_config: str) -> tuple[str, float]:
            """Called by librdkafka on one of its threads; what it raises is a failed login."""
            return provider.token(), time.time() + _TOKEN_AGE

        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token_and_end}
    elif security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    return settings


def _is_fatal(error: KafkaError) -> bool:
    """Whether this client will never do its work again."""
    return error.fatal() or error.code() == KafkaError._FATAL


def _of_send(error: KafkaError, topic: str) -> BridgeError:
    """Return the error of a record that was not accepted: nothing of it has left this process."""
    match error.code():
        case KafkaError._UNKNOWN_PARTITION:  # the engine chose one that there was: the topic was deleted
            return errors.of_produce(errors.UNKNOWN_TOPIC, topic)
        case KafkaError.MSG_SIZE_TOO_LARGE:
            return BodyTooLarge(f"{topic}: librdkafka sends at most 1,000,000,000 bytes at once.")
        case code if code > 0:
            return errors.of_produce(code, topic)
        case _:
            return BackendUnavailable(f"{topic}: {error.str()}.")


def _of_delivery(error: KafkaError, topic: str) -> BridgeError:
    """Return the error of a record that was accepted, and then reported as failed."""
    code = error.code()
    if code > 0:
        return errors.of_produce(code, topic)
    if code in {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}:
        return errors.of_produce(errors.UNKNOWN_TOPIC, topic)
    # A message whose time is up may have been on its way once or never: its Python side does not say.
    return OutcomeUnknown(f"{topic}: Kafka does not say whether it stored the message: {error.str()}.")
