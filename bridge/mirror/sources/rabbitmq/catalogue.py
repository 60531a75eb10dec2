"""The mirror's connection to RabbitMQ, and the bridges' catalogue stream: the streams to mirror, and their logs' names.

The connection is for code that is not asynchronous: Spark calls from outside, and waits.

A log has the name of its stream; after a stream was recreated, and so counts from 0 again, `<stream>#1`, then `#2`.
RabbitMQ has no such generation: the mirror derives it from the offsets that it has read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self, TypeVar

from pika import exceptions as pika

from adapters.amqp.channel import Channel
from adapters.amqp.errors import ClosedInTLS
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from adapters.base import DEAD_LETTER_SUFFIX
from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.records import Contents
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused
from bridge.mirror.offsets import Ranges
from bridge.mirror.sources.ranges import Position, ended

OFFSET: Final = "x-stream-offset"
"""An argument of the consumer, and a header of what it gets."""
_HEARTBEAT: Final = 3_600_000
"""Nothing is read or answered between two calls, and Spark may take minutes for that."""
_LOGIN: Final = (
    *(pika.ProbableAuthenticationError, pika.AuthenticationError, pika.ProbableAccessDeniedError),
    *(ClosedInTLS, pika.IncompatibleProtocolError),
)
_NO_ACCESS: Final = {403, 530}
_GENERATION: Final = "#"
"""In no name of a destination."""

T = TypeVar("T")


class BlockingConnection:
    """One connection at a time, and the event loop that it runs on. What the loop does it does inside `run`."""

    def __init__(self, options: Options, purpose: str) -> None:
        self._options = options._replace(heartbeat=_HEARTBEAT)
        self._purpose = purpose
        self._runner = asyncio.Runner()
        self._link: Link | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and return what it returns. Raises `CannotStart` in place of `Refused`."""
        try:
            return self._runner.run(work)
        except Refused as error:
            raise CannotStart(f"RabbitMQ: {error.detail} The mirror needs permission to read it.") from error

    async def link(self) -> Link:
        """Return the connection, made if there is none. Raises `BackendUnavailable`."""
        if self._link is None:
            link = Link(self._options, self._purpose)
            try:
                await link.start()
            except BridgeError:
                await link.close()
                raise
            self._link = link
        return self._link

    async def disconnect(self) -> None:
        """Close the connection: the next one is a new one."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def close(self) -> None:
        """End it all; once."""
        self._runner.run(self.disconnect())
        self._runner.close()


def is_refusal(error: BackendUnavailable) -> bool:
    """Whether RabbitMQ refused the mirror: waiting does not repair that."""
    cause = error.__cause__
    if isinstance(cause, pika.ConnectionClosedByBroker):
        return cause.reply_code in _NO_ACCESS
    return isinstance(cause, _LOGIN)


class Stream(NamedTuple):
    """The log of a destination."""

    destination: str
    partitions: int


def streams(catalogue: Mapping[str, Layout], options: Options) -> tuple[dict[str, Stream], list[str]]:
    """Return the expected streams by name, and the destinations that keep none; the settings override the catalogue.

    A destination with another program's exchange or queue is in no catalogue.
    """
    found, without = {}, []
    foreign = [name for name, own in options.destinations.items() if own.exchange is not None or own.queue is not None]
    partitions = {name: layout.partitions for name, layout in catalogue.items()} | dict.fromkeys(foreign, 1)
    for destination in sorted(partitions):
        existing, layout = options.destinations.get(destination, Existing()), catalogue.get(destination)
        entered = options.log if layout is None else layout.log_bytes > 0
        by_default = entered or destination.endswith(DEAD_LETTER_SUFFIX)
        if existing.queue is None and (by_default if existing.log is None else existing.log):
            found[names.log(destination)] = Stream(destination, partitions[destination])
        else:
            without.append(destination)
    return found, without


def stream_of(log: str) -> str:
    """Return the stream of a log."""
    return log.partition(_GENERATION)[0]


def logs(
    found: Ranges, missing: Collection[str], before: Mapping[str, Position], recreated: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Return the bounds of streams as those of logs, where `before` is how far these are planned.

    A stream in `recreated` is the next log. The end of another one that ends before its position is taken to be the
    position for now. So is that of a stream neither found nor missing: the catalogue no longer names it.
    """
    generations = _generations(before)
    bounds = {
        log: (position.begin, position.next)
        for log, position in before.items()
        if not ended(position) and (stream := stream_of(log)) not in found and stream not in missing
    }
    for stream, (first, end) in found.items():
        generation = generations.get(stream, 0)
        log = _log(stream, generation)
        position = before.get(log)
        if position is None:
            bounds[log] = (first, end)
        elif ended(position) or stream in recreated:
            bounds[_log(stream, generation + 1)] = (first, end)
        else:
            bounds[log] = (first, max(end, position.next))
    return bounds


def newest(streams: Iterable[str], before: Mapping[str, Position]) -> dict[str, str]:
    """Return the log of each stream that was planned last."""
    generations = _generations(before)
    return {stream: _log(stream, generations.get(stream, 0)) for stream in streams}


def behind(found: Ranges, before: Mapping[str, Position]) -> list[str]:
    """Return the streams that end before their places."""
    positions = {stream: before.get(log) for stream, log in newest(found, before).items()}
    return [
        stream
        for stream, position in positions.items()
        if position and not ended(position) and found[stream][1] < position.next
    ]


def _log(stream: str, generation: int) -> str:
    return f"{stream}{_GENERATION}{generation}" if generation else stream


def _generations(before: Mapping[str, Position]) -> dict[str, int]:
    """Return the newest life of each stream."""
    generations: dict[str, int] = {}
    for log in before:
        stream, _, number = log.partition(_GENERATION)
        generations[stream] = max(generations.get(stream, 0), int(number or 0))
    return generations


PATIENCE: Final = 10.0
"""Seconds for the first message of a stream that has some: the broker answers a new consumer before it asks the
stream's process what there is."""
_SOON: Final = 0.01
"""Seconds after which it is asked again."""
_PREFETCH: Final = 1000


async def until_arrived(arrived: Callable[[], bool], ask: Callable[[], Awaitable[None]], seconds: float) -> bool:
    """Ask the broker until something has arrived, for so long; return whether it has. Raises as `ask`."""
    deadline = time.monotonic() + seconds
    while not arrived():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_SOON)
        await ask()
    return True


class CatalogueReader:
    """Reads what has been written since it was last asked. When anything fails, another one begins at the start."""

    def __init__(self, channel: Channel, catalogue: str) -> None:
        self._channel = channel
        self._catalogue = catalogue
        self._contents = Contents(None)
        self._read = 0
        self._tag = 0

    @classmethod
    async def open(cls, link: Link, catalogue: str) -> Self:
        """Begin. Raises `DestinationUnknown` where no bridge has been yet, `Refused` or `BackendUnavailable`."""
        reader = cls(await link.channel(), catalogue)
        # a deleted catalogue is created again: its consumer ends, and the channel with it
        reader._channel.raw.add_on_cancel_callback(lambda _frame: reader._channel.raw.close())
        await reader._round_trip()
        consume = {"queue": catalogue, "on_message_callback": reader._arrived, "arguments": {OFFSET: "first"}}
        await reader._channel.ask(catalogue, "basic_consume", **consume)
        return reader

    async def destinations(self) -> Mapping[str, Layout]:
        """Return all that are entered. Raises `BackendUnavailable`, also if nothing is: a bridge enters something."""
        if not await until_arrived(lambda: self._read > 0, self._round_trip, PATIENCE):
            raise BackendUnavailable(f"{self._catalogue}: RabbitMQ sends nothing of it.")
        before = -1
        while before != self._read:
            before = self._read
            if self._tag:
                self._channel.raw.basic_ack(self._tag, multiple=True)
                self._tag = 0
            await self._round_trip()
        return self._contents.destinations

    async def _round_trip(self) -> None:
        """Wait for a reply: entries stored so far arrive before it, as far as the credit goes."""
        await self._channel.ask(self._catalogue, "basic_qos", prefetch_count=_PREFETCH)

    def _arrived(self, _channel: object, method: Any, properties: Properties, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._contents.read(int((properties.headers or {}).get(OFFSET, 0)), body)
        self._read += 1
        self._tag = method.delivery_tag
