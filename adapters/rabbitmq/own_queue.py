"""A queue that is this bridge's alone: no other has its name, and the broker drops it with its connection."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import uuid4

from pika import BasicProperties
from pika.exceptions import ChannelClosed

from adapters.rabbitmq.channel import Channel
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.options import REQUEST_TIMEOUT
from bridge.errors import BackendUnavailable, BridgeError

_PAUSE: Final = (0.1, 0.3)
"""Seconds between attempts to have one again."""
_log = logging.getLogger("bridge.rabbitmq")

Arrived = Callable[[BasicProperties, bytes], None]


class OwnQueue:
    """Bound to a direct exchange with keys that come and go. If it is lost another is made, under another name."""

    def __init__(  # noqa: PLR0913 - what happens to it, each a callback
        self,
        link: Link,
        exchange: str,
        keys: Callable[[], Iterable[str]],
        *,
        arrived: Arrived,
        lost: Callable[[bool], None],
        again: Callable[[], None],
    ) -> None:
        """`lost` is told whether the connection is lost with it, `again` called when there is another one."""
        self.name: str | None = None
        """None: there is none at the moment."""
        self._link = link
        self._exchange = exchange
        self._keys = keys
        self._arrived = arrived
        self._lost = lost
        self._again = again
        self._channel: Channel | None = None
        self._made = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make it for the first time. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        if self._keeping is None:
            channel = await self._make()
            self._keeping = asyncio.create_task(self._keep(channel))

    async def close(self) -> None:
        """Drop it. Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        self.name = None
        if self._channel is not None:
            await self._channel.close()

    async def ready(self) -> str:
        """Return its name, waiting while it is made anew. Raises `BackendUnavailable`."""
        if self._link.up and self.name is None:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT / 1000):
                    await self._made.wait()
            except TimeoutError:
                raise BackendUnavailable("RabbitMQ: this bridge has no queue of its own at the moment.") from None
        if self.name is None:
            raise BackendUnavailable(self._link.failure.detail)
        return self.name

    async def bind(self, key: str) -> None:
        """Receive what is published with a key. Raises `BackendUnavailable` or `Refused`."""
        name = await self.ready()
        if self._channel is not None:
            await self._bind(self._channel, name, key)

    def unbind(self, key: str) -> None:
        """Receive it no more; a `bind` that comes after it wins."""
        if self.name is not None and self._channel is not None and self._channel.open:
            self._channel.raw.queue_unbind(self.name, self._exchange, key, callback=lambda _frame: None)

    def renew(self) -> None:
        """Drop it and make another: something about it is not as it should be."""
        if self._channel is not None and self._channel.open:
            self._channel.raw.close()

    async def _keep(self, channel: Channel) -> None:
        while True:
            await asyncio.wait((channel.ended,))
            self.name = None
            self._made.clear()
            connection_lost = not isinstance(channel.ended.result(), ChannelClosed)
            if not connection_lost:
                _log.warning(
                    "this bridge's own queue is gone: another is made", extra={"error": channel.ended.result()}
                )
            self._lost(connection_lost)
            channel = await self._make_again()

    async def _make_again(self) -> Channel:
        while True:
            await asyncio.sleep(random.uniform(*_PAUSE))  # noqa: S311 - no secret
            if not self._link.up:
                continue
            try:
                channel = await self._make()
            except BackendUnavailable as error:
                _log.info("no queue of its own yet: %s", error)
            except BridgeError as error:
                _log.warning("no queue of its own: %s", error)
            else:
                self._again()
                return channel

    async def _make(self) -> Channel:
        channel = self._channel = await self._link.channel()
        raw, what = channel.raw, self._exchange
        raw.add_on_cancel_callback(lambda _frame: raw.is_open and raw.close())  # somebody has deleted it
        try:
            await channel.ask(what, "exchange_declare", exchange=what, exchange_type="direct", durable=True)
            # Not one that the broker names: reading `amq.gen-.*` would be a permission for everybody's.
            name = f"{what}.{uuid4().hex}"
            await channel.ask(what, "queue_declare", queue=name, exclusive=True, auto_delete=True)
            for key in list(self._keys()):
                await self._bind(channel, name, key)
            await channel.ask(what, "basic_consume", queue=name, on_message_callback=self._receive, auto_ack=True)
        except BaseException:
            await channel.close()
            raise
        self.name = name
        self._made.set()
        return channel

    async def _bind(self, channel: Channel, name: str, key: str) -> None:
        await channel.ask(self._exchange, "queue_bind", queue=name, exchange=self._exchange, routing_key=key)

    def _receive(self, _channel: object, _method: object, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._arrived(properties, body)
