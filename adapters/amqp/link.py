"""A connection to the broker that is opened again automatically."""

import asyncio
import logging
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from adapters.amqp.channel import Channel
from adapters.amqp.connection import Connection, connect
from adapters.amqp.errors import RESOURCE_LOCKED, blocked, closing, of_connection
from adapters.amqp.settings import REQUEST_TIMEOUT, ConnectionSettings
from bridge.errors import BackendUnavailable, BridgeError
from bridge.url_host import url_host

_PAUSES: Final = (0.1, 2.0)
"""Seconds between attempts to reconnect: the first pause and the longest; each is twice the one before."""
_CLOSE_TIMEOUT: Final = 3.0
"""Seconds for an orderly close; during an alarm, or if it hangs, the broker does not read the request."""
_log = logging.getLogger("bridge.rabbitmq")

Version = tuple[int, int, int]


class Link:
    """A connection for one purpose: an alarm of the broker blocks those that publish, and only those.

    `on_connected` is called each time it is opened, `on_lost` each time it is lost, with the reason, when all channels
    are closed, and `on_unblocked` each time an alarm ends. They are called on the event loop and must return at once.
    """

    def __init__(self, options: ConnectionSettings, purpose: str) -> None:
        self._options = options
        self._purpose = purpose
        self._connection: Connection | None = None
        self.failure = BackendUnavailable("RabbitMQ: there is no connection yet.")
        """Why there is no connection."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._closing = False
        self.on_connected: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[BackendUnavailable], None]] = []
        self.on_unblocked: list[Callable[[], None]] = []
        self.version: Version = (0, 0, 0)
        """Of the broker, from `connection.start`."""
        self.blocked: str | None = None
        """The alarm because of which the broker accepts no messages now; None: there is none."""

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection.is_open

    @property
    def congested(self) -> bool:
        """Whether the broker reads more slowly than the bridge writes."""
        return self._connection is not None and self._connection.congested

    @property
    def channel_max(self) -> int:
        """How many channels the broker allows; 0 without a connection."""
        return 0 if self._connection is None else int(self._connection.params.channel_max)

    async def start(self) -> None:
        """Connect for the first time. Raises `BackendUnavailable`; may be called again then."""
        if self._connection is None:
            if self._reconnecting is not None:
                raise BackendUnavailable(self.failure.detail)
            await self._connect()

    async def channel(self) -> Channel:
        """Open a channel. Raises `BackendUnavailable`; during an alarm at once, and the connection stays open.

        The broker reads nothing until the alarm ends, so a missing answer does not mean that it hangs.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            raise BackendUnavailable(self.failure.detail)
        if self.blocked is not None:
            raise blocked(self.blocked)
        opened: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        try:
            connection.channel(on_open_callback=partial(_opened, opened))
        except pika.exceptions.AMQPError as error:
            raise of_connection(error) from error
        await asyncio.wait(
            (opened, connection.lost), timeout=REQUEST_TIMEOUT / 1000, return_when=asyncio.FIRST_COMPLETED
        )
        if opened.done():
            return opened.result()
        opened.cancel()
        if self.blocked is not None:  # the alarm began meanwhile; a channel that opens later is closed
            raise blocked(self.blocked)
        connection.close_unresponsive()  # a broker that hangs can still send heartbeats: seen for more than 30 s
        raise BackendUnavailable(
            self.failure.detail if connection.lost.done() else "RabbitMQ does not answer, or is closing the connection."
        )

    @asynccontextmanager
    async def temporary_channel(self) -> AsyncIterator[Channel]:
        """Open a channel, and close it at the end. Raises `BackendUnavailable`."""
        channel = await self.channel()
        try:
            yield channel
        finally:
            await channel.close()

    async def lock(self, queue: str) -> Channel | None:
        """Return a channel that holds a lock among all programs of the broker; None: another connection holds it.

        The lock is an exclusive queue, which is deleted with its consumer, and that with the channel. Raises `Refused`
        or `BackendUnavailable`.
        """
        channel = await self.channel()
        try:
            await channel.ask(queue, "queue_declare", queue=queue, exclusive=True, auto_delete=True)
            await channel.consume(queue, lambda *_: None, auto_ack=True)  # no program publishes to a lock
        except BaseException as error:
            reason = channel.ended.result() if channel.ended.done() else None
            is_locked = isinstance(reason, ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED
            if is_locked and isinstance(error, BridgeError):
                return None
            await channel.close()
            raise
        return channel

    async def close(self) -> None:
        """Close it, and do not reconnect. Idempotent."""
        self._closing = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait((self._reconnecting,))
        connection = self._connection
        if connection is None:
            return
        if connection.is_open:
            connection.close()
        await asyncio.wait((connection.lost,), timeout=_CLOSE_TIMEOUT)
        if not connection.lost.done():
            connection.abort()
            await asyncio.wait((connection.lost,))

    async def _connect(self) -> None:
        """Try the servers in order. Raises `BackendUnavailable` with the reason of the last one."""
        context = self._context() if self._options.security.tls else None
        for host, port in self._options.servers:
            try:
                connection = await connect(self._parameters(host, port), context)
            except (AMQPError, OSError, TimeoutError) as error:
                self.failure = of_connection(error, f"{url_host(host)}:{port}")
                self.failure.__cause__ = error
            else:
                if self._closing:
                    connection.abort()
                    await asyncio.wait((connection.lost,))
                    raise closing()
                self._connected(connection)
                return
        raise BackendUnavailable(self.failure.detail) from self.failure.__cause__

    def _connected(self, connection: Connection) -> None:
        self._connection = connection
        self.blocked = None
        self.version = read_version(str((connection.server_properties or {}).get("version", "")))
        connection.add_on_close_callback(self._on_close)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        for listener in self.on_connected:
            listener()

    def _on_close(self, _connection: Connection, reason: BaseException) -> None:
        self._connection = None
        self.blocked = None
        self.failure = of_connection(reason)
        for listener in self.on_lost:
            listener(self.failure)
        if not self._closing:
            _log.info("%s", self.failure, extra={"connection": self._purpose})
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        pause, longest = _PAUSES
        while not self._closing:
            # jitter: bridges that lost the same broker do not reconnect at the same time
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            try:
                await self._connect()
            except BackendUnavailable:
                pause = min(pause * 2, longest)
            else:
                _log.info("RabbitMQ is connected again.", extra={"connection": self._purpose})
                return

    def _on_blocked(self, _connection: Connection, frame: Any) -> None:  # noqa: ANN401 - a frame of pika's
        self.blocked = str(frame.method.reason)
        _log.warning("RabbitMQ accepts no messages: %s", self.blocked, extra={"connection": self._purpose})

    def _on_unblocked(self, _connection: Connection, _frame: object) -> None:
        self.blocked = None
        _log.warning("RabbitMQ accepts messages again.", extra={"connection": self._purpose})
        for listener in self.on_unblocked:
            listener()

    def _parameters(self, host: str, port: int) -> pika.ConnectionParameters:
        security = self._options.security
        return pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=self._options.vhost,
            credentials=(
                pika.credentials.ExternalCredentials()
                if security.external
                else pika.PlainCredentials(security.user, security.password)
            ),
            heartbeat=max(1, self._options.heartbeat // 1000),
            client_properties={"connection_name": f"openmessaging-bridge {self._purpose}"},
        )

    def _context(self) -> ssl.SSLContext:
        """Read the files each time: certificates are renewed while the bridge runs."""
        security = self._options.security
        try:
            context = ssl.create_default_context(cafile=security.ca)
            if security.certificate is not None:
                context.load_cert_chain(security.certificate, security.key)
        except OSError as error:
            reason = (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or str(error)
            self.failure = BackendUnavailable(
                f"RabbitMQ: a file of ca=, certificate= or key= cannot be used ({reason})."
            )
            raise BackendUnavailable(self.failure.detail) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def read_version(text: str) -> Version:
    """Return the three numbers of `3.10.8` or `4.1.0-rc.1`; missing ones are 0."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (0, 0, 0) if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def _opened(opened: "asyncio.Future[Channel]", raw: Any) -> None:  # noqa: ANN401 - a channel of pika's
    if opened.done():  # no caller waits for it any more
        raw.close()
    else:
        opened.set_result(Channel(raw))
