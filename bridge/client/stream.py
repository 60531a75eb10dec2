"""`GET /v1/push`, kept open: what it brings waits here until it is asked for."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, Self

from bridge.client.connection import Connection, Pair, parameters
from bridge.client.retry import is_passing, pause
from bridge.errors import BridgeError
from bridge.wire import problem
from bridge.wire.streams import End, Line, decode_line

KIND: Final = "application/x-ndjson"
_AS_ASKED: Final = ("maxmessages", "waitmills")

_log = logging.getLogger("bridge.client")


class Stream:
    """Opens the stream, and opens it again when it breaks off. Use it as an asynchronous context manager.

    It reads all that comes, whether or not anybody asks: the credit bounds what the bridge sends, and a client that
    reads nothing answers no ping, is taken for dead, and loses its leases. A stream is never left without closing its
    connection: only that tells the bridge (see `Connection.stream`).

    Entering raises any of `bridge.errors` when the first attempt fails. `news` is set whenever there is something new.
    """

    def __init__(
        self, connect: Callable[[], Connection], asked: Mapping[str, str], limit: int | None, news: asyncio.Event
    ) -> None:
        self.ended = asyncio.Event()
        """Set when the present stream ends, and with it the leases of all that it has brought; then it is a new one."""
        self._connect = connect
        self._asked = asked
        self._left = limit
        self._news = news
        self._lines: deque[Line] = deque()
        self._opened = self._foreign = False
        self._failures = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._news.set())
        try:
            while not self._opened and not self.over():
                await self.wait()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def over(self) -> bool:
        """Whether it has ended as it was asked to. Raises the error that ended it for good."""
        if not self._task.done():
            return False
        self._task.result()
        return True

    def pop(self) -> Line | None:
        """Return the next message that has come; None when there is none yet."""
        return self._lines.popleft() if self._lines else None

    def waiting(self) -> list[str]:
        """Return the receipts of the messages that have come and were not asked for yet."""
        return [line.receipt for line in self._lines if line.receipt is not None]

    async def wait(self) -> None:
        """Wait for news."""
        self._news.clear()
        await self._news.wait()

    async def _run(self) -> None:
        while self._left != 0:  # 0 after a break: all were handed out, and the last ones come again to somebody
            try:
                await self._read_one()
            except BridgeError as error:
                if not self._opened or self._foreign or not is_passing(error):
                    raise
                await self._pause(error)
            else:
                return

    async def _read_one(self) -> None:
        """Read one stream until it ends as asked. Raises what else has ended it."""
        connection = self._connect()
        try:
            async with connection.stream("/v1/push", self._pairs(), KIND) as pieces, aclosing(pieces):
                self._opened = True
                self._news.set()
                await self._read(pieces, connection)
        finally:
            self._foreign = connection.foreign
            self.ended.set()
            self.ended = asyncio.Event()
            if self._left is not None:
                self._left += len(self._lines)
            self._lines.clear()
            await connection.close()

    def _pairs(self) -> list[Pair]:
        limit = {} if self._left is None else {"maxmessages": str(self._left)}
        return [*parameters({**self._asked, **limit}), (b"accept", KIND.encode("ascii"))]

    async def _read(self, pieces: AsyncIterator[bytes], connection: Connection) -> None:
        unfinished: list[bytes] = []
        async for piece in pieces:
            *ended, rest = piece.split(b"\n")
            for raw in ended:
                unfinished.append(raw)
                if (whole := b"".join(unfinished)) and self._take(whole, connection):
                    return
                unfinished.clear()
            unfinished.append(rest)
        raise connection.broken_off()

    def _take(self, raw: bytes, connection: Connection) -> bool:
        """Take in a line; whether it was the last one. Raises the error that it tells."""
        try:
            line = decode_line(raw)
        except BridgeError:  # never as it is: a Rejected would blame the request
            raise connection.unreadable() from None
        if isinstance(line, End):
            if line.why in _AS_ASKED:
                return True
            raise problem.decode(0, {"code": line.why, "detail": line.detail or f"The stream ended: {line.why}."})
        if line.receipt is None:
            raise connection.unreadable()
        self._failures = 0
        if self._left is not None:
            self._left -= 1
        self._lines.append(line)
        self._news.set()
        return False

    async def _pause(self, error: BridgeError) -> None:
        self._failures += 1
        seconds = pause(self._failures, random.random(), error.retry_after)  # noqa: S311 - no secret
        _log.warning("%s The stream opens again in %.1f s.", error, seconds)
        await asyncio.sleep(seconds)
