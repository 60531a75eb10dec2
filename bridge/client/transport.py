"""HTTP/1.1 to one bridge by aiohttp: a request, its response, and how sending failed."""

import io
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import certifi
from aiohttp import (
    AddrInfoType,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from bridge import __version__
from bridge.errors import BridgeError, decode_problem
from bridge.message import LONG_MAX, Message
from bridge.wire.headers import Headers, read_number

Pair = tuple[bytes, bytes]

CONNECT_SECONDS: Final = 5.0
"""Longest wait for a connection: name, TCP and TLS."""
IDLE_SECONDS: Final = 30.0
"""Seconds after which an idle connection is closed: sooner than the bridge, which closes it after 75 s."""

_HEADER_BYTES_MAX: Final = 1 << 20
_HEADERS_MAX: Final = 10_000
"""A message of a native program may have any number of headers, of any length."""
_READ_BYTES: Final = 1 << 18
_WRITE_MAX: Final = 1 << 20
"""Largest body that is written at once, bytes; aiohttp warns of larger ones."""
_FIXED_HEADERS: Final = {"user-agent": f"openmessaging-bridge/{__version__}", "accept-encoding": "gzip"}

_KEEPALIVE: Final = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
"""Detects that a bridge's machine has lost its power."""
if sys.platform == "linux":  # the first probe after 30 s of silence, then one each 10 s; lost after 3 without a reply
    _KEEPALIVE.extend(
        (socket.IPPROTO_TCP, option, number)
        for option, number in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
    )


class TransportError(Exception):
    """A request has no complete response."""


class NotConnected(TransportError):
    """There is no connection: nothing was sent."""


class ConnectionBroken(TransportError):
    """The connection was closed, or carries something that is not HTTP. The request may have been executed."""


class ResponseTimedOut(TransportError):
    """The response, or its next part, did not arrive in time. The request may have been executed."""


class ClientRequest(NamedTuple):
    """A request; names of headers are in lower case."""

    method: str
    path: str
    pairs: list[Pair]
    body: bytes = b""


class BridgeResponse(NamedTuple):
    """A response; names of headers are in lower case, a gzip body is inflated."""

    status: int
    pairs: list[Pair]
    body: bytes = b""

    def header(self, name: bytes) -> str:
        """Return the value of a header as text, empty if it is absent."""
        return next((value.decode("latin-1") for key, value in self.pairs if key == name), "")


class StreamedResponse(NamedTuple):
    """A response whose body is read while it arrives."""

    head: BridgeResponse
    chunks: AsyncGenerator[bytes, None]


class Transport(Protocol):
    """Sends requests to one bridge. `HttpTransport` does; tests replace it."""

    async def send(self, request: ClientRequest, silence: float) -> BridgeResponse:
        """Send a request and return the response. Raises `TransportError`; `ResponseTimedOut` after `silence` s."""
        ...

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send a request; the response ends with the block. Raises `TransportError`, also while the body is read."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class HttpTransport:
    """A connection for each request that is under way, so that none delays another; idle ones are used again.

    It ignores the environment (proxies, netrc), follows no redirect and repeats nothing. `verify` is that of `Client`.
    `token_file` is read for each request: its token may be replaced. Raises `ValueError` if `url` is not
    http://host:port or https://host:port.
    """

    def __init__(self, url: str, verify: ssl.SSLContext | bool, token_file: Path | None = None) -> None:
        self._origin = parse_origin(url)
        self._token_file = token_file
        self._verify = verify
        self._session: ClientSession | None = None

    async def send(self, request: ClientRequest, silence: float) -> BridgeResponse:
        """See `Transport`."""
        with _translate_errors():
            async with await self._open(request, silence) as response:
                body = await response.read()
        return BridgeResponse(response.status, _pairs(response), body)

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[StreamedResponse]:
        """See `Transport`. Leaving the block closes the connection, so that the bridge stops to send."""
        with _translate_errors():
            response = await self._open(request, None)
        try:
            yield StreamedResponse(BridgeResponse(response.status, _pairs(response)), _read_chunks(response))
        finally:
            response.close()

    async def close(self) -> None:
        """See `Transport`."""
        if self._session is not None:
            await self._session.close()

    async def _open(self, request: ClientRequest, silence: float | None) -> ClientResponse:
        if self._session is None:
            self._session = self._create_session()
        body = request.body
        headers = [(name.decode("ascii"), value.decode()) for name, value in request.pairs]
        if self._token_file is not None:
            headers.append(("authorization", f"Bearer {_read_token(self._token_file)}"))
        return await self._session.request(
            request.method,
            self._origin.with_path(request.path, encoded=True),
            headers=headers,
            data=body if len(body) <= _WRITE_MAX else io.BytesIO(body),
            allow_redirects=False,
            timeout=ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silence),
        )

    def _create_session(self) -> ClientSession:
        """Open no connection yet; aiohttp needs the running event loop."""
        session = ClientSession(
            connector=TCPConnector(
                limit=0,
                keepalive_timeout=IDLE_SECONDS,
                ssl=_tls_context(self._verify) if self._origin.scheme == "https" else False,
                socket_factory=_create_socket,
            ),
            cookie_jar=DummyCookieJar(),
            headers=_FIXED_HEADERS,
            skip_auto_headers=("accept", "content-type"),
            read_bufsize=_READ_BYTES,
            max_field_size=_HEADER_BYTES_MAX,
            max_headers=_HEADERS_MAX,
            trust_env=False,  # a sidecar on loopback is never behind the proxy that HTTP_PROXY names
        )
        session._retry_connection = False  # noqa: SLF001 - a repeated pull with ack=False would lose a message
        return session


def _read_token(path: Path) -> str:
    """Return the token of a file. Raises `NotConnected` if there is none."""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, ValueError):
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise NotConnected(f"the file {path} holds no token")
    return token


def parse_origin(url: str) -> URL:
    """Return the URL of a bridge. Raises `ValueError` if it is another kind of URL."""
    try:
        origin = URL(url)
    except ValueError:
        origin = URL()
    plain = origin.user is None and origin.password is None and origin.raw_path_qs == "/" and not origin.raw_fragment
    if origin.scheme not in ("http", "https") or not origin.raw_host or not plain:
        raise ValueError("The URL of a bridge is http://host:port or https://host:port.")
    return origin


def _tls_context(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        context = verify
    else:
        context = ssl.create_default_context(cafile=certifi.where())
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _create_socket(address: AddrInfoType) -> socket.socket:
    created = socket.socket(*address[:3])
    created.setblocking(False)
    for option in _KEEPALIVE:
        created.setsockopt(*option)
    return created


def _pairs(response: ClientResponse) -> list[Pair]:
    return [(name.lower(), value) for name, value in response.raw_headers]


async def _read_chunks(response: ClientResponse) -> AsyncGenerator[bytes, None]:
    with _translate_errors():
        async for chunk in response.content.iter_any():
            yield chunk


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (ClientConnectorError, ConnectionTimeoutError) as error:
        raise NotConnected(_describe(error)) from error
    except TimeoutError as error:
        raise ResponseTimedOut(_describe(error)) from error
    except (ClientError, OSError) as error:  # OSError: a TLS alert
        raise ConnectionBroken(_describe(error)) from error


def _describe(error: Exception) -> str:
    """Return the text of an error, with its class unless the operating system words it."""
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return f"{type(cause).__name__}: {cause}".removesuffix(": ")


_OK: Final = 200


class ProduceResult(NamedTuple):
    """A stored message. Times are ms since 1970 UTC."""

    message_id: str
    store_timestamp: int
    store_host: str
    partition: int | None
    offset: int | None
    """Position in the backend; None if it has none, or not yet (a delayed message)."""
    applied: Mapping[str, str]
    """For each optional field of the message: native, emulated or ignored."""


class ReceivedMessage(NamedTuple):
    """A message that was pulled or pushed."""

    message: Message
    receipt: str | None
    """Names the lease; None if the message was settled before it was sent."""
    lease_until: int | None
    """End of the lease, ms since 1970 UTC."""
    delivery_count: int
    """1 on the first delivery."""


def read_result(item: dict[str, Any]) -> ProduceResult | BridgeError:
    """Read the result of one message of a batch. Raises `KeyError` and others if it is malformed."""
    return decode_problem(item["status"], item) if item["status"] != _OK else read_stored(item)


def read_stored(item: dict[str, Any]) -> ProduceResult:
    """Read the result of a message that was stored. Raises `KeyError` and others if it is malformed."""
    return ProduceResult(
        item["messageId"],
        item["storeTimestamp"],
        item["storeHost"],
        item.get("partition"),
        item.get("offset"),
        read_applied(item.get("applied", "")),
    )


def read_applied(text: str) -> dict[str, str]:
    """Read `name=how, …`: how each optional field was honoured."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name.strip(): how.strip() for name, _, how in pairs}


def read_number_parameter(headers: Headers, name: str) -> int | None:
    """Read a parameter that is a number; None if it is absent. Raises `HeaderInvalid`."""
    text = headers.parameters.get(name)
    return None if text is None else read_number(f"x-oms-{name}", text, LONG_MAX)


def read_json_object(response: BridgeResponse) -> dict[str, Any]:
    """Return the JSON object in the body; an empty one if there is none."""
    try:
        document = json.loads(response.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def read_error(response: BridgeResponse) -> BridgeError:
    """Return the error of a response with a status of 400 or above."""
    retry_safe = response.header(b"x-oms-retry-safe") == "true"
    from_headers = {"code": response.header(b"x-oms-error"), "retrySafe": retry_safe}
    error = decode_problem(response.status, from_headers | read_json_object(response))
    after = response.header(b"retry-after")
    error.retry_after = int(after) if after.isascii() and after.isdigit() else None
    return error
