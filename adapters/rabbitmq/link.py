"""One connection to the broker that comes back by itself."""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from adapters.rabbitmq.channel import Channel
from adapters.rabbitmq.options import CONNECT_TIMEOUT, REQUEST_TIMEOUT, Options
from adapters.rabbitmq.outcomes import of_connection
from bridge.errors import BackendUnavailable

_PAUSES: Final = (0.1, 5.0)
"""Seconds between attempts to come back: the first pause and the longest, each doubled from the one before."""
_log = logging.getLogger("bridge.rabbitmq")

Version = tuple[int, int, int]


class Link:
    """A connection with a purpose of its own: an alarm of the broker blocks those that publish, and only those.

    `came` is called each time it is there, `gone` each time it is lost, with the reason; both on the event loop, and
    they return at once. All channels are closed by then.
    """

    def __init__(self, options: Options, purpose: str) -> None:
        self._options = options
        self._purpose = purpose
        self._connection: AsyncioConnection | None = None
        self._failure: BackendUnavailable = BackendUnavailable("RabbitMQ: there is no connection yet.")
        self._coming_back: asyncio.Task[None] | None = None
        self._closing = False
        self._lost: asyncio.Future[None] | None = None
        self.came: list[Callable[[], None]] = []
        self.gone: list[Callable[[BackendUnavailable], None]] = []
        self.version: Version = (0, 0, 0)
        """Of the broker, from `connection.start`."""
        self.blocked: str | None = None
        """Why the broker takes no messages on this connection at the moment."""

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    @property
    def failure(self) -> BackendUnavailable:
        """Why there is none."""
        return self._failure

    async def start(self) -> None:
        """Connect for the first time. Raises `BackendUnavailable`; may be called again then."""
        if self._connection is None:
            await self._connect()

    async def channel(self) -> Channel:
        """Open a channel. Raises `BackendUnavailable`."""
        connection = self._connection
        if connection is None:
            raise BackendUnavailable(self._failure.detail)
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost = self._lost
        assert lost is not None
        try:
            connection.channel(on_open_callback=lambda raw: opened.done() or opened.set_result(Channel(raw)))
        except pika.exceptions.AMQPError as error:
            raise of_connection(error) from error
        await asyncio.wait((opened, lost), timeout=REQUEST_TIMEOUT / 1000, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            opened.cancel()
            raise BackendUnavailable(self._failure.detail if lost.done() else "RabbitMQ does not answer.")
        channel: Channel = opened.result()
        return channel

    async def close(self) -> None:
        """Close it, and let it not come back. Idempotent."""
        self._closing = True
        if self._coming_back is not None:
            self._coming_back.cancel()
            await asyncio.wait((self._coming_back,))
        connection, lost = self._connection, self._lost
        if connection is not None and lost is not None:
            if connection.is_open:
                connection.close()
            await asyncio.wait((lost,), timeout=REQUEST_TIMEOUT / 1000)

    async def _connect(self) -> None:
        done: asyncio.Future[AsyncioConnection] = asyncio.get_running_loop().create_future()

        def on_done(result: object) -> None:
            if done.done():
                if isinstance(result, AsyncioConnection):
                    result.close()
            elif isinstance(result, AsyncioConnection):
                done.set_result(result)
            else:
                done.set_exception(_innermost(result))

        try:
            workflow = AsyncioConnection.create_connection(self._parameters(), on_done=on_done)
        except OSError as error:  # a certificate that cannot be read
            self._failure = of_connection(error)
            raise self._failure from error
        try:
            connection = await done
        except asyncio.CancelledError:
            workflow.abort()
            raise
        except Exception as error:
            self._failure = of_connection(error)
            raise BackendUnavailable(self._failure.detail) from error
        self._connected(connection)

    def _connected(self, connection: AsyncioConnection) -> None:
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        self.blocked = None
        self.version = read_version(str((connection.server_properties or {}).get("version", "")))
        connection.add_on_close_callback(self._on_close)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        for listener in self.came:
            listener()

    def _on_close(self, _connection: AsyncioConnection, reason: BaseException) -> None:
        self._connection = None
        self.blocked = None
        self._failure = of_connection(reason)
        if self._lost is not None:
            self._lost.set_result(None)
        for listener in self.gone:
            listener(self._failure)
        if not self._closing:
            _log.warning("%s", self._failure, extra={"connection": self._purpose})
            self._coming_back = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        pause, longest = _PAUSES
        while not self._closing:
            # jitter: bridges that lost the same broker at once do not come back at once
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            try:
                await self._connect()
            except BackendUnavailable:
                pause = min(pause * 2, longest)
            else:
                _log.warning("RabbitMQ is back.", extra={"connection": self._purpose})
                return

    def _on_blocked(self, _connection: AsyncioConnection, frame: Any) -> None:  # noqa: ANN401 - a frame of pika's
        self.blocked = str(frame.method.reason)
        _log.warning("RabbitMQ takes no messages: %s", self.blocked, extra={"connection": self._purpose})

    def _on_unblocked(self, _connection: AsyncioConnection, _frame: object) -> None:
        self.blocked = None
        _log.warning("RabbitMQ takes messages again.", extra={"connection": self._purpose})

    def _parameters(self) -> list[pika.ConnectionParameters]:
        options, security = self._options, self._options.security
        context = _context(options) if security.tls else None
        return [
            pika.ConnectionParameters(
                host=host,
                port=port,
                virtual_host=options.vhost,
                credentials=(
                    pika.credentials.ExternalCredentials()
                    if security.external
                    else pika.PlainCredentials(security.user, security.password)
                ),
                heartbeat=options.heartbeat // 1000,
                ssl_options=None if context is None else pika.SSLOptions(context, host),
                socket_timeout=CONNECT_TIMEOUT / 1000,
                stack_timeout=CONNECT_TIMEOUT / 1000,
                client_properties={"connection_name": f"openmessaging-bridge {self._purpose}"},
            )
            for host, port in options.servers
        ]


def read_version(text: str) -> Version:
    """Return the three numbers of `3.10.8` or `4.1.0-rc.1`; what is no number counts as 0."""
    numbers = [int(digits) if digits.isdigit() else 0 for digits in text.partition("-")[0].split(".")]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch


def _context(options: Options) -> ssl.SSLContext:
    security = options.security
    context = ssl.create_default_context(cafile=security.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.certificate is not None:
        context.load_cert_chain(security.certificate, security.key)
    return context


def _innermost(error: Any) -> BaseException:  # noqa: ANN401 - pika's exceptions within exceptions
    """Return what pika has wrapped: the workflow's last failure, and of that the phase's."""
    while isinstance(error, AMQPConnectorException):
        inner = getattr(error, "exception", None) or (getattr(error, "exceptions", None) or (None,))[-1]
        if inner is None:
            break
        error = inner
    return error if isinstance(error, BaseException) else RuntimeError(str(error))
