"""POSTs to the URLs that clients registered, and nothing else: no other way out, no redirect, no proxy, no cookie."""

import asyncio
import io
import re
from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from aiohttp import (
    ClientConnectionError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
)
from multidict import CIMultiDict
from yarl import URL

from bridge import __version__
from bridge.callbacks.answer import Answer, Refused, Unreachable
from bridge.callbacks.dialer import Dialer
from bridge.callbacks.targets import Target, Targets
from bridge.errors import Rejected

Pair = tuple[bytes, bytes]
Origin = tuple[str, str, int]
"""Scheme, host and port."""

PLACES: Final = 256
"""POSTs in flight, each on a connection of its own."""
PLACES_PER_ORIGIN: Final = 64
"""The same for one scheme, host and port, so that a slow endpoint leaves room for the others."""

_URLS_REMEMBERED: Final = 1024
_ALWAYS: Final = {
    "user-agent": f"openmessaging-bridge/{__version__}",
    "accept-encoding": "identity",  # an answer's body is never inflated
}
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[\t -~]*")
_HTTPS_OWN: Final = frozenset(
    (b"connection", b"content-length", b"expect", b"host", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers by which a message would change the request; aiohttp sends, and obeys, what it is given."""
_WHOLE: Final = 1 << 20
"""Bytes of a body that are written in one piece; aiohttp warns of more."""
_HTTP_OK: Final = 200


class Egress:
    """The only door to callbacks. `timeout` is milliseconds for one POST: name, connection, TLS, request and answer."""

    def __init__(self, targets: Targets, dialer: Dialer, timeout: int) -> None:
        self._targets = targets
        self._dialer = dialer
        self._seconds = timeout / 1000
        self._route = lru_cache(_URLS_REMEMBERED)(self._find)
        self._session: ClientSession | None = None
        self._places = asyncio.Semaphore(PLACES)
        self._places_of: WeakValueDictionary[Origin, asyncio.Semaphore] = WeakValueDictionary()

    async def post(self, url: str, headers: list[Pair], body: bytes) -> Answer:
        """POST once. Raises `Refused`, nothing was sent, or `Unreachable`, the endpoint may have seen it.

        Host, length, user agent and accept-encoding are added here. Waiting for a place is not counted in the timeout,
        or a slow endpoint would fail the others; it ends, because each place is taken no longer than the timeout.
        """
        target, route = self._route(url)
        checked = _checked(headers)
        origin = target[:3]
        if (places := self._places_of.get(origin)) is None:
            places = self._places_of[origin] = asyncio.Semaphore(PLACES_PER_ORIGIN)
        async with places, self._places:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._post(route, checked, body)
            except TimeoutError:
                raise Unreachable(f"no answer from {target.authority} within {self._seconds:g} s") from None
            except ClientError as error:
                raise Unreachable(_reason(target, error)) from None

    async def close(self) -> None:
        """Close the idle connections. Call it after the last POST has ended or is cancelled."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, route: URL, headers: CIMultiDict[str], body: bytes) -> Answer:
        """Leave it to aiohttp, which sends a POST once: it tries again where a method is idempotent (RFC 9110 9.2.2).

        An endpoint that closes an idle connection while a POST is on its way leaves open whether it was acted upon.
        """
        session = self._session
        if session is None:
            session = self._session = self._open()
        data = body if len(body) <= _WHOLE else io.BytesIO(body)
        async with session.post(route, headers=headers, data=data, allow_redirects=False) as response:
            await response.read()
        if response.status < _HTTP_OK:
            raise Unreachable(f"the endpoint answered {response.status}, which is no answer to a POST")
        return Answer(response.status, response.headers.get("retry-after"))

    def _open(self) -> ClientSession:
        return ClientSession(
            connector=self._dialer.connector(),
            cookie_jar=DummyCookieJar(),
            headers=_ALWAYS,
            skip_auto_headers=("accept", "content-type"),
            auto_decompress=False,
            trust_env=False,  # no proxy, no netrc
            timeout=ClientTimeout(total=None, sock_connect=None),  # one limit is around it all
        )

    def _find(self, url: str) -> tuple[Target, URL]:
        """Judge a URL, and its host if that is an address. What is refused is not remembered."""
        try:
            target = self._targets.check(url)
        except Rejected as error:
            raise Refused(error.detail) from None
        self._dialer.judge(target.host)
        # No second parser: `encoded` leaves the path, in which the query may stay, as it is.
        route = URL.build(scheme=target.scheme, authority=target.authority, path=target.path, encoded=True)
        if (route.raw_host, route.port, route.raw_path_qs) != target[1:] or route.user is not None:
            raise Refused(f"{target.host} is read in two ways")
        return target, route


def _checked(headers: list[Pair]) -> CIMultiDict[str]:
    """Look at names and at what frames a request; aiohttp looks for control characters only."""
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _HTTPS_OWN:
            raise Refused(f"these headers cannot be sent ({name[:40]!r})")
    return CIMultiDict([(name.decode("ascii"), value.decode("ascii")) for name, value in headers])


def _reason(target: Target, error: ClientError) -> str:
    """One sentence of our own: aiohttp's hold the URL, or what the endpoint sent."""
    if isinstance(error, ClientConnectorDNSError):
        return f"the name {target.host} does not resolve ({error.__cause__})"
    if isinstance(error, ClientConnectorError):
        return f"no connection to {target.authority} ({error.__cause__})"
    if isinstance(error, ServerDisconnectedError):
        return "the endpoint closed the connection without an answer"
    if isinstance(error, ClientConnectionError):
        return f"the connection broke ({error.__cause__ or type(error).__name__})"
    return f"the answer is broken ({type(error).__name__})"
