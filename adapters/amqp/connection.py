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

from adapters.amqp.deliveries import CONTENT, HEAD, HEADER, METHOD, OVERHEAD, Incomplete, read_whole
from adapters.amqp.errors import ClosedInTLS
from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.amqp.settings import CONNECT_TIMEOUT

_CONFIRM: Final = Struct(">BHIIQB")
_ACK: Final = 0x003C_0050
_NACK: Final = 0x003C_0078
_REFUSED: Final = ord("A")
"""The first byte of the broker's answer to a protocol that it does not speak: `AMQP`, without a frame."""

Confirmed = Callable[[int, bool, bool], None]
"""Called with a delivery tag, whether all earlier ones are confirmed as well, and whether it is an ack."""


Delivered = Callable[[str, Arrival], None]
"""Called with the consumer tag and the message."""


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
        self._incomplete: dict[int, Incomplete] = {}
        """Deliveries whose frames have not all arrived, by channel."""
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
        self._incomplete.pop(channel, None)

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
        while size - at >= OVERHEAD:
            kind, channel, length = HEAD.unpack_from(data, at)
            end = at + length + OVERHEAD
            if end > size or kind == _REFUSED:
                break
            if channel in self.delivered and (delivered := self._deliver(kind, channel, data, at, end)):
                end = delivered
            elif kind == HEADER:
                self._process_frame(_header(channel, data[at + HEAD.size : end - 1]))
            elif kind != METHOD or channel not in self.confirmed or not self._confirm(channel, data, at):
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

    def _deliver(self, kind: int, channel: int, data: bytes, at: int, end: int) -> int:
        """Handle the frame from `at` to `end`, and those behind it, if they are of a delivery; return their end, or 0.

        Nearly all deliveries have three frames that arrive together.
        """
        if kind == METHOD:
            if (whole := read_whole(channel, data, at, len(data))) is not None:
                self.delivered[channel](*whole[0])
                return whole[1]
            if (incomplete := Incomplete.begin(data, at + HEAD.size)) is None:
                return 0
            self._incomplete[channel] = incomplete
        elif channel not in self._incomplete:
            return 0
        elif delivery := self._incomplete[channel].add(kind, data, at + HEAD.size, end - 1):
            del self._incomplete[channel]
            self.delivered[channel](*delivery)
        return end

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
    _class, _weight, size = CONTENT.unpack_from(payload)
    return frame.Header(channel, size, Properties.decode(payload, CONTENT.size))


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
