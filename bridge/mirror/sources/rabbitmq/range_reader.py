"""Reads a range of offsets of one stream, step by step, over lost connections and killed brokers.

Offsets have holes where RabbitMQ wrote a record for itself: if the next message comes later than expected,
messages were dropped only if the stream begins after the expected offset.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pika import BasicProperties

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.mapping import from_arrival, is_marker
from adapters.rabbitmq.topology import names
from bridge.errors import BackendUnavailable, DestinationUnknown
from bridge.mirror.rows import Rows
from bridge.mirror.sources.rabbitmq.catalogue import Stream, stream_of
from bridge.mirror.sources.rabbitmq.connection import OFFSET, BlockingConnection
from bridge.mirror.sources.rabbitmq.end_offsets import read_end, read_firsts
from bridge.mirror.sources.ranges import Split

BACKEND: Final = "rabbitmq"
_PREFETCH: Final = 2000
_ACK_EVERY: Final = 500
_IDLE: Final = 2.0
"""Seconds without a message after which it is asked whether there is one."""
_SHORT_FOR: Final = 10.0
"""Seconds for which a stream must end too early before that is believed: a replica may be behind."""
_PATIENCE: Final = 60.0
"""Seconds without a message after which reading is given up."""
_PAUSE: Final = 0.5


class Lost(NamedTuple):
    """Offsets that are gone."""

    start: int
    end: int


class StreamRangeReader:
    """One range that is being read."""

    def __init__(self, connection: BlockingConnection, split: Split, stream: Stream) -> None:
        self._connection = connection
        self._log, self._next, self._end = split
        self._name = stream_of(split.log)
        self._destination = stream.destination
        self._partitions = {names.routing_key(number): number for number in range(stream.partitions)}
        self._rows = Rows(BACKEND)
        self._channel: Channel | None = None
        self._arrivals: deque[tuple[int, Arrival]] = deque()
        self._woken = asyncio.Event()
        self._unacknowledged = 0
        self._progress = time.monotonic()
        self._short_since: float | None = None

    async def step(self) -> pa.RecordBatch | Lost | None:
        """Return the next batch or loss; None at the end. Raises `Refused`, and `BackendUnavailable` after a minute."""
        while True:
            try:
                return await self._step()
            except DestinationUnknown:
                await self._close_channel()
                return self._lost(self._end)
            except BackendUnavailable:
                await self._close_channel()
                await self._connection.disconnect()
                if time.monotonic() > self._progress + _PATIENCE:
                    raise
                await asyncio.sleep(_PAUSE)

    async def _step(self) -> pa.RecordBatch | Lost | None:
        while self._next < self._end and not self._rows.full:
            if self._channel is None:
                self._channel = await self._open()
            if not self._arrivals:
                lost = await self._wait(self._channel)
            elif (offset := self._arrivals[0][0]) > self._next:
                lost = await self._skip_to(offset)
            else:
                self._take(*self._arrivals.popleft())
                continue
            if lost is not None:
                return lost
        if len(self._rows):
            return self._rows.take()
        await self._close_channel()
        return None

    async def _open(self) -> Channel:
        channel = await (await self._connection.link()).channel()
        self._unacknowledged = 0
        channel.ended.add_done_callback(lambda _ended: self._woken.set())
        channel.raw.add_on_cancel_callback(lambda _frame: channel.raw.close())
        arrived = partial(_arrived, self._arrivals, self._woken)
        await channel.ask(self._name, "basic_qos", prefetch_count=min(_PREFETCH, self._end - self._next))
        consume = {"queue": self._name, "on_message_callback": arrived, "arguments": {OFFSET: self._next}}
        await channel.ask(self._name, "basic_consume", **consume)
        return channel

    def _take(self, offset: int, arrival: Arrival) -> None:
        if self._next <= offset < self._end and not is_marker(arrival.properties):
            self._add(offset, arrival)
        self._next = max(self._next, offset + 1)
        self._progress, self._short_since = time.monotonic(), None
        self._acknowledge(arrival.tag)

    def _acknowledge(self, tag: int) -> None:
        """Ask for more, but for no more than there is in the range: the rest would come for nothing."""
        self._unacknowledged += 1
        left = self._end - self._next - (_PREFETCH - self._unacknowledged)
        if self._unacknowledged >= _ACK_EVERY and left > 0 and self._channel is not None and self._channel.open:
            self._channel.raw.basic_ack(tag, multiple=True)
            self._unacknowledged = 0

    def _add(self, offset: int, arrival: Arrival) -> None:
        partition = self._partitions.get(arrival.routing_key.rpartition(".")[2], 0)
        try:
            message = from_arrival(arrival, self._destination, partition)
        except Exception as error:  # noqa: BLE001 - whatever a producer wrote, the job goes on
            reason = f"{type(error).__name__}: {error}"
            self._rows.add_bad(reason, arrival.body, self._destination, self._log, offset)
        else:
            self._rows.add(message, self._log, offset)

    async def _skip_to(self, offset: int) -> Lost | None:
        """Skip offsets without a message; return a loss if the stream begins after the expected offset."""
        firsts = await read_firsts(await self._connection.link(), [self._name])
        if firsts.get(self._name, offset) <= self._next:
            self._next = offset
            return None
        return self._lost(min(offset, self._end))

    async def _wait(self, channel: Channel) -> Lost | None:
        """Wait for a message; from time to time ask whether there will be one."""
        self._woken.clear()
        if channel.ended.done():
            raise of_channel(channel.ended.result(), self._name)
        try:
            async with asyncio.timeout(_IDLE):
                await self._woken.wait()
        except TimeoutError:
            return await self._check_end()
        return None

    async def _check_end(self) -> Lost | None:
        now = time.monotonic()
        end = await read_end(await self._connection.link(), self._name)
        if end is None or end >= self._end:
            self._short_since = None
            if now > self._progress + _PATIENCE:
                raise BackendUnavailable(f"{self._name}: RabbitMQ has sent nothing of it for {_PATIENCE:.0f} s.")
            return None
        self._short_since = self._short_since or now
        return self._lost(self._end) if now > self._short_since + _SHORT_FOR else None

    def _lost(self, end: int) -> Lost:
        lost = Lost(self._next, end)
        self._next = end
        return lost

    async def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        self._arrivals.clear()
        if channel is not None:
            await channel.close()


def _arrived(
    arrivals: "deque[tuple[int, Arrival]]",
    woken: asyncio.Event,
    _channel: object,
    method: Any,  # noqa: ANN401 - pika's
    properties: BasicProperties,
    body: bytes,
) -> None:
    offset = int((properties.headers or {})[OFFSET])
    arrivals.append((offset, Arrival(method.delivery_tag, method.redelivered, method.routing_key, properties, body)))
    woken.set()
