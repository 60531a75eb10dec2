"""Acknowledgements in the background: those that fall due while a request is on its way share the next one."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from bridge.client.retry import is_passing, pause
from bridge.errors import BridgeError, LeaseEnded, OutcomeUnknown, ReceiptInvalid

BATCH: Final = 500
"""Receipts of one request: of about 32 bytes each, half of the 32 KiB of headers that a bridge takes by default."""
FLUSH_SECONDS: Final = 5.0
NOTICE_SECONDS: Final = 1.0
"""For a stream that has broken off to be seen to: an acknowledgement's connection may hear of it first."""

_log = logging.getLogger("bridge.client")


class Acks:
    """Sends what `add` is given. Use it as an asynchronous context manager: leaving it sends the rest.

    An acknowledgement that found no bridge is repeated until it does. One that comes after its stream has broken off is
    logged: the message comes again anyhow. Any other failure ends it; `check` and the exit raise it.
    """

    def __init__(self, send: Callable[..., Awaitable[None]], news: asyncio.Event) -> None:
        self._send = send
        self._news = news
        self._due: list[tuple[asyncio.Event, str]] = []
        self._more = asyncio.Event()
        self._closing = False
        self._trouble: BridgeError | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._flush()
        except BridgeError as failure:
            if error is None:
                raise
            if failure is not error:
                _log.warning("Messages may come again although they were handled: %s", failure)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, ended: asyncio.Event, receipt: str) -> None:
        """Acknowledge a message; `ended` is set when its stream has."""
        self._due.append((ended, receipt))
        self._more.set()

    def check(self) -> None:
        """Raise what has ended it."""
        if self._task.done():
            self._task.result()

    async def settle(self, ended: asyncio.Event, receipts: list[str]) -> bool:
        """Acknowledge and wait; False when it came too late. Raises the error tree."""
        failures = 0
        while True:
            try:
                await self._send(*receipts)
            except (LeaseEnded, ReceiptInvalid) as error:
                if not await _soon(ended):
                    raise
                _log.warning("Messages come again, their stream broke off before they were acknowledged: %s", error)
                return False
            except BridgeError as error:
                if not is_passing(error):
                    raise
                self._trouble = error
                failures += 1
                await asyncio.sleep(pause(failures, random.random(), error.retry_after))  # noqa: S311 - no secret
            else:
                self._trouble = None
                return True

    async def _run(self) -> None:
        while self._due or not self._closing:
            if not self._due:
                self._more.clear()
                await self._more.wait()
                continue
            ended = self._due[0][0]
            batch = [receipt for of, receipt in self._due[:BATCH] if of is ended]  # a prefix: streams follow each other
            await self.settle(ended, batch)
            del self._due[: len(batch)]

    async def _flush(self) -> None:
        self._closing = True
        self._more.set()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._task
        except TimeoutError:
            raise self._trouble or OutcomeUnknown("The bridge has not answered the last acknowledgements.") from None


async def _soon(ended: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(NOTICE_SECONDS):
            return await ended.wait()
    except TimeoutError:
        return False
