"""`GET /v1/push` as a stream that reopens: buffers received messages until the program takes them."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, Self

from bridge.client.request_sender import RequestSender, is_transient, parameter_headers, retry_delay
from bridge.client.transport import Pair
from bridge.errors import BackendUnavailable, BodyInvalid, BridgeError, decode_problem
from bridge.wire.stream_framings import StreamEnd, StreamMessage, decode_lines

CONTENT_TYPE: Final = "application/x-ndjson"
_REQUESTED_ENDS: Final = ("maxmessages", "waitmills")
_GROUP_CLOSED: Final = ("purged", "deleted")
"""Ends after which the stream reopens, as after a restart of the bridge."""

_log = logging.getLogger("bridge.client")


class PushStream:
    """Opens a stream, and reopens it if it breaks off. Use it as an asynchronous context manager.

    It always reads, even if the program takes no messages: the credit bounds what the bridge sends, and a break is seen
    at once. Leaving the context closes the connection.

    Each request sends `parameters` and the remaining part of `limit` (None: no limit) as `maxmessages`. `changed` is
    set whenever a message arrives or the stream opens or ends. Entering raises any of `bridge.errors` if the first
    attempt fails.
    """

    def __init__(
        self,
        create_sender: Callable[[], RequestSender],
        parameters: Mapping[str, str],
        limit: int | None,
        changed: asyncio.Event,
    ) -> None:
        self.ended = asyncio.Event()
        """Set when the current stream ends, and with it the leases of its messages. Each stream has a new event."""
        self._create_sender = create_sender
        self._parameters = parameters
        self._remaining = limit
        self._changed = changed
        self._lines: deque[StreamMessage] = deque()
        self._opened = self._incompatible = False
        self._failures = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())
        try:
            while not self._opened and not self.is_over():
                await self.wait()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def is_over(self) -> bool:
        """Whether the stream ended as requested. Raises the error that ended it otherwise."""
        if not self._task.done():
            return False
        self._task.result()
        return True

    def pop(self) -> StreamMessage | None:
        """Take the next message from the buffer; None if the buffer is empty."""
        return self._lines.popleft() if self._lines else None

    def buffered_receipts(self) -> list[str]:
        """Return the receipts of the messages in the buffer."""
        return [line.receipt for line in self._lines if line.receipt is not None]

    async def wait(self) -> None:
        """Wait until `changed` is set again."""
        self._changed.clear()
        await self._changed.wait()

    async def _run(self) -> None:
        while self._remaining != 0:  # 0 after a break: every message was handed out
            try:
                await self._run_once()
            except BridgeError as error:
                if not self._opened or self._incompatible or not is_transient(error):
                    raise
                await self._pause(error)
            else:
                return

    async def _run_once(self) -> None:
        """Read one stream until it ends as requested. Raises the error that ended it otherwise."""
        sender = self._create_sender()
        try:
            async with sender.stream("/v1/push", self._headers(), CONTENT_TYPE) as chunks, aclosing(chunks):
                self._opened = True
                self._changed.set()
                await self._read(chunks, sender)
        finally:
            self._incompatible = sender.incompatible
            self.ended.set()
            self.ended = asyncio.Event()
            if self._remaining is not None:
                self._remaining += len(self._lines)
            self._lines.clear()

    def _headers(self) -> list[Pair]:
        limit = {} if self._remaining is None else {"maxmessages": str(self._remaining)}
        return [*parameter_headers({**self._parameters, **limit}), (b"accept", CONTENT_TYPE.encode("ascii"))]

    async def _read(self, chunks: AsyncIterator[bytes], sender: RequestSender) -> None:
        unfinished: list[bytes] = []
        async for chunk in chunks:
            end = chunk.rfind(b"\n") + 1
            if end:
                if self._add_lines(b"".join((*unfinished, chunk[:end])), sender):
                    return
                unfinished.clear()
            unfinished.append(chunk[end:])
        raise sender.stream_broken()

    def _add_lines(self, raw: bytes, sender: RequestSender) -> bool:
        """Add lines to the buffer; return whether the end was among them. Raises the error that the end contains."""
        before, end = len(self._lines), None
        try:
            for line in decode_lines(raw):
                if isinstance(line, StreamEnd):
                    end = line
                    break
                if line.receipt is None:
                    raise sender.protocol_error()
                self._lines.append(line)
        except BodyInvalid:  # not passed on: a Rejected would mean that the request was wrong
            raise sender.protocol_error() from None
        finally:
            if added := len(self._lines) - before:
                self._failures = 0
                if self._remaining is not None:
                    self._remaining -= added
                self._changed.set()
        return end is not None and _is_requested(end)

    async def _pause(self, error: BridgeError) -> None:
        self._failures += 1
        seconds = retry_delay(self._failures, random.random(), error.retry_after)  # noqa: S311 - no secret
        _log.warning("%s The stream reopens in %.1f s.", error, seconds)
        await asyncio.sleep(seconds)


def _is_requested(end: StreamEnd) -> bool:
    """Return True if the stream ended as requested. Raises the error that ended it otherwise."""
    if end.reason in _REQUESTED_ENDS:
        return True
    detail = end.detail or f"The stream ended: {end.reason}."
    if end.reason in _GROUP_CLOSED:
        raise BackendUnavailable(detail)
    raise decode_problem(0, {"code": end.reason, "detail": detail})
