"""Sends records again, each in a separate batch, after Kafka has refused their batch.

Kafka refuses a batch as a whole: because of one record, or because all together are larger than the topic's
`max.message.bytes`. librdkafka does not split it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from adapters.base import Stored
from adapters.kafka.mapping import Outgoing
from adapters.kafka.produce.publisher import Producer
from adapters.kafka.thread_to_loop import cancel, complete, copy
from bridge.errors import BackendUnavailable, BridgeError, CannotStart

_IDLE: Final = 10.0
"""Seconds without a refused batch after which the second producer, with its threads and sockets, is closed."""


class AloneSender:
    """Has a second producer while batches are refused."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        """`make` returns a producer, not started, that puts each record in a separate batch."""
        self._make = make
        self._waiting: deque[tuple[Outgoing, asyncio.Future[Stored]]] = deque()
        """Records to be sent, in the order in which they were refused."""
        self._refused = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._patience = 0

    def send(self, record: Outgoing, sent: asyncio.Future[Stored]) -> None:
        """Send a record of which nothing is stored, and complete its future."""
        self._waiting.append((record, sent))
        self._refused.set()
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self, patience: int) -> None:
        """Send what the second producer has accepted for at most `patience` ms. Idempotent."""
        self._patience = patience
        if self._sending is not None:
            await cancel([self._sending])
        self._fail(BackendUnavailable("The connection to Kafka is closed."))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                producer = self._make()
                await producer.start()
                try:
                    await self._send_with(producer)
                finally:
                    await producer.close(self._patience)
        except (BridgeError, CannotStart) as error:
            self._fail(BackendUnavailable(str(error)))
        finally:
            self._sending = None

    async def _send_with(self, producer: Producer) -> None:
        """Send what is refused until nothing is for a while, or until the producer is broken."""
        while self._waiting and not producer.broken:
            self._refused.clear()
            sending = []
            while self._waiting:
                record, sent = self._waiting.popleft()
                sending.append(producer.send(record))
                sending[-1].add_done_callback(partial(copy, sent))
            await asyncio.wait(sending)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE):
                    await self._refused.wait()

    def _fail(self, error: BackendUnavailable) -> None:
        while self._waiting:
            complete(self._waiting.popleft()[1], None, error)
