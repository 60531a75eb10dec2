"""HTTP/1.1: Hypercorn's protocol without upgrades, and with `connection: close` on every last response."""

from http import HTTPStatus

import h11
from h11 import LocalProtocolError
from h11._receivebuffer import ReceiveBuffer
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, EndBody, Event, Response
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.typing import ConnectionState, LifespanState

from bridge.errors import BridgeError, HeadersTooLarge, RequestMalformed
from bridge.server.hypercorn.connection import Connection
from bridge.server.hypercorn.stream import RequestStream
from bridge.server.request_target import to_origin_form


class StrictReceiveBuffer(ReceiveBuffer):
    """h11's input buffer. Header blocks and trailers end each line with CR LF, and fold none.

    h11 accepts a bare LF and joins folded lines. A proxy in front of the bridge that reads either of them differently
    would see other requests than the bridge does. "A server that receives an obs-fold in a request message [...] MUST
    either reject the message [...] or replace each received obs-fold" (RFC 9112, section 5.2).
    """

    def __init__(self, parser: h11.Connection) -> None:
        super().__init__()
        self._parser = parser

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines up to the first empty line, or None while that is missing.

        Empty lines before the request line are ignored (RFC 9112, section 2.2): old clients send one after a body.
        Raises LocalProtocolError, which h11 reports as an error of the client.
        """
        if self._parser.their_state is h11.IDLE:  # else the lines are trailers
            while self._data.startswith(b"\r\n"):
                del self._data[:2]
        end = self._data.find(b"\r\n\r\n")
        block = self._data if end < 0 else self._data[:end]
        if block.count(b"\n") != block.count(b"\r\n"):
            raise LocalProtocolError("a line ends with a bare LF")
        if b"\r\n " in block or b"\r\n\t" in block:
            raise LocalProtocolError("a folded line")
        return super().maybe_extract_lines()

    def is_next_line_obviously_invalid_request_line(self) -> bool:
        """See h11. Half of an empty line is not invalid."""
        return self._data != b"\r" and super().is_next_line_obviously_invalid_request_line()


PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Http1(H11Protocol):
    """One HTTP/1.1 connection. Hypercorn calls its parser (h11) `connection`; `client_connection` has the socket."""

    stream: RequestStream | None

    def __init__(self, client_connection: Connection) -> None:
        state = ConnectionState(LifespanState({}))
        super().__init__(
            *client_connection.server.hypercorn_arguments, state, *client_connection.tls_and_addresses, self._on_event
        )
        self.client_connection = client_connection
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
        parser._receive_buffer = StrictReceiveBuffer(parser)  # noqa: SLF001 - h11 has no option for it
        self.connection = parser

    async def receive(self, data: bytes) -> None:
        """See HttpProtocol."""
        await self.handle(RawData(data))

    def half_closed(self) -> bool:
        """See HttpProtocol."""
        if self.stream is not None and self.stream.body.ended:
            self.stream.body.close()
        return True

    async def input_ended(self) -> None:
        """See HttpProtocol."""
        if self.connection.their_state is h11.SEND_BODY:
            await self.handle(RawData(b""))
        elif self.stream is not None:
            await self.can_read.clear()
            await self.can_read.wait()  # set at the end of each response

    async def disconnected(self) -> None:
        """See HttpProtocol."""
        await self.handle(Closed())

    def drain(self) -> None:
        """See HttpProtocol."""
        if self.stream is None:
            self.client_connection.close(linger=False)

    async def _on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, RawData):
            self.client_connection.write(event.data)
            await self.client_connection.drained()
        elif isinstance(event, Closed):
            self.client_connection.close()
        elif isinstance(event, Updated):
            self.client_connection.set_idle(event.idle)

    async def stream_send(self, event: Event) -> None:
        """Write a part of a response: with a phrase, because h2load counts a status without one as a failure."""
        if not isinstance(event, Response):
            await super().stream_send(event)
            return
        headers = [*event.headers, *self.config.response_headers("h11")]
        ends = self.client_connection.server.draining or self.connection.their_state is not h11.DONE
        if ends and (b"connection", b"close") not in headers:
            # A response before the end of the body (413, 401) leaves bytes on the wire that are not a request.
            headers.append((b"connection", b"close"))
        phrase = PHRASES.get(event.status_code, b"")
        await self._send_h11_event(h11.Response(status_code=event.status_code, headers=headers, reason=phrase))

    async def _send_error_response(self, status_code: int) -> None:
        # h11 suggests 431, 501 for a transfer coding other than chunked, else 400. Hypercorn closes the connection.
        error = self._error(status_code)
        requested = [] if self.stream is None else self.stream.scope["headers"]
        headers, body = self.client_connection.server.requests.encode(error, requested)
        await self.stream_send(Response(STREAM_ID, headers, error.status))
        await self.stream_send(Body(STREAM_ID, body))
        await self.stream_send(EndBody(STREAM_ID))

    def _error(self, status_code: int) -> BridgeError:
        if status_code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            limit = self.client_connection.server.header_limit
            return HeadersTooLarge(f"The headers have more than {limit} bytes.")
        if status_code == HTTPStatus.NOT_IMPLEMENTED:
            return RequestMalformed("transfer-encoding: only `chunked` is supported.")
        return RequestMalformed("The request is not valid HTTP/1.1.")

    async def _check_protocol(self, event: h11.Request) -> None:
        # Hypercorn answers "Upgrade: h2c" with 101. The bridge accepts HTTP/2 by prior knowledge or ALPN only, and has
        # looked for that before.
        pass

    async def _create_stream(self, request: h11.Request) -> None:
        # Hypercorn opens a WebSocket if a request asks for one. The bridge has none: the request is an ordinary GET.
        self.stream = RequestStream(self.client_connection, self.stream_send, STREAM_ID, lambda _: None)
        target, headers = to_origin_form(request.method, request.target, list(request.headers))
        await self.stream.start(request.http_version.decode(), request.method, target, headers)
