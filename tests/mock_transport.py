"""A transport of `bridge.client` that asks a function instead of a bridge; requests and responses are httpx's."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx

from bridge.client.transport import (
    BridgeResponse,
    ClientRequest,
    ConnectionBroken,
    NotConnected,
    ResponseTimedOut,
    StreamedResponse,
    TransportError,
)

Handler = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class MockTransport:
    """Calls `handler` for each request; an error of httpx that it raises is one of the transport."""

    def __init__(self, handler: Handler, url: str = "http://bridge:8080") -> None:
        self._handler = handler
        self._url = url

    async def send(self, request: ClientRequest, silence: float) -> BridgeResponse:
        with _translated():
            answer = await self._ask(request, silence)
            return BridgeResponse(answer.status_code, _pairs(answer), await answer.aread())

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[StreamedResponse]:
        with _translated():
            answer = await self._ask(request, None)
        yield StreamedResponse(BridgeResponse(answer.status_code, _pairs(answer)), _chunks(answer))

    async def close(self) -> None:
        pass

    async def _ask(self, request: ClientRequest, silence: float | None) -> httpx.Response:
        answer = self._handler(
            httpx.Request(
                request.method,
                self._url + request.path,
                headers=request.pairs,
                content=request.body,
                extensions={"timeout": {"read": silence}},
            )
        )
        return answer if isinstance(answer, httpx.Response) else await answer


def _pairs(answer: httpx.Response) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in answer.headers.raw]


async def _chunks(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    with _translated():
        if answer.is_closed:
            yield answer.content
            return
        async for chunk in answer.aiter_bytes():
            yield chunk


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise _translate(error) from error


def _translate(error: httpx.HTTPError) -> TransportError:
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, _NEVER_SENT):
        return NotConnected(text)
    return ResponseTimedOut(text) if isinstance(error, httpx.TimeoutException) else ConnectionBroken(text)
