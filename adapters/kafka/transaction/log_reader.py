"""Reads the topic of transactions from its beginning, and goes on: a thread with a consumer without a group."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka import client_errors
from adapters.kafka.connections import reading
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Record, fetched
from adapters.kafka.thread_bridge import ThreadBridge, until_ended
from bridge.errors import BackendUnavailable, BridgeError

_POLL: Final = 200
"""Milliseconds of a poll that finds nothing; so long may closing take."""
_PAUSE: Final = 1.0
"""Seconds after a failure."""
_PATIENCE: Final = 30.0
"""Seconds without a record after which the brokers are said not to answer, at the start."""
_FETCH_MAX: Final = 8 << 20

_log = logging.getLogger("bridge.kafka")


class LogReader:
    """Hands over each committed record once, in order, on the event loop. Connects again until it is closed."""

    def __init__(self, options: Options, topic: str, take: Callable[[list[Record]], None]) -> None:
        self._options = options
        self._part = TopicPartition(topic, 0)
        self._next: int | None = None
        self._failing = False
        self._loop = asyncio.get_running_loop()
        self._bridge = ThreadBridge(self._loop, take)
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-transactions", daemon=True)
        self._thread.start()

    async def caught_up(self) -> None:
        """Wait until all is handed over that was there at the start. Raises `BackendUnavailable` or `Refused`."""
        await asyncio.shield(self._caught_up)
        self._bridge.drain()

    async def close(self) -> None:
        """End the thread. Idempotent."""
        self._closing.set()
        await until_ended(self._thread)

    # On the thread

    def _run(self) -> None:
        own = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        while not self._closing.is_set():
            try:
                with reading(self._options, **own, max_partition_fetch_bytes=_FETCH_MAX) as consumer:
                    self._read(consumer)
            except Exception as error:  # noqa: BLE001 - whatever it is, another connection may do better
                self._failed(client_errors.of_request(error, self._part.topic))

    def _read(self, consumer: KafkaConsumer) -> None:
        part = self._part
        consumer.assign([part])
        if self._next is not None:
            consumer.seek(part, self._next)
        end = consumer.end_offsets([part], timeout_ms=REQUEST_TIMEOUT)[part]
        patient_until = time.monotonic() + _PATIENCE
        while not self._closing.is_set():
            if found := consumer.poll(timeout_ms=_POLL).get(part):
                self._next = found[-1].offset + 1
                self._failing = False
                patient_until = time.monotonic() + _PATIENCE
                self._bridge.put([fetched(each) for each in found])
            if end is not None and (consumer.position(part, timeout_ms=_POLL) or 0) >= end:
                end = None
                self._settle(None)
            if end is not None and time.monotonic() > patient_until:
                raise BackendUnavailable(f"{part.topic}: Kafka has not answered in time.")

    def _failed(self, error: BridgeError) -> None:
        if not self._failing:
            self._failing = True
            _log.warning("Transactions cannot be read now; the bridge retries. %s", error)
        self._settle(error)
        self._closing.wait(_PAUSE)

    def _settle(self, error: BridgeError | None) -> None:
        def settle() -> None:
            if self._caught_up.done():
                return
            if error is None:
                self._caught_up.set_result(None)
            else:
                self._caught_up.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(settle)
