"""The bridges' book, read along: which destinations there are."""

from collections.abc import Mapping
from typing import Any, Final, Self

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.records import Contents
from bridge.mirror.sources.rabbitmq.probes import OFFSET

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
