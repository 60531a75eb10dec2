"""One connection to a bridge: a request goes out, an answer or the right error comes back."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import httpx

from bridge import __version__
from bridge.client.answers import refusal
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown
from bridge.wire.headers import VERSION, Headers, parse
from bridge.wire.text import decode_value

Pair = tuple[bytes, bytes]

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 40.0
"""Above the 30 s after which the bridge itself gives up on its backend and says so."""

_OK: Final = 200
_ERRORS: Final = 400
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

_PROBES: Final = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
"""Without them a stream whose bridge lost its power waits for ever: httpx sends no pings of its own."""
if sys.platform == "linux":  # the first after 30 s of silence, then one each 10 s; the third unanswered one is the end
    _PROBES.extend(
        (socket.IPPROTO_TCP, option, number)
        for option, number in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
    )


class Connection:
    """HTTP/2 from its first byte; the parameters are those of `Client`."""

    def __init__(self, url: str, *, verify: ssl.SSLContext, transport: httpx.AsyncBaseTransport | None) -> None:
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL:
            base = httpx.URL()
        if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.path != "/" or base.query:
            raise ValueError("The URL of a bridge is http://host:port or https://host:port.")
        self.foreign = False
        """Whether something has answered that does not speak the binding: trying again mends nothing."""
        self._url = str(base).rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=base,
            transport=transport
            or httpx.AsyncHTTPTransport(http1=False, http2=True, verify=verify, socket_options=_PROBES),
            trust_env=False,  # a sidecar on loopback is never behind the proxy that HTTP_PROXY names
            headers={"user-agent": f"openmessaging-bridge/{__version__}"},
        )

    async def close(self) -> None:
        """Let go of the socket."""
        await self._http.aclose()

    async def send(  # noqa: PLR0913 - the parts of one request
        self,
        method: str,
        path: str,
        pairs: list[Pair],
        expected: tuple[int, ...],
        *,
        body: bytes = b"",
        wait: float = 0,
    ) -> httpx.Response:
        """Send one request and return its answer. Raises any of `bridge.errors`."""
        timeout = httpx.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        with self._translated("before the answer came"):
            response = await self._http.request(method, path, headers=pairs, content=body, timeout=timeout)
        if response.status_code >= _ERRORS:
            raise refusal(response)
        if response.status_code not in expected:
            raise self.unreadable()
        return response

    @asynccontextmanager
    async def stream(self, path: str, pairs: list[Pair], kind: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Ask for an answer of this content type that goes on and on: yields its body, piece by piece.

        The head must come in time; between the pieces any silence is allowed. Raises any of `bridge.errors`, the body
        too. HTTP/2 in httpx resets no stream that is left early: close the connection, or the bridge goes on sending.
        """
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=None)
        request = self._http.build_request("GET", path, headers=pairs, timeout=timeout)
        with self._translated("before the answer came"):
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._http.send(request, stream=True)
                if response.status_code >= _ERRORS:
                    await response.aread()
                    raise refusal(response)
        try:
            if response.status_code != _OK or response.headers.get("content-type") != kind:
                raise self.unreadable()
            yield self._pieces(response)
        finally:
            await response.aclose()

    def read(self, response: httpx.Response) -> Headers:
        """Sort the answer's headers."""
        try:
            return parse(response.headers.raw)
        except BridgeError:  # never as it is: a Rejected would promise that nothing was stored
            raise self.unreadable() from None

    def unreadable(self) -> OutcomeUnknown:
        """Return the error for an answer that makes no sense."""
        self.foreign = True
        return OutcomeUnknown(f"What answered at {self._url} does not speak this binding.")

    def broken_off(self) -> OutcomeUnknown:
        """Return the error for a stream that stopped without its end."""
        return OutcomeUnknown(f"The stream from {self._url} broke off.")

    async def _pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        with self._translated("in the middle of the stream"):
            async for piece in response.aiter_bytes():
                yield piece

    @contextmanager
    def _translated(self, when: str) -> Iterator[None]:
        try:
            yield
        except _NEVER_SENT as error:
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached ({_what(error)}).") from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise OutcomeUnknown(f"The connection to {self._url} broke {when} ({_what(error)}).") from error


def parameters(asked: Mapping[str, str]) -> list[Pair]:
    """Return the headers of a request that asks for this."""
    return [(b"x-oms-version", VERSION), *(parameter(name, text) for name, text in asked.items())]


def parameter(name: str, text: str) -> Pair:
    """Raise `HeaderInvalid` here: a line break would otherwise die inside HTTP/2 and look like a broken connection."""
    key, value = f"x-oms-{name}".encode("ascii"), text.encode("utf-8", "backslashreplace")
    decode_value(key, value)
    return key, value


def _what(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
