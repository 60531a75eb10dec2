"""The keys of issuers: from files, or fetched from URLs.

Fetches are asynchronous, one at a time for an issuer. The last good set stays when one fails. A token with an unknown
key id forces a fetch, but not within `FORCED_PAUSE` of the last one, whatever ids tokens name.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from bridge.engine.clock import Clock
from bridge.identity.watched_files import WatchedFile

if TYPE_CHECKING:
    from bridge.identity.jwt_tokens import Keys

REFRESH: Final = 300_000
"""Milliseconds after which keys are fetched again."""
FORCED_PAUSE: Final = 10_000
"""Milliseconds between two fetches that tokens force, or that repeat a failed one."""
WAITING_MAX: Final = 100
"""Requests that wait for a fetch of one issuer; others are answered at once."""
FETCH_SECONDS: Final = 5.0
BYTES_MAX: Final = 1 << 20

_OK: Final = 200

Fetch = Callable[[], Awaitable[bytes]]

_log = logging.getLogger("bridge.identity")


class KeySource(Protocol):
    """Where the keys of one issuer come from."""

    @property
    def keys(self) -> "Keys | None":
        """The last good keys; None: there were none yet."""
        ...

    async def renew(self) -> None:
        """Get newer keys for a token whose key id is unknown, if that is allowed now."""

    def tick(self) -> None:
        """Get newer keys if it is time; called every second."""


class KeyFile:
    """Keys in a file, which is read again when it changes."""

    def __init__(self, file: "WatchedFile[Keys]") -> None:
        self._file = file

    @property
    def keys(self) -> "Keys":
        """See `KeySource`."""
        return self._file.content

    async def renew(self) -> None:
        """See `KeySource`: the file may have changed within the last second."""

    def tick(self) -> None:
        """See `KeySource`. `Access` reads changed files."""


class FetchedKeys:
    """Keys that an issuer publishes."""

    def __init__(self, name: str, fetch: Fetch, parse: "Callable[[bytes], Keys]", clock: Clock) -> None:
        self.keys: Keys | None = None
        self._name = name
        self._fetch = fetch
        self._parse = parse
        self._clock = clock
        self._tried: int | None = None
        self._failing = False
        self._running: asyncio.Task[None] | None = None
        self._waiting = 0

    async def renew(self) -> None:
        """See `KeySource`. A request that is one too many to wait returns at once."""
        if self._running is None and self._may_fetch(FORCED_PAUSE):
            self._start()
        if (running := self._running) is None or self._waiting >= WAITING_MAX:
            return
        self._waiting += 1
        try:
            await asyncio.wait((running,))
        finally:
            self._waiting -= 1

    def tick(self) -> None:
        """See `KeySource`."""
        if self._running is None and self._may_fetch(FORCED_PAUSE if self._failing or self.keys is None else REFRESH):
            self._start()

    async def close(self) -> None:
        """End a fetch."""
        if (running := self._running) is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def _may_fetch(self, pause: int) -> bool:
        return self._tried is None or self._clock.mono() - self._tried >= pause

    def _start(self) -> None:
        self._tried = self._clock.mono()
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            self.keys = self._parse(await asyncio.wait_for(self._fetch(), FETCH_SECONDS))
        except Exception as error:  # noqa: BLE001 - whatever fails, the last good keys stay
            if not self._failing:
                reason = str(error) or type(error).__name__
                _log.warning(
                    "the keys of an issuer cannot be fetched; the last good ones stay in use",
                    extra={"issuer": self._name, "reason": reason},
                )
            self._failing = True
        else:
            if self._failing:
                _log.warning("the keys of an issuer are fetched again", extra={"issuer": self._name})
            self._failing = False
        finally:
            self._running = None


def fetch_from(url: str, ca: str | None) -> Fetch:
    """Return what fetches a URL: without redirects and proxies, at most `BYTES_MAX`. `ca`: a PEM file of authorities.

    Raises `ValueError` if `ca` cannot be read. What it returns raises `ValueError` and the errors of aiohttp.
    """
    import certifi  # noqa: PLC0415 - only for issuers with a URL

    try:
        context = ssl.create_default_context(cafile=ca or certifi.where())
    except OSError:  # ssl.SSLError is one
        raise ValueError("the file of authorities holds no certificates in PEM form") from None

    async def fetch() -> bytes:
        import aiohttp  # noqa: PLC0415 - only for issuers with a URL

        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        headers = {"accept": "application/jwk-set+json, application/json", "accept-encoding": "identity"}
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.get(url, ssl=context, allow_redirects=False, headers=headers) as response,
        ):
            if response.status != _OK:
                raise ValueError(f"the issuer answered {response.status}")
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > BYTES_MAX:
                    raise ValueError(f"the answer has more than {BYTES_MAX} bytes")
            return bytes(body)

    return fetch
