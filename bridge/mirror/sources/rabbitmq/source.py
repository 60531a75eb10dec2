"""The mirror's source for RabbitMQ: the streams that the bridges keep as logs of their destinations.

It only reads, and needs no more permission than that, on the streams and on the bridges' catalogue.

A range of a stream is read step by step, over lost connections and killed brokers. Offsets have holes where RabbitMQ
wrote a record for itself: if the next message comes later than expected, messages were dropped only if the stream
begins after the expected offset.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

import pyarrow as pa
from pika import BasicProperties
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.mapping import from_arrival, is_marker
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology import names
from bridge.errors import BackendUnavailable, CannotStart, DestinationUnknown
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.schema import Rows
from bridge.mirror.sources import ranges
from bridge.mirror.sources.rabbitmq.catalogue import (
    OFFSET,
    BlockingConnection,
    Stream,
    behind,
    is_refusal,
    logs,
    newest,
    stream_of,
)
from bridge.mirror.sources.rabbitmq.end_offsets import EndOffsets, First, read_end, read_firsts
from bridge.mirror.sources.range_source import RangeDataSource, RangeReader, ReaderOptions, Source, Splits
from bridge.mirror.sources.ranges import Position, Split, ended

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
RECREATED_AFTER: Final = 10.0
"""Seconds for which a stream must end before its place until it is taken for another: a replica may be behind."""

T = TypeVar("T")


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

    async def step(self) -> pa.RecordBatch | Gap | None:
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

    async def _step(self) -> pa.RecordBatch | Gap | None:
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
        await channel.ask(self._name, "basic_qos", prefetch_count=min(_PREFETCH, self._end - self._next))
        consume = {"queue": self._name, "on_message_callback": self._arrived, "arguments": {OFFSET: self._next}}
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
            empty = [name for name, value in (arrival.properties.headers or {}).items() if value is None]
            nulls = [name for name in empty if message.properties.get(name) == ""]
            self._rows.add(message, self._log, offset, nulls=nulls)

    async def _skip_to(self, offset: int) -> Gap | None:
        """Skip offsets without a message; return a loss if the stream begins after the expected offset."""
        firsts = await read_firsts(await self._connection.link(), [self._name])
        if (first := firsts.get(self._name)) is not None and first.offset <= self._next:
            self._next = offset
            return None
        return self._lost(min(offset, self._end))

    async def _wait(self, channel: Channel) -> Gap | None:
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

    async def _check_end(self) -> Gap | None:
        now = time.monotonic()
        end = await read_end(await self._connection.link(), self._name)
        if end is None or end >= self._end:
            self._short_since = None
            if now > self._progress + _PATIENCE:
                raise BackendUnavailable(f"{self._name}: RabbitMQ has sent nothing of it for {_PATIENCE:.0f} s.")
            return None
        self._short_since = self._short_since or now
        return self._lost(self._end) if now > self._short_since + _SHORT_FOR else None

    def _lost(self, end: int) -> Gap:
        lost = Gap(self._log, self._next, end)
        self._next = end
        return lost

    async def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        self._arrivals.clear()
        if channel is not None:
            await channel.close()

    def _arrived(self, _channel: object, method: Any, properties: BasicProperties, body: bytes) -> None:  # noqa: ANN401 - pika's
        arrival = Arrival(method.delivery_tag, method.redelivered, method.routing_key, properties, body)
        self._arrivals.append((int((properties.headers or {})[OFFSET]), arrival))
        self._woken.set()


class StreamSplits(Splits):
    """Splits of one task, and their streams: a task does not read the catalogue."""

    def __init__(self, splits: tuple[Split, ...], streams: Mapping[str, Stream]) -> None:
        super().__init__(splits)
        self.streams = {stream_of(split.log): streams[stream_of(split.log)] for split in splits}


def _stream(log: str, given: Splits) -> Stream:
    assert isinstance(given, StreamSplits)  # noqa: S101 - only the mirror makes them
    return given.streams[stream_of(log)]


class _RabbitMQReader(RangeReader):
    """See `RangeReader`. The connection to plan with stays; a task has one for all that it reads."""

    backend = BACKEND

    def __init__(self, ask: ReaderOptions) -> None:
        super().__init__(ask)
        self._url = parse(ask.options.backend)
        self._connection: BlockingConnection | None = None
        self._ends: EndOffsets | None = None
        self._before: Mapping[str, Position] = {}
        self._short_since: dict[str, float] = {}
        """Since when a stream ends before its place."""
        self._firsts: dict[str, First] = {}
        """By log, how it began when it was last looked at."""
        self._all: Ranges | None = None
        """How far to read where the query is to end."""

    def bounds(self) -> Ranges:
        self._connection = self._connection or BlockingConnection(self._url, "mirror plans")
        ends = self._ends = self._ends or EndOffsets(self._url, self._connection)
        try:
            found = self._connection.run(ends.bounds())
        except (BackendUnavailable, CannotStart):
            self.stop()
            raise
        now = time.monotonic()
        self._short_since = {stream: self._short_since.get(stream, now) for stream in behind(found, self._before)}
        short = {stream for stream, since in self._short_since.items() if now - since >= RECREATED_AFTER}
        return logs(found, ends.missing, self._before, short | self._replaced(ends.firsts))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        super().prepareForTriggerAvailableNow()
        self._all = self._target

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's
        """See `RangeReader`. A log that has ended stays in the offset, so that another of its name is another."""
        resumed = {log: Position(at, at, at) for log, at in self._ask.start.items()}
        self._before = ranges.from_json(start) or resumed
        before = ranges.from_json(start)
        if self._all is not None:
            self._target = logs(self._all, (), before, ())
        latest = super().latestOffset(start, limit)
        over = {log: position for log, position in before.items() if ended(position)}
        return ranges.to_json(over | ranges.from_json(latest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `RangeReader`. Raises `BackendUnavailable`; `CannotStart` if the owner of the streams is unknown."""
        found = super().partitions(start, end)
        if self._ends is None and found:
            self.bounds()  # an unfinished batch of an earlier process: nothing was asked yet
        streams = self._ends.streams if self._ends is not None else {}
        try:
            return [StreamSplits(each.splits, streams) for each in found if isinstance(each, Splits)]
        except KeyError as error:
            raise CannotStart(
                f"RabbitMQ: {error.args[0]} is planned, but the bridges' catalogue stream no longer names its"
                " destination: start a bridge, or use the options that it was planned with."
            ) from None

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        with closing(BlockingConnection(self._url, "mirror reads")) as connection:
            for split in given.splits:
                reading = StreamRangeReader(connection, split, _stream(split.log, given))
                while (step := connection.run(reading.step())) is not None:
                    yield step

    def destination_of(self, log: str, given: Splits) -> str:
        return _stream(log, given).destination

    def stop(self) -> None:
        connection, self._connection, self._ends = self._connection, None, None
        if connection is not None:
            connection.close()

    def _replaced(self, firsts: Mapping[str, First]) -> set[str]:
        """Return the streams that begin at the same offset as before with another message: they were recreated."""
        replaced = set()
        for stream, log in newest(firsts, self._before).items():
            first = firsts[stream]
            known = self._firsts.get(log, first)
            if known.offset == first.offset and known.message != first.message:
                replaced.add(stream)
            else:
                self._firsts[log] = first
        return replaced


class _RabbitMQData(RangeDataSource):
    reads = _RabbitMQReader


class RabbitMQSource(Source):
    """See `Source`."""

    data = _RabbitMQData

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """See `Source`. Raises `CannotStart` if RabbitMQ refuses the login or the permission."""
        self._ask(EndOffsets.read_catalogue)
        return super().rows(spark, start)

    def bounds(self) -> Ranges:
        """See `Source`; a stream that was recreated has the name of the first. Raises `CannotStart` as `rows` does."""
        return self._ask(EndOffsets.bounds)

    def unmirrored(self) -> Mapping[str, str]:
        """See `Source`."""
        return self._ask(EndOffsets.unmirrored)

    def _ask(self, question: Callable[[EndOffsets], Coroutine[Any, Any, T]]) -> T:
        options = parse(self._options.backend)
        with closing(BlockingConnection(options, "mirror")) as connection:
            try:
                return connection.run(question(EndOffsets(options, connection)))
            except BackendUnavailable as error:
                if is_refusal(error):
                    raise CannotStart(error.detail) from error
                raise
