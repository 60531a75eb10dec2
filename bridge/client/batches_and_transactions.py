"""Many messages that are produced in batches, and the messages of a transaction, which ends with its block."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final, Literal, NamedTuple, Self

from uuid_utils import uuid7

from bridge.client.transport import ProduceResult
from bridge.errors import BackendUnavailable, BodyInvalid, BodyTooLarge, BridgeError, NotStored, Rejected
from bridge.message import Message
from bridge.wire.callback_batch import BatchSplitter

BATCH_BYTES: Final = 1 << 20
"""Bodies of one batch, far below the default limit of a bridge; a larger message is sent alone."""

Result = ProduceResult | BridgeError
SendBatch = Callable[[Sequence[Message]], Awaitable[list[Result]]]


class _Call(NamedTuple):
    message: Message
    since: float
    result: "asyncio.Future[ProduceResult]"


class ProduceBatcher:
    """Gathers messages for `linger` seconds, or until there are `batch` of them or 1 MiB.

    One batch is under way at a time, so messages are stored in the order of the calls; those that come meanwhile share
    the next batch.
    """

    def __init__(self, send: SendBatch, linger: float, batch: int) -> None:
        self._send = send
        self._linger = linger
        self._batch = batch
        self._calls: list[_Call] = []
        self._bytes = 0
        self._full = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def produce(self, message: Message) -> ProduceResult:
        """Store one message. Raises any of `bridge.errors`. A call that is cancelled in time sends nothing."""
        loop = asyncio.get_running_loop()
        call = _Call(message, loop.time(), loop.create_future())
        self._calls.append(call)
        self._bytes += message.size
        if len(self._calls) >= self._batch or self._bytes >= BATCH_BYTES:
            self._full.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await call.result

    async def close(self) -> None:
        """Send what waits, and return when it is answered."""
        self._closing = True
        self._full.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        try:
            while self._calls:
                await self._wait_until_due()
                if calls := self._take():
                    await self._store(calls)
        finally:
            self._task = None

    async def _wait_until_due(self) -> None:
        if self._closing:
            return
        try:
            async with asyncio.timeout_at(self._calls[0].since + self._linger):
                await self._full.wait()
        except TimeoutError:
            return

    def _take(self) -> list[_Call]:
        """Remove one batch from the waiting calls and return it, without the cancelled ones."""
        messages = next(_split((call.message for call in self._calls), self._batch))
        taken, self._calls = self._calls[: len(messages)], self._calls[len(messages) :]
        self._bytes -= sum(message.size for message in messages)
        if not self._closing and len(self._calls) < self._batch and self._bytes < BATCH_BYTES:
            self._full.clear()
        return [call for call in taken if not call.result.done()]

    async def _store(self, calls: list[_Call]) -> None:
        results: Sequence[Result | Exception]
        try:
            results = await store_batch(self._send, [call.message for call in calls])
        except Exception as error:  # noqa: BLE001 - a message that cannot be encoded, or a defect: the calls raise it
            results = [error] * len(calls)
        for call, result in zip(calls, results, strict=True):
            if call.result.done():  # cancelled meanwhile
                continue
            if isinstance(result, Exception):
                call.result.set_exception(result)
            else:
                call.result.set_result(result)


async def store_batch(send: SendBatch, messages: Sequence[Message]) -> list[Result]:
    """Return one result or error for each message, also if the batch fails as a whole.

    A batch that is too large is sent again in halves: nothing of it was stored.
    """
    try:
        return await send(messages)
    except (BodyTooLarge, BodyInvalid) as error:
        if len(messages) == 1:
            return [error]
    except BridgeError as error:
        return [copy(error) for _ in messages]
    half = len(messages) // 2
    return [*await store_batch(send, messages[:half]), *await store_batch(send, messages[half:])]


async def store_all(send: SendBatch, messages: Iterable[Message], batch: int) -> list[Result]:
    """Store any number of messages in batches, one after the other.

    After an error that is not `Rejected` nothing more is sent, so that no message overtakes another.
    """
    results: list[Result] = []
    failed = False
    for some in _split(messages, batch):
        if failed:
            results += [BackendUnavailable("This message was not sent: an earlier batch failed.") for _ in some]
            continue
        stored = await store_batch(send, some)
        failed = any(isinstance(result, BridgeError) and not isinstance(result, Rejected) for result in stored)
        results += stored
    return results


def _split(messages: Iterable[Message], batch: int) -> Iterator[list[Message]]:
    splitter = BatchSplitter[Message](batch, BATCH_BYTES)
    for message in messages:
        if complete := splitter.add(message, message.size):
            yield complete
    if rest := splitter.rest():
        yield rest


Prepare = Callable[[Message, dict[str, str]], Awaitable[str]]
End = Callable[[str, Literal["commit", "rollback"]], Awaitable[dict[str, Any]]]

TIMEOUT_MS: Final = 60_000

_log = logging.getLogger("bridge.client")


class ClientTransaction:
    """The messages that are committed when the block is left, or rolled back when an exception leaves it."""

    def __init__(
        self, prepare: Prepare, end: End, transaction_id: str | None, timeout_ms: int, check: str | None
    ) -> None:
        self.id = transaction_id or str(uuid7())
        """Known from the start, so that the program can write it into its database."""
        self._prepare = prepare
        self._end = end
        self._parameters = {"transaction": "prepare", "transaction-timeout": str(timeout_ms)}
        if check is not None:
            self._parameters["transaction-check"] = check
        self._may_exist = False
        """Whether the bridge may have prepared a message: a transaction without one does not exist there."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._may_exist:
            return
        if kind is None:
            await self._end(self.id, "commit")
            return
        try:
            await self._end(self.id, "rollback")
        except BridgeError as error:  # the exception of the block is raised; the bridge ends the transaction later
            _log.warning("the transaction %s could not be rolled back: %s", self.id, error.detail)

    async def produce(self, message: Message) -> str:
        """Prepare one message; return its messageId. Raises any of `bridge.errors`."""
        try:
            message_id = await self._prepare(message._replace(transaction_id=self.id), self._parameters)
        except (Rejected, NotStored, TypeError):  # not prepared
            raise
        except BaseException:  # perhaps it was, also if this call is cancelled
            self._may_exist = True
            raise
        self._may_exist = True
        return message_id
