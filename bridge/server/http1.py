"""HTTP/1.1: Hypercorn's protocol without upgrades, and with an honest `connection: close`."""

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
from hypercorn.protocol.events import Event, Request, Response
from hypercorn.protocol.h11 import STREAM_ID, H2ProtocolAssumedError, H11Protocol
from hypercorn.typing import H11SendableEvent

from bridge.server.stream import Stream

if TYPE_CHECKING:
    from bridge.server.link import Link

PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Http1(H11Protocol):
    """One HTTP/1.1 connection."""

    stream: Stream | None

    def __init__(self, link: "Link") -> None:
        super().__init__(*link.shared, link.state, link.tls, link.client, link.server, link.send)
        self.link = link

    def drain(self) -> None:
        """Close the connection if no request is being answered; else it closes after the answer."""
        if self.stream is None:
            self.link.close(linger=False)

    async def stream_send(self, event: Event) -> None:
        """Write an answer, and say when it is the last one on this connection."""
        if isinstance(event, Response) and (
            self.context.terminated.is_set() or self.connection.their_state is not h11.DONE
        ):
            # An answer before the end of the body (413, 401) leaves bytes on the wire that are no request.
            event = replace(event, headers=[*event.headers, (b"connection", b"close")])
        await super().stream_send(event)

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if isinstance(event, h11.Response):
            # Legal without a phrase, but h2load counts that as a failure. A new event would check the headers twice.
            object.__setattr__(event, "reason", PHRASES.get(event.status_code, b""))
        await super()._send_h11_event(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        # Hypercorn answers "Upgrade: h2c" with 101. The way into HTTP/2 here is prior knowledge or ALPN, nothing else.
        if (event.method, event.target, event.http_version) == (b"PRI", b"*", b"2.0"):
            raise H2ProtocolAssumedError(b"PRI * HTTP/2.0\r\n\r\n" + self.connection.trailing_data[0])

    async def _create_stream(self, request: h11.Request) -> None:
        # Hypercorn makes a WebSocket of a request that asks for one; the bridge has none, so it is an ordinary GET.
        self.stream = Stream(self.link, self.stream_send, STREAM_ID, lambda _: None)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.link.state,
            )
        )
