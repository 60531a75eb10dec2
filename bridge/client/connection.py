"""One connection to a bridge: a request goes out, an answer or the right error comes back."""

import ssl
from collections.abc import Mapping
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

_ERRORS: Final = 400
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Connection:
    """HTTP/2 from its first byte; the parameters are those of `Client`."""

    def __init__(self, url: str, *, verify: ssl.SSLContext | bool, transport: httpx.AsyncBaseTransport | None) -> None:
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL:
            base = httpx.URL()
        if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.path != "/" or base.query:
            raise ValueError("The URL of a bridge is http://host:port or https://host:port.")
        self._url = str(base).rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=base,
            http1=False,
            http2=True,
            verify=verify,
            transport=transport,
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
        try:
            response = await self._http.request(method, path, headers=pairs, content=body, timeout=timeout)
        except _NEVER_SENT as error:
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached ({_what(error)}).") from error
        except httpx.HTTPError as error:
            raise OutcomeUnknown(
                f"The connection to {self._url} broke before the answer came ({_what(error)})."
            ) from error
        if response.status_code >= _ERRORS:
            raise refusal(response)
        if response.status_code not in expected:
            raise self.unreadable()
        return response

    def read(self, response: httpx.Response) -> Headers:
        """Sort the answer's headers."""
        try:
            return parse(response.headers.raw)
        except BridgeError:  # never as it is: a Rejected would promise that nothing was stored
            raise self.unreadable() from None

    def unreadable(self) -> OutcomeUnknown:
        """Return the error for an answer that makes no sense."""
        return OutcomeUnknown(f"What answered at {self._url} does not speak this binding.")


def parameters(asked: Mapping[str, str]) -> list[Pair]:
    """Return the headers of a request that asks for this."""
    return [(b"x-oms-version", VERSION), *(parameter(name, text) for name, text in asked.items())]


def parameter(name: str, text: str) -> Pair:
    """Raise `HeaderInvalid` here: a line break would otherwise die inside HTTP/2 and look like a broken connection."""
    key, value = f"x-oms-{name}".encode("ascii"), text.encode("utf-8", "backslashreplace")
    decode_value(key, value)
    return key, value


def _what(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
