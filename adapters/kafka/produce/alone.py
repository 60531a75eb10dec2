"""Sends records again, each in a separate batch, after Kafka has refused their batch.

Kafka refuses a batch as a whole: because of one record, or because all together are larger than the topic's
`max.message.bytes`. librdkafka does not split it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from adapters.base import Stored
from adapters.kafka.mapping import Outgoing
from adapters.kafka.produce.publisher import Producer
from adapters.kafka.thread_to_loop import cancel, complete, copy
from bridge.errors import BackendUnavailable, BridgeError, CannotStart


class AloneSender:
    """Has a second producer, from the first refused batch on."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        """`make` returns a producer, not started, that puts each record in a separate batch."""
        self._make = make
        self._producer: Producer | None = None
        self._waiting: deque[tuple[Outgoing, asyncio.Future[Stored]]] = deque()
        """Until the producer is started, in the order in which they were refused."""
        self._starting: asyncio.Task[None] | None = None

    def send(self, record: Outgoing, sent: asyncio.Future[Stored]) -> None:
        """Send a record of which nothing is stored, and complete its future."""
        self._waiting.append((record, sent))
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._send_waiting())

    async def close(self, patience: int) -> None:
        """Send what is accepted for at most `patience` ms. Idempotent."""
        if self._starting is not None:
            await cancel([self._starting])
        self._fail(BackendUnavailable("The connection to Kafka is closed."))
        if self._producer is not None:
            await self._producer.close(patience)

    async def _send_waiting(self) -> None:
        try:
            producer = await self._start()
        except (BridgeError, CannotStart) as error:
            self._fail(BackendUnavailable(str(error)))
        else:
            while self._waiting:
                record, sent = self._waiting.popleft()
                producer.send(record).add_done_callback(partial(copy, sent))
        self._starting = None

    async def _start(self) -> Producer:
        if self._producer is not None and self._producer.broken:
            broken, self._producer = self._producer, None
            await broken.close(0)
        if self._producer is None:
            producer = self._make()
            await producer.start()
            self._producer = producer
        return self._producer

    def _fail(self, error: BackendUnavailable) -> None:
        while self._waiting:
            complete(self._waiting.popleft()[1], None, error)
