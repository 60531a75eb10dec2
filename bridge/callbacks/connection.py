"""Connections to endpoints: checks every resolved address and dials one that passed; sends POSTs, reads responses."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar, cast

import certifi
import httptools
from aiohappyeyeballs import AddrInfoType, start_connection

from bridge.allowed_targets import AddressPolicy, IPAddress, Target
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse, RequestBlocked

RESPONSE_MAX: Final = 65536
"""Most bytes of a response that are read, head and 1xx responses included; the connection of a longer one is closed."""

_HTTP_OK: Final = 200
_SWITCHING: Final = 101
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_READ: Final = frozenset((*_FRAMING, b"retry-after", b"content-type"))
_JSON: Final = b"application/json"
_NO_RESPONSE: Final = "the endpoint closed the connection without a response"


class EndpointConnection(asyncio.Protocol):
    """Sends one POST at a time. httptools (llhttp) reads the responses and calls the methods `on_…`.

    A response is read up to `RESPONSE_MAX` bytes; a body that is cut off there counts as complete. Data that no POST
    has requested closes the connection: it must not be taken for the response to the next POST.
    """

    def __init__(self, on_lost: "Callable[[EndpointConnection], None]") -> None:
        self.usable = False
        """Whether the connection is open and may serve another POST."""
        self.idle_since = 0.0
        """End of the last POST, in the loop's time."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        # "a recipient MAY recognize a single LF as a line terminator" (RFC 9112 2.2)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[EndpointResponse] | None = None
        """The response that a POST waits for."""
        self._timer: asyncio.TimerHandle | None = None
        self._remaining = 0
        """Bytes of the response that may still be read."""
        self._is_final = False
        """Whether the head of a response that is not 1xx is complete."""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def post(self, request: list[bytes], deadline: float) -> asyncio.Future[EndpointResponse]:
        """Send a request; return the future of its response. `deadline` is in the loop's time.

        The future fails with `NoResponse`, and with `TimeoutError` at the deadline. If the caller does not wait for it
        any more it must call `abort`.
        """
        self._response = response = self._loop.create_future()
        if self._transport is None or not self.usable:
            self._fail(NoResponse(_NO_RESPONSE))
            return response
        self._timer = self._loop.call_at(deadline, self._fail, TimeoutError())
        self._remaining = RESPONSE_MAX
        self._is_final = False
        self._transport.writelines(request)
        return response

    def abort(self) -> None:
        """Close at once; unsent data is dropped."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """Read a part of a response."""
        if self._response is None:
            self.abort()
            return
        remaining = self._remaining
        self._remaining -= len(data)
        try:
            self._parser.feed_data(data[:remaining])
        except httptools.HttpParserError as error:
            self._fail(NoResponse(f"the response is invalid ({type(error).__name__})"))
        if self._remaining <= 0:
            self._end_response(f"the response is invalid (no head within {RESPONSE_MAX} bytes)")

    def eof_received(self) -> None:
        """Close at once: until `connection_lost`, the pool could start a POST on this connection."""
        if self._is_final and any(name in self._headers for name in _FRAMING):
            self._fail(NoResponse("the response is invalid (its body is cut off)"))
        self._end_response(_NO_RESPONSE)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.usable = False
        self._on_lost(self)
        self._fail(NoResponse(f"the connection broke ({describe_cause(exc)})" if exc else _NO_RESPONSE))

    def on_message_begin(self) -> None:
        """Begin a response, or close the connection if no POST waits for one."""
        self._headers = {}
        self._body = []
        if self._response is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first value of the headers that have a meaning here."""
        if (name := name.lower()) in _READ:
            self._headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Distinguish the final response from 1xx responses."""
        self._is_final = self._parser.get_status_code() >= _HTTP_OK

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Return the response, unless it is a 1xx."""
        if self._is_final:
            self._complete()
        elif self._parser.get_status_code() == _SWITCHING:
            self._fail(NoResponse(f"the endpoint answered {_SWITCHING}, which is not a final response"))

    def _complete(self) -> None:
        """Return the response; keep the connection if both sides can use it again."""
        if self._response is None or self._response.done() or self._transport is None:
            return
        retry_after = self._headers.get(b"retry-after")
        media_type = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._response.set_result(
            EndpointResponse(
                self._parser.get_status_code(),
                None if retry_after is None else retry_after.decode("latin-1"),
                b"".join(self._body) if media_type == _JSON else None,
            )
        )
        self._end_post()
        if not self._parser.should_keep_alive() or self._transport.get_write_buffer_size():
            self.abort()  # the endpoint has answered before it has read the whole request, or it closes

    def _end_response(self, reason: str) -> None:
        """Close; what has arrived is the response if its head is complete."""
        if self._is_final:
            self._complete()
        self._fail(NoResponse(reason))
        self.abort()

    def _fail(self, error: Exception) -> None:
        """Fail the POST that waits, if there is one, and close."""
        if self._response is not None:
            if not self._response.done():
                self._response.set_exception(error)
            self._end_post()
            self.abort()

    def _end_post(self) -> None:
        self._response = None
        self.idle_since = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def describe_cause(error: BaseException) -> str:
    """Return the operating system's text without its number; if there is none, the error's text or name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address is dialled as well (RFC 8305)."""

P = TypeVar("P", bound=asyncio.Protocol)


class Dialer:
    """The only part of the bridge that connects to a host named by a client."""

    def __init__(self, addresses: AddressPolicy, ca: Path | None = None) -> None:
        self._addresses = addresses
        self._tls = _tls_context(ca)

    async def connect(self, target: Target, create_protocol: Callable[[], P]) -> P:
        """Connect to the host of a URL, with TLS if its scheme is https. Raises `RequestBlocked` and `NoResponse`."""
        host, port = target.host, target.port
        try:
            addresses = [host] if _parse_address(host) else await self.resolve(host, port)
        except OSError as error:
            raise NoResponse(f"the name {host} does not resolve ({describe_cause(error)})") from None
        tls, name = (self._tls, host) if target.scheme == "https" else (None, None)
        try:
            sock = await start_connection(
                [_address_info(address, port) for address in addresses],
                happy_eyeballs_delay=_NEXT_ADDRESS,
                socket_factory=self._create_socket,
            )
            try:
                _, protocol = await asyncio.get_running_loop().create_connection(
                    create_protocol,
                    sock=sock,
                    ssl=tls,
                    server_hostname=name,
                )
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            raise NoResponse(f"no connection to {target.authority} ({describe_cause(error)})") from None
        return protocol

    def literal_refusal(self, host: str) -> str | None:
        """Return why a host that is an address must not be dialled; None if it may be, or if the host is a name."""
        address = _parse_address(host)
        return None if address is None else self._addresses.refusal(address)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name. Raises `RequestBlocked` if any of them is forbidden, and `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
        if not addresses:
            raise OSError(errno.ENODATA, "no address")
        for address in addresses:  # one forbidden address refuses the name: its owner cannot be trusted
            if reason := self._addresses.refusal(address):
                raise RequestBlocked(f"{host} is not dialled: {reason}")
        return [str(address) for address in addresses]

    def _create_socket(self, info: AddrInfoType) -> socket.socket:
        """Check the address that is about to be dialled once more, however it was found."""
        family, kind, protocol, _, sockaddr = info
        address = _parse_address(str(sockaddr[0]))
        reason = "no address" if address is None else self._addresses.refusal(address)
        if reason:  # an OSError: after any other exception aiohappyeyeballs fails with an IndexError
            raise PermissionError(errno.EACCES, f"{sockaddr[0]} is not dialled: {reason}")
        return socket.socket(family, kind, protocol)


def _parse_address(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _address_info(address: str, port: int) -> AddrInfoType:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


def _tls_context(ca: Path | None) -> ssl.SSLContext:
    """Trust the authorities of `ca`, a PEM file, or else certifi's; environment variables have no influence.

    `ssl.create_default_context` would use SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name, TLS 1.2 or newer
    context.load_verify_locations(ca or certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
