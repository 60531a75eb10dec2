"""Heartbeats of streams that have nothing to send: many proxies end a response after 60 s of silence, some after 30."""

import asyncio
from typing import Final

from bridge.http.request_and_reply import Pair, Write

HEARTBEAT_SECONDS: Final = 15.0
"""Longest silence of a stream."""
UNBUFFERED: Final[Pair] = (b"x-accel-buffering", b"no")
"""The header that makes nginx pass a stream on at once."""


class Heartbeat:
    """Writes the pieces of a stream, and `sign` after `HEARTBEAT_SECONDS` without one. `close` it at the end.

    A heartbeat is a task only while it is written. The error of one is raised by the next `write`.
    """

    def __init__(self, write: Write, sign: bytes) -> None:
        self._write = write
        self._sign = sign
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        """When the last piece was written."""
        self._writing = False
        self._beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._due)

    async def write(self, piece: bytes) -> None:
        """Write a piece; see `Write`."""
        self._writing = True
        try:
            if self._beat is not None:
                await self._beat
            await self._write(piece)
        finally:
            self._writing = False
            self._last = self._loop.time()

    def close(self) -> None:
        """Write no more heartbeats."""
        self._timer.cancel()
        if self._beat is not None and not self._beat.cancel() and not self._beat.cancelled():
            self._beat.exception()  # asyncio would log that nothing has read it

    def _due(self) -> None:
        now = self._loop.time()
        silent = not self._writing and self._last + HEARTBEAT_SECONDS <= now
        if silent and self._beat is None:
            self._beat = asyncio.ensure_future(self._write_sign())
        self._timer = self._loop.call_at(
            (now if silent or self._writing else self._last) + HEARTBEAT_SECONDS, self._due
        )

    async def _write_sign(self) -> None:
        await self._write(self._sign)
        self._beat = None
