"""pika's connection on asyncio's own transports.

It replaces pika's own adapter for asyncio. That one makes a system call for each frame and reads 4 KiB at a time (here
each iteration of the event loop writes once), cannot be cancelled during the handshake (`AMQPConnector.abort` fails an
assertion), and tries no other server if one name cannot be resolved.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, cast

import pika
import pika.connection
from pika import exceptions, frame

from adapters.amqp.errors import ClosedInTLS
from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.amqp.settings import CONNECT_TIMEOUT

_HEAD: Final = Struct(">BHI")
_CONFIRM: Final = Struct(">BHIIQB")
_CONTENT: Final = Struct(">HHQ")
_METHOD_OF: Final = Struct(">I")
_TAG: Final = Struct(">QB")
_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_ACK: Final = 0x003C_0050
_NACK: Final = 0x003C_0078
_DELIVER: Final = 0x003C_003C
_OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

Confirmed = Callable[[int, bool, bool], None]
"""Called with a delivery tag, whether all earlier ones are confirmed as well, and whether it is an ack."""


Delivered = Callable[[str, Arrival], None]
"""Called with the consumer tag and the message."""


class _Delivery:
    """A message whose frames have not all arrived."""

    __slots__ = ("consumer", "left", "pieces", "properties", "redelivered", "routing_key", "tag")

    def __init__(self, data: bytes, at: int) -> None:
        """Read the arguments of `basic.deliver`."""
        tag_at = at + 1 + data[at]
        self.consumer = data[at + 1 : tag_at].decode()
        self.tag, self.redelivered = _TAG.unpack_from(data, tag_at)
        key_at = tag_at + _TAG.size + 1 + data[tag_at + _TAG.size]
        self.routing_key = data[key_at + 1 : key_at + 1 + data[key_at]].decode("utf-8", "replace")
        self.properties: Properties | None = None
        self.left = 0
        """Bytes of the body that have not arrived."""
        self.pieces: list[bytes] = []


class Connection(pika.connection.Connection, asyncio.Protocol):  # type: ignore[misc] # pika has no types
    """One connection. The channels are pika's."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._unread = b""
        self._secured = False
        self._cause: Exception | None = None
        self._handshake: asyncio.Future[BaseException | None] = self._loop.create_future()
        """Done when it is open, or with the reason why it failed."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when it and all its channels are closed."""
        self.congested = False
        """Whether the broker reads more slowly than the bridge writes."""
        self.confirmed: dict[int, Confirmed] = {}
        """Callbacks for confirms, by channel: pika's dispatch takes longer than the rest of a publish."""
        self.delivered: dict[int, Delivered] = {}
        """Callbacks for deliveries, by channel: pika's dispatch takes half of the time of a delivery."""
        self._deliveries: dict[int, _Delivery] = {}
        """Incomplete deliveries, by channel."""
        super().__init__(
            parameters,
            on_open_callback=lambda _connection: self._handshake.set_result(None),
            on_open_error_callback=self._on_not_opened,
            internal_connection_workflow=False,
        )

    async def open(self) -> None:
        """Wait until it is open. Raises the reason why it failed."""
        await asyncio.wait((self._handshake,))
        if error := self._handshake.result():
            raise error
        if self.lost.done():
            raise exceptions.StreamLostError("just after it was opened")

    def abort(self) -> bool:
        """Close the socket at once; return whether there is one, and `lost` will be done soon."""
        if self._transport is None:
            return False
        self._transport.abort()
        return True

    def close_unresponsive(self) -> None:
        """Close the socket as if heartbeats were missing: the broker does not answer."""
        if not self.lost.done():
            self._terminate_stream(exceptions.AMQPHeartbeatTimeout("no answer"))

    def forget(self, channel: int) -> None:
        """Remove the callbacks of a closed channel."""
        self.confirmed.pop(channel, None)
        self.delivered.pop(channel, None)
        self._deliveries.pop(channel, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._secured = transport.get_extra_info("ssl_object") is not None
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._on_stream_connected()

    def data_received(self, data: bytes) -> None:
        """Split received data into frames; an incomplete one waits for the rest."""
        self.bytes_received += len(data)
        data = self._unread + data if self._unread else data
        at, size = 0, len(data)
        while size - at >= _OVERHEAD:
            kind, channel, length = _HEAD.unpack_from(data, at)
            end = at + length + _OVERHEAD
            if end > size or data.startswith(b"AMQP", at):
                break
            if channel in self.delivered and self._deliver(kind, channel, data, at + _HEAD.size, end - 1):
                pass
            elif kind == _HEADER:
                self._process_frame(_header(channel, data[at + _HEAD.size : end - 1]))
            elif kind != _METHOD or channel not in self.confirmed or not self._confirm(channel, data, at):
                self._process_frame(frame.decode_frame(data[at:end])[1])
            at = end
        self._unread = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        """Notify pika, which notifies the channels first and the owner of the connection last."""
        self._transport = None
        self._cause = error
        lost = None
        if error is not None:
            lost = exceptions.StreamLostError(str(error))
            lost.__cause__ = error
        elif self._error is None:
            lost = exceptions.StreamLostError("the broker closed it and gave no reason")
        self._on_stream_terminated(lost)
        self.lost.set_result(None)

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self.congested = True

    def resume_writing(self) -> None:
        """The socket's buffer has space again."""
        self.congested = False

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write at the end of this iteration of the event loop, with everything else that is written in it."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox += pieces

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        transport = self._transport
        if outbox and transport is not None and not transport.is_closing():
            data = b"".join(outbox)
            self.bytes_sent += len(data)
            transport.write(data)

    def _confirm(self, channel: int, data: bytes, at: int) -> bool:
        """Report a confirm, if the frame at `at` is one."""
        if len(data) < at + _CONFIRM.size:
            return False
        _kind, _channel, _length, method, number, bits = _CONFIRM.unpack_from(data, at)
        if method not in {_ACK, _NACK}:
            return False
        self.confirmed[channel](number, bool(bits & 1), method == _ACK)
        return True

    def _deliver(self, kind: int, channel: int, data: bytes, at: int, end: int) -> bool:
        """Handle the payload of a frame if it is one of a delivery; return whether it is."""
        if kind == _METHOD:
            if _METHOD_OF.unpack_from(data, at)[0] != _DELIVER:
                return False
            self._deliveries[channel] = _Delivery(data, at + _METHOD_OF.size)
            return True
        delivery = self._deliveries.get(channel)
        if delivery is None:
            return False
        if kind == _HEADER:
            _class, _weight, delivery.left = _CONTENT.unpack_from(data, at)
            delivery.properties = Properties().decode(data, at + _CONTENT.size)
        elif kind == _BODY:
            delivery.pieces.append(data[at:end])
            delivery.left -= end - at
        if delivery.properties is not None and delivery.left <= 0:
            del self._deliveries[channel]
            body = delivery.pieces[0] if len(delivery.pieces) == 1 else b"".join(delivery.pieces)
            redelivered, key = bool(delivery.redelivered), delivery.routing_key
            arrival = Arrival(delivery.tag, redelivered, key, delivery.properties, body)
            self.delivered[channel](delivery.consumer, arrival)
        return True

    def _on_not_opened(self, _connection: object, error: BaseException) -> None:
        if self._secured and isinstance(error, exceptions.IncompatibleProtocolError):
            error = ClosedInTLS(str(error))
        error.__cause__ = self._cause  # pika raises a new error
        self._handshake.set_result(error)

    # pika calls the following methods of an adapter

    def _output_marshaled_frames(self, frames: Sequence[bytes]) -> None:
        self.write(frames)

    def _adapter_emit_data(self, data: bytes) -> None:
        self.write([data])

    def _adapter_call_later(self, delay: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, callback)

    def _adapter_remove_timeout(self, timeout_id: asyncio.TimerHandle) -> None:
        timeout_id.cancel()

    def _adapter_add_callback_threadsafe(self, callback: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def _adapter_connect_stream(self) -> None:
        raise NotImplementedError("`connect` does this")

    def _adapter_disconnect_stream(self) -> None:
        self._flush()
        self.abort()


def _header(channel: int, payload: bytes) -> frame.Header:
    """Return pika's frame, with properties that are decoded by `Properties`."""
    _class, _weight, size = _CONTENT.unpack_from(payload)
    return frame.Header(channel, size, Properties().decode(payload, _CONTENT.size))


async def connect(parameters: pika.ConnectionParameters, context: ssl.SSLContext | None) -> Connection:
    """Return an open connection. Raises the errors of sockets, TLS and pika, and `TimeoutError`; it is closed then."""
    connection = Connection(parameters)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT / 1000):
            await asyncio.get_running_loop().create_connection(
                lambda: connection, parameters.host, parameters.port, ssl=context
            )
            await connection.open()
    except BaseException:
        if connection.abort():
            await asyncio.wait((connection.lost,))
        raise
    return connection
