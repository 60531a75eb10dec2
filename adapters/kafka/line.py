"""One producer: made when it is first needed, and another in its place when it has broken."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from adapters.base import Stored
from adapters.kafka.drivers.base import Producer
from adapters.kafka.record import Outgoing
from bridge.errors import BackendUnavailable, BridgeError

_PAUSE: Final = 1.0
"""Seconds between two attempts to replace a producer."""


class Line:
    """Sends records in the order they come, whichever producer does it."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._starting: asyncio.Task[Producer] | None = None
        self._waiting: list[tuple[Outgoing, asyncio.Future[Stored]]] = []
        """Those who came while a producer was being started."""
        self._again = 0.0
        self._trouble = "The connection to Kafka is not made yet."
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
            raise BackendUnavailable(self._trouble)
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
            future.set_exception(BackendUnavailable(self._trouble))
        return future

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms, and let go of everything. Idempotent."""
        self._closed = True
        self._trouble = "The connection to Kafka is closed."
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
                self._trouble = error.detail if isinstance(error, BridgeError) else str(error)
        waiting, self._waiting = self._waiting, []
        for record, future in waiting:
            self._send_late(record, future)

    def _send_late(self, record: Outgoing, future: asyncio.Future[Stored]) -> None:
        if self._producer is None or self._closed:
            future.set_exception(BackendUnavailable(self._trouble))
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
