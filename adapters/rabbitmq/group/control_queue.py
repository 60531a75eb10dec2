"""The control queue of a bridge: exclusive, so it ends with the connection, and bound to a fanout exchange."""

import asyncio
import logging
import random
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from uuid import uuid4

from pika import BasicProperties

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.settings import REQUEST_TIMEOUT
from bridge.errors import BackendUnavailable, BridgeError

_PAUSE: Final = (0.1, 0.3)
"""Seconds between attempts to declare another."""
_log = logging.getLogger("bridge.rabbitmq")

Arrived = Callable[[BasicProperties, bytes], None]


class ControlQueue:
    """If the queue is lost, another one is declared, `<identity>.<number>`: RabbitMQ may still have the former."""

    def __init__(self, link: Link, exchange: str, arrived: Arrived, declared: Callable[[], None]) -> None:
        """`declared` is called each time that there is a new queue."""
        # Not named by the broker: a permission to read `amq.gen-.*` would be one to read those of all users.
        self.identity = f"{exchange}.{uuid4().hex}"
        self.name: str | None = None
        """None: there is none at the moment."""
        self._link = link
        self._exchange = exchange
        self._arrived = arrived
        self._declared = declared
        self._numbers = count(1)
        self._channel: Channel | None = None
        self._there = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Declare the first one. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        if self._keeping is None:
            channel = await self._declare()
            self._keeping = asyncio.create_task(self._keep(channel))

    async def close(self) -> None:
        """Delete it. Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        self.name = None
        if self._channel is not None:
            await self._channel.close()

    async def ready(self) -> None:
        """Wait while there is none. Raises `BackendUnavailable`."""
        if self._link.up and self.name is None:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT / 1000):
                    await self._there.wait()
            except TimeoutError:
                raise BackendUnavailable("RabbitMQ: this bridge has no control queue at the moment.") from None
        if self.name is None:
            raise BackendUnavailable(self._link.failure.detail)

    def renew(self) -> None:
        """Replace it: it receives nothing."""
        if self._channel is not None and self._channel.open:
            self._channel.raw.close()

    async def _keep(self, channel: Channel) -> None:
        while True:
            await asyncio.wait((channel.ended,))
            self.name = None
            self._there.clear()
            if self._link.up:
                _log.warning("the control queue was lost, another one follows", extra={"error": channel.ended.result()})
            channel = await self._declare_again()

    async def _declare_again(self) -> Channel:
        while True:
            await asyncio.sleep(random.uniform(*_PAUSE))  # noqa: S311 - no secret
            if not self._link.up:
                continue
            try:
                return await self._declare()
            except BridgeError as error:
                _log.warning("the bridge has no control queue: %s", error)

    async def _declare(self) -> Channel:
        channel = self._channel = await self._link.channel()
        raw, what = channel.raw, self._exchange
        raw.add_on_cancel_callback(lambda _frame: raw.is_open and raw.close())  # it was deleted
        name = f"{self.identity}.{next(self._numbers)}"
        try:
            await channel.ask(what, "exchange_declare", exchange=what, exchange_type="fanout", durable=True)
            await channel.ask(what, "queue_declare", queue=name, exclusive=True, auto_delete=True)
            await channel.ask(what, "queue_bind", queue=name, exchange=what, routing_key="")
            await channel.ask(what, "basic_consume", queue=name, on_message_callback=self._receive, auto_ack=True)
        except BaseException:
            await channel.close()
            raise
        self.name = name
        self._there.set()
        self._declared()
        return channel

    def _receive(self, _channel: object, _method: object, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._arrived(properties, body)
