"""HTTP to a bridge that comes and goes: requests, and what their ends say about what became of them."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import aiohttp

VERSION: Final = {"x-oms-version": "1.0.0"}
REQUEST_SECONDS: Final = 75
"""Longer than any answer of the bridge may take."""


class Where:
    """Where a bridge is now: each life of it has another port."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._up = asyncio.Event()
        self.moved(url)

    def moved(self, url: str | None) -> None:
        """Note that it is at another address now, or with None that it is down."""
        self._url = url
        (self._up.set if url else self._up.clear)()

    async def url(self) -> str:
        """Return its address, waiting while it is down."""
        while self._url is None:
            await self._up.wait()
        return self._url


class Reply(NamedTuple):
    """How a request ended. A status of 0: the connection broke. -1: there was none, nothing was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def http() -> aiohttp.ClientSession:
    """Return a client for HTTP/1.1 that opens as many connections as there are requests."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    )


async def ask(
    client: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
) -> Reply:
    """Send one request, once."""
    try:
        async with client.request(method, url, headers={**VERSION, **headers}, data=body or None) as answer:
            reply = Reply(answer.status, answer.headers, await answer.read())
    except aiohttp.ClientConnectorError:
        return Reply(-1, {}, b"")
    except (aiohttp.ClientError, ConnectionError):
        return Reply(0, {}, b"")
    assert reply.status in {200, 204, 207, 410, 503, 504} or _of_an_earlier_life(reply), f"{method} {url}: {reply}"
    assert reply.status != 503 or reply.headers.get("x-oms-retry-safe") == "true", reply
    return reply


def _of_an_earlier_life(reply: Reply) -> bool:
    """A receipt was shown to the next bridge on the same port."""
    return reply.headers.get("x-oms-error") == "receipt-invalid"
