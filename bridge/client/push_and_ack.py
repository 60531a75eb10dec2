"""The result of `Client.push`: an iterator of messages, which acknowledges and renews leases in the background."""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from bridge.client.reopening_stream import PushStream
from bridge.client.request_sender import RequestSender, is_transient, retry_delay
from bridge.client.transport import ReceivedMessage
from bridge.errors import BridgeError, LeaseEnded, OutcomeUnknown, ReceiptInvalid
from bridge.wire.stream_framings import StreamMessage

BATCH: Final = 500
"""Receipts of one request; a bridge accepts 1000."""
FLUSH_SECONDS: Final = 5.0
"""Longest wait for the last acknowledgements when the block is left."""
STREAM_END_SECONDS: Final = 1.0
"""Longest wait for the end of a stream after a refused acknowledgement: its connection may report the break first."""

_log = logging.getLogger("bridge.client")


class AckSender:
    """Sends acknowledgements; those that are added during a request share the next one.

    Use it as an asynchronous context manager: leaving it sends the rest. An acknowledgement that does not reach the
    bridge is repeated until it does. One that is refused after its stream has broken off is logged: the message is
    delivered again. Any other failure ends the sender; `check` and the exit raise it.
    """

    def __init__(self, send: Callable[..., Awaitable[None]], changed: asyncio.Event) -> None:
        self._send = send
        self._changed = changed
        self._pending: list[tuple[asyncio.Event, str]] = []
        self._added = asyncio.Event()
        self._closing = False
        self._last_error: BridgeError | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())
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
                _log.warning("Messages that were handled may be delivered again: %s", failure)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, stream_ended: asyncio.Event, receipt: str) -> None:
        """Acknowledge a message in the background; `stream_ended` is set when its stream ends."""
        self._pending.append((stream_ended, receipt))
        self._added.set()

    def check(self) -> None:
        """Raise the error that ended the sender, if any."""
        if self._task.done():
            self._task.result()

    async def acknowledge(self, stream_ended: asyncio.Event, receipts: list[str]) -> bool:
        """Acknowledge messages of one stream and wait for the response.

        Returns False if the stream ended before. Raises the error tree.
        """
        failures = 0
        while True:
            try:
                await self._send(*receipts)
            except (LeaseEnded, ReceiptInvalid) as error:
                if not await _ends_soon(stream_ended):
                    raise
                _log.warning(
                    "Messages are delivered again: their stream broke off before their acknowledgement: %s", error
                )
                return False
            except BridgeError as error:
                if not is_transient(error):
                    raise
                self._last_error = error
                failures += 1
                delay = retry_delay(failures, random.random(), error.retry_after)  # noqa: S311 - no secret
                await asyncio.sleep(delay)
            else:
                self._last_error = None
                return True

    async def _run(self) -> None:
        while self._pending or not self._closing:
            if not self._pending:
                self._added.clear()
                await self._added.wait()
                continue
            stream_ended = self._pending[0][0]
            # the receipts of one stream are a prefix: streams follow one another
            batch = [receipt for ended, receipt in self._pending[:BATCH] if ended is stream_ended]
            await self.acknowledge(stream_ended, batch)
            del self._pending[: len(batch)]

    async def _flush(self) -> None:
        self._closing = True
        self._added.set()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._task
        except TimeoutError:
            raise self._last_error or OutcomeUnknown("The bridge did not confirm the last acknowledgements.") from None


async def _ends_soon(stream_ended: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(STREAM_END_SECONDS):
            return await stream_ended.wait()
    except TimeoutError:
        return False


YIELD_MESSAGES: Final = 32
YIELD_SECONDS: Final = 0.001
"""After so many messages, or so long, a handler that never waits lets other tasks run, such as its acknowledgements."""
RENEWALS_PER_LEASE: Final = 3
"""Renewals during one lease, so that a later one makes up for one that fails."""


class Acknowledger(Protocol):
    """Settles receipts; `Client` implements it."""

    async def ack(self, *receipts: str) -> None:
        """Settle the messages permanently."""
        ...

    async def nack(self, *receipts: str, delay_ms: int) -> None:
        """Give the messages back, to be delivered again after `delay_ms`."""
        ...

    async def extend(self, *receipts: str, lease_ms: int) -> None:
        """Make the leases end `lease_ms` from now."""
        ...


class AckMode(Enum):
    """When a message is acknowledged."""

    AUTO = "when the next one is requested"
    FIRST = "before it is handed out (at most once)"
    MANUAL = "by the program"


class ReceiveOptions(NamedTuple):
    """The options of `Client.push`."""

    source: str
    group: str
    ack_mode: AckMode
    lease_ms: int
    credit: int | None
    max_messages: int | None
    wait_ms: int | None

    def parameters(self) -> dict[str, str]:
        """Return the parameters of each stream, without `maxmessages`, which changes."""
        required = {"source": self.source, "consumerid": self.group, "ack": "true", "leasemills": str(self.lease_ms)}
        optional = {"credit": self.credit, "waitmills": self.wait_ms}
        return required | {name: str(value) for name, value in optional.items() if value is not None}


@asynccontextmanager
async def renew_leases(
    extend: Callable[..., Awaitable[None]], leased_receipts: Callable[[], list[str]], lease_ms: int
) -> AsyncIterator[None]:
    """Renew leases during the block.

    The bridge renews the leases of a stream until it has sent the last message. Messages that still wait in the client
    then depend on this. The client has no information when that is, so it always renews.
    """
    task = asyncio.create_task(_renew(extend, leased_receipts, lease_ms))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _renew(
    extend: Callable[..., Awaitable[None]], leased_receipts: Callable[[], list[str]], lease_ms: int
) -> None:
    while True:
        await asyncio.sleep(lease_ms / 1000 / RENEWALS_PER_LEASE)
        receipts = leased_receipts()
        for start in range(0, len(receipts), BATCH):
            with suppress(BridgeError):  # the bridge treats each receipt separately; an ended lease shows at its ack
                await extend(*receipts[start : start + BATCH], lease_ms=lease_ms)


class Receiver:
    """An asynchronous iterator of received messages; see `Client.push`."""

    def __init__(self, client: Acknowledger, stream: PushStream, ack_sender: AckSender, ack_mode: AckMode) -> None:
        self._client = client
        self._stream = stream
        self._ack_sender = ack_sender
        self._ack_mode = ack_mode
        self._acknowledged: deque[StreamMessage] = deque()
        """With `AckMode.FIRST`: messages to hand out."""
        self._current: tuple[asyncio.Event, str] | None = None
        """With `AckMode.AUTO`: the message that the program handles, as `AckSender.add` takes it."""
        self._since_yield = 0
        self._yielded = time.monotonic()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self.acknowledge_current()
        self._since_yield += 1
        if self._since_yield >= YIELD_MESSAGES or time.monotonic() - self._yielded > YIELD_SECONDS:
            await asyncio.sleep(0)  # 30 us
            self._since_yield, self._yielded = 0, time.monotonic()
        while True:
            self._ack_sender.check()
            if self._acknowledged:
                message = self._acknowledged.popleft().message
                return ReceivedMessage(message, None, None, message.delivery_count or 1)
            if (line := self._stream.pop()) is not None:
                if self._ack_mode is not AckMode.FIRST:
                    return self._hand_out(line)
                await self._acknowledge_buffered(line)
            elif self._stream.is_over():
                raise StopAsyncIteration
            else:
                await self._stream.wait()

    async def nack(self, received: ReceivedMessage, *, delay_ms: int = 0) -> None:
        """Give a message back instead of acknowledging it; it is delivered again after `delay_ms`.

        Raises `LeaseEnded` if its lease has ended, and `ValueError` if it was not leased.
        """
        if received.receipt is None:
            raise ValueError("With ack=False a message is settled before it is handed out.")
        if self._current is not None and self._current[1] == received.receipt:
            self._current = None
        await self._client.nack(received.receipt, delay_ms=delay_ms)

    def acknowledge_current(self) -> None:
        """Acknowledge the message that the program has handled, in the background."""
        if self._current is not None:
            self._ack_sender.add(*self._current)
            self._current = None

    def leased_receipts(self) -> list[str]:
        """Return the receipts whose leases this client renews."""
        current = [] if self._current is None else [self._current[1]]
        return current + self._stream.buffered_receipts()

    def _hand_out(self, line: StreamMessage) -> ReceivedMessage:
        message, receipt, lease_until = line
        if self._ack_mode is AckMode.AUTO and receipt is not None:
            self._current = (self._stream.ended, receipt)
        return ReceivedMessage(message, receipt, lease_until, message.delivery_count or 1)

    async def _acknowledge_buffered(self, first: StreamMessage) -> None:
        """Acknowledge all buffered messages in one request. If their stream ended before, drop them: "at most once"."""
        stream_ended, lines = self._stream.ended, [first]
        while len(lines) < BATCH and (line := self._stream.pop()) is not None:
            lines.append(line)
        receipts = [line.receipt for line in lines if line.receipt is not None]
        if await self._ack_sender.acknowledge(stream_ended, receipts):
            self._acknowledged += lines


@asynccontextmanager
async def open_receiver(
    client: Acknowledger, create_sender: Callable[[], RequestSender], options: ReceiveOptions
) -> AsyncIterator[Receiver]:
    """Receive messages during the block."""
    changed = asyncio.Event()
    async with (
        PushStream(create_sender, options.parameters(), options.max_messages, changed) as stream,
        AckSender(client.ack, changed) as ack_sender,
    ):
        receiver = Receiver(client, stream, ack_sender, options.ack_mode)
        async with renew_leases(client.extend, receiver.leased_receipts, options.lease_ms):
            yield receiver
            receiver.acknowledge_current()  # not reached if an exception leaves the block
