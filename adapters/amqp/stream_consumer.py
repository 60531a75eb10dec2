"""Reads a stream of RabbitMQ: one consumer on its own channel."""

import asyncio
from collections.abc import Callable
from typing import Final, Self

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival
from bridge.errors import BackendUnavailable, BridgeError

_OFFSET: Final = "x-stream-offset"
"""An argument of the consumer, and a header of its messages."""


class Reader:
    """All messages of a stream, from the oldest or from an offset on, in order.

    RabbitMQ 3.10 closes the connection if messages of a stream are returned, also by cancelling a consumer with pika.
    So a reader acknowledges, or closes its channel.
    """

    def __init__(self, channel: Channel, stream: str) -> None:
        self._channel = channel
        self._stream = stream
        self.failed: asyncio.Future[BridgeError] = asyncio.get_running_loop().create_future()
        """Done, with the reason, once no more messages will arrive; it never raises."""

    @classmethod
    async def open(
        cls, link: Link, stream: str, prefetch: int, on_arrival: "OnArrival", start: int | str = "first"
    ) -> Self:
        """Read from the offset `start`; at most `prefetch` messages are unacknowledged at a time.

        If no message has that offset, RabbitMQ begins with the oldest one, or waits for new ones.

        Raises `DestinationUnknown` if the stream does not exist, `Refused` or `BackendUnavailable`.
        """
        channel = await link.channel()
        reader = cls(channel, stream)
        channel.ended.add_done_callback(reader._ended)
        channel.raw.add_on_cancel_callback(reader._cancelled)

        def delivered(_consumer: str, arrival: Arrival) -> None:
            if channel.open:
                on_arrival(reader, int((arrival.properties.headers or {}).get(_OFFSET, 0)), arrival)

        try:
            await channel.ask(stream, "basic_qos", prefetch_count=prefetch)
            await channel.consume(stream, delivered, arguments={_OFFSET: start})
        except BaseException:
            await channel.close()
            raise
        return reader

    def done(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge a message, or with `multiple` all up to this one."""
        if self._channel.open:
            self._channel.raw.basic_ack(tag, multiple)

    async def close(self) -> None:
        """Stop reading."""
        await self._channel.close()

    def _ended(self, ended: asyncio.Future[BaseException]) -> None:
        if not self.failed.done():
            self.failed.set_result(of_channel(ended.result(), self._stream))

    def _cancelled(self, _frame: object) -> None:
        if not self.failed.done():
            self.failed.set_result(BackendUnavailable(f"{self._stream}: the stream was deleted, or has no leader."))


OnArrival = Callable[[Reader, int, Arrival], None]
"""Called with the offset and the message, which it acknowledges with `Reader.done`."""
