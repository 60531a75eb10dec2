"""Requests to a bridge: returns the response or raises the right error. Also: when to retry."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from bridge.client.transport import (
    BridgeResponse,
    ClientRequest,
    NotConnected,
    Pair,
    Transport,
    TransportError,
    parse_origin,
    read_error,
)
from bridge.errors import BackendUnavailable, BridgeError, NotStored, OutcomeUnknown
from bridge.wire.header_text import decode_value
from bridge.wire.headers import VERSION, Headers, parse

T = TypeVar("T")

RESPONSE_SECONDS: Final = 40.0
"""Longest wait for a response: above the 30 s after which the bridge answers that its backend did not."""
FIRST_DELAY: Final = 0.1
"""Longest delay after the first failure, seconds; it doubles with each failure."""
MAX_DELAY: Final = 10.0
"""Longest delay between two attempts, seconds."""

_DOUBLINGS: Final = 7
"""Doublings from `FIRST_DELAY` to `MAX_DELAY`."""
_OK: Final = 200
_ERRORS: Final = 400


class RequestSender:
    """Sends requests to the bridge at `url` and reads their responses as a bridge's."""

    def __init__(self, url: str, transport: Transport) -> None:
        self.incompatible = False
        """Whether the server has sent a response that no bridge sends; retrying is useless."""
        self._url = str(parse_origin(url)).rstrip("/")
        self._transport = transport

    async def send(  # noqa: PLR0913 - the parts of one request
        self,
        method: str,
        path: str,
        pairs: list[Pair],
        expected: tuple[int, ...],
        *,
        body: bytes = b"",
        wait: float = 0,
    ) -> BridgeResponse:
        """Send one request and return its response, whose status is one of `expected`. Raises any of `bridge.errors`.

        `wait`: seconds that the bridge may wait before it responds.
        """
        with self._translate_errors("before the response"):
            response = await self._transport.send(ClientRequest(method, path, pairs, body), RESPONSE_SECONDS + wait)
        if response.status >= _ERRORS:
            raise read_error(response)
        if response.status not in expected:
            raise self.protocol_error()
        return response

    @asynccontextmanager
    async def stream(self, path: str, pairs: list[Pair], kind: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Request a response without end, of the content type `kind`; yields the chunks of its body.

        The head must arrive in time; chunks may be any time apart. Leaving the block makes the bridge stop. Raises
        any of `bridge.errors`, also while the body is read.
        """
        opening = self._transport.stream(ClientRequest("GET", path, pairs))
        with self._translate_errors("before the response"):
            async with asyncio.timeout(RESPONSE_SECONDS):
                head, chunks = await opening.__aenter__()
        try:
            if head.status >= _ERRORS:
                with self._translate_errors("before the response"):
                    async with asyncio.timeout(RESPONSE_SECONDS):
                        body = b"".join([chunk async for chunk in chunks])
                raise read_error(head._replace(body=body))
            if head.status != _OK or head.header(b"content-type") != kind:
                raise self.protocol_error()
            yield self._read_chunks(chunks)
        finally:
            await opening.__aexit__(None, None, None)

    def read_headers(self, response: BridgeResponse) -> Headers:
        """Parse the headers of a response. Raises `OutcomeUnknown`."""
        try:
            return parse(response.pairs)
        except BridgeError:  # not passed on: a Rejected would mean that nothing was stored
            raise self.protocol_error() from None

    def protocol_error(self) -> OutcomeUnknown:
        """Return the error for a response that no bridge sends, and set `incompatible`."""
        self.incompatible = True
        return OutcomeUnknown(f"The server at {self._url} does not speak the OpenMessaging HTTP binding.")

    def stream_broken(self) -> OutcomeUnknown:
        """Return the error for a stream that stopped without its last line."""
        return OutcomeUnknown(f"The stream from {self._url} broke off.")

    async def _read_chunks(self, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        with self._translate_errors("in the middle of the stream"):
            async for chunk in chunks:
                yield chunk

    @contextmanager
    def _translate_errors(self, when: str) -> Iterator[None]:
        try:
            yield
        except NotConnected as error:
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached ({error}).") from error
        except TransportError as error:
            raise OutcomeUnknown(f"The connection to {self._url} broke {when} ({error}).") from error
        except TimeoutError as error:
            raise OutcomeUnknown(f"The connection to {self._url} broke {when} (TimeoutError).") from error


def parameter_headers(parameters: Mapping[str, str]) -> list[Pair]:
    """Return the headers of a request with these parameters."""
    return [(b"x-oms-version", VERSION), *(parameter_header(name, text) for name, text in parameters.items())]


def parameter_header(name: str, text: str) -> Pair:
    """Return one parameter as a header. Raises `HeaderInvalid`.

    The check is made here because a line break would fail inside the HTTP library.
    """
    key, value = f"x-oms-{name}".encode("ascii"), text.encode("utf-8", "backslashreplace")
    decode_value(key, value)
    return key, value


async def retry(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat a call that failed and may succeed later, until so many seconds have passed. Raises the last error."""
    end = time.monotonic() + seconds
    for failures in itertools.count(1):
        try:
            return await call()
        except (NotStored, OutcomeUnknown) as error:
            delay = retry_delay(failures, random.random(), error.retry_after)  # noqa: S311 - no secret
            if time.monotonic() + delay > end:
                raise
        await asyncio.sleep(delay)
    raise AssertionError  # never: there is no last number


def is_transient(error: BridgeError) -> bool:
    """Whether the same request may succeed later: 503, 504, a broken connection. Never a 4xx."""
    return isinstance(error, (NotStored, OutcomeUnknown))


def retry_delay(failures: int, chance: float, retry_after: int | None) -> float:
    """Return the seconds to wait after `failures` failures in a row; `chance` is random, from 0 to 1.

    Exponential with full jitter, so that the clients of a bridge that restarts do not all return at once. The
    `retry-after` of the bridge, seconds, is added.
    """
    return (retry_after or 0) + chance * min(MAX_DELAY, FIRST_DELAY * (1 << min(failures - 1, _DOUBLINGS)))
