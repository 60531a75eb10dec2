"""The bridges' catalogue stream, read along: which streams there are to mirror, and what the mirror calls them.

The mirror's name of a log is the stream's; of one that was deleted and made anew, and so counts from 0 again, it is
`<stream>#1`, then `#2`. RabbitMQ does not say which it is: what the mirror had read of it does.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Self

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.records import Contents
from bridge.mirror.offsets import Ranges
from bridge.mirror.sources.rabbitmq.connection import OFFSET
from bridge.mirror.sources.ranges import Place

_LIFE: Final = "#"
"""In no name of a destination."""


class Stream(NamedTuple):
    """The log of a destination."""

    destination: str
    partitions: int


def streams(book: Mapping[str, Layout], options: Options) -> dict[str, Stream]:
    """Return by name what should be there; the settings go before what the book says."""
    return {
        names.log(destination): Stream(destination, partitions)
        for destination, partitions in _destinations(book, options).items()
        if _keeps_log(destination, book, options)
    }


def without_log(book: Mapping[str, Layout], options: Options) -> list[str]:
    """Return the destinations that keep none."""
    return sorted(d for d in _destinations(book, options) if not _keeps_log(d, book, options))


def _destinations(book: Mapping[str, Layout], options: Options) -> dict[str, int]:
    """Return all of them with their partitions: what has an exchange or a queue of others' stands in no book."""
    foreign = {
        name for name, said in options.destinations.items() if said.exchange is not None or said.queue is not None
    }
    return {name: layout.partitions for name, layout in book.items()} | dict.fromkeys(foreign, 1)


def _keeps_log(destination: str, book: Mapping[str, Layout], options: Options) -> bool:
    said = options.destinations.get(destination, Existing())
    if said.queue is not None or said.log is False:
        return False
    layout = book.get(destination)
    return bool(said.log) or (options.log if layout is None else layout.log_bytes > 0)


def stream_of(log: str) -> str:
    """Return the stream of a log."""
    return log.partition(_LIFE)[0]


def logs(
    found: Ranges, gone: Collection[str], before: Mapping[str, Place], anew: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Return the bounds of streams as those of logs, where `before` is how far these are planned.

    A stream that ends before its place is another one if it is in `anew`; else it is taken to end at its place for
    now. So is one that is neither found nor gone: the book was deleted, or does not name it any more.
    """
    lives = _lives(before)
    bounds = {
        log: (place.begin, place.next)
        for log, place in before.items()
        if not ended(place) and (stream := stream_of(log)) not in found and stream not in gone
    }
    for stream, (first, end) in found.items():
        life = lives.get(stream, 0)
        log = _log(stream, life)
        place = before.get(log)
        if place is None:
            bounds[log] = (first, end)
        elif ended(place) or (end < place.next and stream in anew):
            bounds[_log(stream, life + 1)] = (first, end)
        else:
            bounds[log] = (first, max(end, place.next))
    return bounds


def behind(found: Ranges, before: Mapping[str, Place]) -> list[str]:
    """Return the streams that end before their places."""
    lives = _lives(before)
    places = {stream: before.get(_log(stream, lives.get(stream, 0))) for stream in found}
    return [stream for stream, place in places.items() if place and not ended(place) and found[stream][1] < place.next]


def ended(place: Place) -> bool:
    """Whether the log is gone."""
    return place.lost is not None and place.lost[1] is None


def _log(stream: str, life: int) -> str:
    return f"{stream}{_LIFE}{life}" if life else stream


def _lives(before: Mapping[str, Place]) -> dict[str, int]:
    """Return the newest life of each stream."""
    lives: dict[str, int] = {}
    for log in before:
        stream, _, number = log.partition(_LIFE)
        lives[stream] = max(lives.get(stream, 0), int(number or 0))
    return lives


_PREFETCH: Final = 1000


class BookReader:
    """Reads what has been written since it was last asked. When anything fails, another one begins at the start."""

    def __init__(self, channel: Channel, book: str) -> None:
        self._channel = channel
        self._book = book
        self._contents = Contents(None)
        self._read = 0
        self._tag = 0

    @classmethod
    async def open(cls, link: Link, book: str) -> Self:
        """Begin. Raises `DestinationUnknown` where no bridge has been yet, `Refused` or `BackendUnavailable`."""
        reader = cls(await link.channel(), book)
        # a book that was deleted has another after it: with its consumer, the channel goes
        reader._channel.raw.add_on_cancel_callback(lambda _frame: reader._channel.raw.close())
        await reader._answer()
        consume = {"queue": book, "on_message_callback": reader._arrived, "arguments": {OFFSET: "first"}}
        await reader._channel.ask(book, "basic_consume", **consume)
        return reader

    async def destinations(self) -> Mapping[str, Layout]:
        """Return all that are entered. Raises `BackendUnavailable`."""
        before = -1
        while before != self._read:
            before = self._read
            if self._tag:
                self._channel.raw.basic_ack(self._tag, multiple=True)
                self._tag = 0
            await self._answer()
        return self._contents.destinations

    async def _answer(self) -> None:
        """Wait for an answer: what is stored so far comes before it, as far as the credit goes."""
        await self._channel.ask(self._book, "basic_qos", prefetch_count=_PREFETCH)

    def _arrived(self, _channel: object, method: Any, properties: Properties, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._contents.read(int((properties.headers or {}).get(OFFSET, 0)), body)
        self._read += 1
        self._tag = method.delivery_tag
