"""kafka-python's connections, with corrections: the library leaves sockets open, hides reasons and creates topics."""

import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from kafka import KafkaConsumer
from kafka import errors as kafka
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.consumer import JoinGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from adapters.kafka import errors
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.security import connection_settings

BOOTSTRAP_TIMEOUT: Final = 4_000
"""Milliseconds in which one of the servers must answer."""
_CUT_SHORT: Final = "timed out"
"""In the error of an attempt that was under way at the end of `BOOTSTRAP_TIMEOUT`: those before it say more."""
_CONNECTING: Final = 20.0
_INFORMING: Final = 3
"""Requests for the metadata of a group's topics: one under way may not name them, and a topic may be deleted."""


for _name in ("kafka.protocol.parser", "kafka.net.connection", "kafka.admin.client"):
    # At debug they log what is sent byte by byte, and settings: the login's password and token among them.
    logging.getLogger(_name).addFilter(lambda record: record.levelno > logging.DEBUG)


class _Corrected:
    """Reads the last bytes before the end of a connection: the library drops them, and the reason of a failed login.

    Writes at once: the library first waits until it can, which takes two system calls and a round of its loop.
    """

    async def _write_to_sock(self) -> None:
        _, error = self._sock_send()  # type: ignore[attr-defined] # of the class that it is mixed into
        if error is None:
            await super()._write_to_sock()  # type: ignore[misc] # the same; writes what is left
        else:
            self._writing = False
            self.abort(error=error)  # type: ignore[attr-defined] # the same

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        received, error = super()._sock_recv()  # type: ignore[misc] # of the class that it is mixed into
        return received, None if received else error  # an end is read again the next time


class _TcpTransport(_Corrected, KafkaTCPTransport):  # type: ignore[misc] # has no types
    pass


class _TlsTransport(_Corrected, KafkaSSLTransport):  # type: ignore[misc] # has no types
    pass


class _Direct(KafkaNetSocket):  # type: ignore[misc] # has no types
    """Connects, and closes the socket if that is refused: the library left one open each second without a broker."""

    SCHEMES = ("direct",)
    """How `create_connection` finds this class."""

    async def sock_connect(
        self, net: NetworkSelector, sock: socket.socket, sockaddr: object, timeout_at: float | None = None
    ) -> socket.socket:
        try:
            connected: socket.socket = await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        return connected


class Connections(KafkaConnectionManager):  # type: ignore[misc] # has no types
    """The connections of one client."""

    def __init__(self, net: NetworkSelector, **configs: Any) -> None:  # noqa: ANN401 - the library's settings
        super().__init__(net, **configs)
        # 3.0.12 does not hand this setting on: the brokers' own default would make every topic that is only asked for
        self.cluster.config["allow_auto_create_topics"] = False
        self._transports: WeakSet[KafkaTCPTransport] = WeakSet()
        self.failure: BaseException | None = None
        """Why the last connection that failed did so."""

    def get_connection(self, node_id: int | str, *args: Any, **kwargs: Any) -> KafkaConnection:  # noqa: ANN401 - as above
        """Return a connection to a node, that exists or is being made; remember why it fails."""
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, *args, **kwargs)
        if connection is not known:
            connection.init_future.add_errback(self._failed)
            connection.close_future.add_errback(self._failed)
        return connection

    def maybe_raise_auth_failure(self, node_id: int | str) -> None:
        """Do nothing: else a refused login would be the last attempt, also after the broker's password is corrected."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Awaitable[Any]:  # noqa: ANN401 - the library's
        """Send a request; see `_informed`."""
        answer: Awaitable[Any] = super().send(request, *args, **kwargs)
        return self._informed(answer) if isinstance(request, JoinGroupRequest) else answer

    async def _informed(self, answer: Awaitable[Any]) -> Any:  # noqa: ANN401 - the library's
        """Hand a leader the answer to its joining once it has every topic of the group.

        3.0.12 shares out nothing of a topic that only others have subscribed to, and finds that out 2 s later: a first
        pull of the second destination of a consumer id missed what was there.
        """
        joined = await answer
        metadata = (ConsumerProtocolSubscription.decode(member.metadata) for member in joined.members)
        topics = {topic for each in metadata for topic in each.topics}
        for _ in range(_INFORMING):
            if all(self.cluster.partitions_for_topic(topic) is not None for topic in topics):
                break
            self.cluster.set_topics(topics)
            with contextlib.suppress(kafka.KafkaError):
                await self.cluster.refresh_metadata()
        return joined

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> KafkaTCPTransport:  # noqa: ANN401 - a named tuple
        """Connect, and close the socket if TLS fails; the library leaves it open."""
        sock = await create_connection(
            self._net, node.host, node.port, self.config["socket_options"], "direct://", timeout_at=timeout_at
        )
        transport = None
        try:
            if self.ssl_enabled:
                context = {"ssl_context": self.config["ssl_context"]}
                transport = _TlsTransport(self._net, sock, host=node.host, **context)
            else:
                transport = _TcpTransport(self._net, sock, host=node.host)
            self._transports.add(transport)
            await transport.handshake()
        except Exception as error:
            (sock if transport is None else transport._sock).close()  # noqa: SLF001 - its own close waits to write
            raise kafka.KafkaConnectionError(f"Handshake failed: {error}") from error
        return transport

    def close_sockets(self) -> None:
        """Close the sockets that are open after the loop has ended: the library waits to write, or for a handshake."""
        for transport in self._transports:
            sock, transport._sock = transport._sock, None  # noqa: SLF001 - as above
            if sock is not None:
                sock.close()

    def _failed(self, reason: BaseException) -> None:
        if self.bootstrapped or self.failure is None or _CUT_SHORT not in str(reason):
            self.failure = reason
        if isinstance(reason, errors.REFUSALS) and not self.bootstrapped:
            self.closed = True  # ends the attempts: ten refused logins in a row may lock a user out


class Client(KafkaNetClient):  # type: ignore[misc] # has no types
    """What kafka-python's own classes take as their setting `kafka_client`."""

    def __init__(self, **configs: Any) -> None:  # noqa: ANN401 - the library's settings
        net = NetworkSelector(**configs)
        self.connections = Connections(net, **configs)
        super().__init__(net=net, manager=self.connections)

    def close(self, node_id: int | str | None = None) -> None:
        """End the connection to one node, or everything."""
        if node_id is None and self._net._io_thread is not None:  # noqa: SLF001 - says nothing of it
            # The library takes the sockets away under its thread, which then logs a traceback when it reads one.
            with contextlib.suppress(Exception):  # the thread has ended by an error: nothing reads then
                self._net.run(self.connections.close)
        super().close(node_id)
        if node_id is None:
            self.connections.close_sockets()

    def connection_delay(self, node_id: int | str) -> float:
        """Milliseconds until a node may be connected to; a little while it is being connected to.

        The library's returns seconds, and 0 meanwhile: its sender takes them for ms, and goes round without a pause.
        """
        return float(self.connections.connection_delay(node_id) * 1000 or _CONNECTING)


def _make(kind: Callable[..., Any], options: Options, clients: list[Client], **more: object) -> Any:  # noqa: ANN401 - has no types
    """Call a constructor of the library; `clients` gets its network client as soon as that exists."""

    def client(**configs: Any) -> Client:  # noqa: ANN401 - the library's settings
        clients.append(Client(**configs))
        return clients[-1]

    timeouts = {"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT, "request_timeout_ms": REQUEST_TIMEOUT}
    return kind(**connection_settings(options), **timeouts, **more, kafka_client=client)


def connect(kind: Callable[..., Any], options: Options, clients: list[Client] | None = None, **more: object) -> Any:  # noqa: ANN401 - has no types
    """Return one of the library's clients, connected. Raises `BackendUnavailable`; nothing is left to close then.

    `clients` gets its network client at once, so that another thread can end the attempts.
    """
    clients = [] if clients is None else clients
    try:
        return _make(kind, options, clients, **more)
    except Exception as error:  # its threads and sockets may exist already
        for client in clients:
            client.close()
        failure = clients[-1].connections.failure if clients else None
        raise errors.no_connection(options, failure or error) from error


@contextmanager
def reading(options: Options, **more: object) -> Iterator[KafkaConsumer]:
    """Read without a group, so that no group's offsets move. Raises kafka-python's errors."""
    clients: list[Client] = []
    try:
        yield _make(KafkaConsumer, options, clients, enable_auto_commit=False, metrics_enabled=False, **more)
    finally:
        for client in clients:  # not the consumer: if its constructor has failed, its threads and sockets exist
            client.close()
