"""Delivers the messages of one registration: takes them from the engine, posts them, and reports the results.

The engine keeps the order of each key, redelivers, counts deliveries and writes dead letters, as for any consumer. The
worker decides when to take messages and after which delay to give them back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from bridge.callbacks.ack_or_retry import AckRuns, ResponseHandler, Session
from bridge.callbacks.counters import CallbackCounters
from bridge.callbacks.registration import DeliveryHistory, Registration
from bridge.callbacks.retry_policy import CircuitBreaker, EndpointResponse, RequestFailed
from bridge.engine.engine import Engine
from bridge.engine.push_consumer import BATCH, ConsumerOptions, Leased, PushConsumer
from bridge.errors import BridgeError, DestinationUnknown, Draining
from bridge.message import Message
from bridge.wire.callback_batch import BatchSplitter

BYTES_MAX: Final = 256 << 10
"""Bytes of the messages in one POST, with inflated bodies; only a single message may have more."""


async def split(taken: Sequence[Leased], size: int, inflate: "Inflate") -> AsyncIterator[list[Leased]]:
    """Yield the messages of each POST, at most `size`, with inflated bodies.

    A message that is delivered again is alone: if the endpoint cannot process it, only its own deliveries fail. Such
    messages come first.
    """

    async def inflated(leased: Leased) -> Leased:
        return leased._replace(message=await inflate(leased.message))

    splitter: BatchSplitter[Leased] = BatchSplitter(size, BYTES_MAX)
    first_time: list[Leased] = []
    for leased in taken:
        if (leased.message.delivery_count or 1) == 1:
            first_time.append(leased)
        else:
            yield [leased if leased.message.compression is None else await inflated(leased)]
    for leased in first_time:
        plain = leased if leased.message.compression is None else await inflated(leased)
        if batch := splitter.add(plain, plain.message.size):
            yield batch
    if batch := splitter.rest():
        yield batch


_ENGINE_RETRY: Final = 1_000
"""Wait after an error of the engine before it is called again, ms."""
_LINGER: Final = 0.02
"""Seconds before the next POST of a registration with batches while another is in flight and few messages are ready."""
_INTERNAL_ERROR: Final = "internal error in the bridge; its log has the details"
_CHANGING: Final = "The destination or the group is being purged or deleted."

_log = logging.getLogger("bridge.callbacks")

_T = TypeVar("_T")
Post = Callable[[Registration, Sequence[Message]], Awaitable[EndpointResponse]]
Inflate = Callable[[Message], Awaitable[Message]]


class DeliveryWorker:
    """One delivery loop: at most `credit` POSTs at once, pauses if the endpoint asks for them, and a circuit breaker.

    It works in sessions. Each session has its own consumer, and ends when no message may be taken for a while. Between
    sessions the worker does not use the engine. `lease` is the length of a message's lease, ms.

    A purge and a delete end the session, not the worker. Only the first session creates a destination that does not
    exist: one that was deleted stays deleted, and the worker waits until it exists again.
    """

    def __init__(  # noqa: PLR0913 - the collaborators of one worker, built in one place (registry.py)
        self,
        registration: Registration,
        engine: Engine,
        history: DeliveryHistory,
        counters: CallbackCounters,
        *,
        post: Post,
        inflate: Inflate,
        lease: int,
    ) -> None:
        self._registration = registration
        self._engine = engine
        self._responses = ResponseHandler(registration, engine, history, counters, self._end_session)
        self._post = post
        self._inflate = inflate
        self._lease = lease
        self._create = True
        self._is_awaited = False
        """Whether the destination did not exist at the last attempt: its messages are newer than the registration."""
        self._posts: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._error: str | None = None
        """Why the engine returns no messages, or does not record their results."""
        self._ended = asyncio.Event()
        self._engine_call: asyncio.Future[Any] | None = None
        """The call of the engine that `_end_session` cancels."""

    @property
    def in_flight(self) -> int:
        """POSTs that have no response yet, or whose messages are not acknowledged yet."""
        return len(self._posts) + (0 if self._session is None else self._session.acks.pending)

    @property
    def last_error(self) -> str | None:
        """Why the engine returns no messages, or does not record their results; None: it does."""
        in_group = None if self._session is None else self._session.consumer.not_ready_reason
        return self._error or self._engine.not_ready_reason or in_group

    @property
    def breaker(self) -> CircuitBreaker:
        """Pauses the registration while its endpoint fails."""
        return self._responses.breaker

    @property
    def paused_until(self) -> int:
        """End of the pause that the endpoint asked for, mono."""
        return self._responses.paused_until

    @property
    def gone(self) -> bool:
        """Whether the endpoint has answered 410 (Gone)."""
        return self._responses.gone

    def end(self) -> None:
        """Take no more messages; `run` returns when the POSTs in flight have ended."""
        self._ended.set()
        self._end_session()

    async def run(self) -> None:
        """Deliver until `end` is called, the endpoint is gone, or the bridge stops."""
        try:
            await self._run()
        finally:
            self._responses.reset_breaker()

    async def _run(self) -> None:
        while not self._is_ending:
            if (wait := self._remaining_pause()) > 0:
                await self._sleep(wait)
                continue
            try:
                await self._run_session()
            except Draining:
                return
            except BridgeError as error:
                self._is_awaited = self._is_awaited or isinstance(error, DestinationUnknown)
                self._error = error.detail
                await self._sleep(_ENGINE_RETRY)
            except Exception:  # noqa: BLE001 - a defect must not end the loop permanently
                _log.exception("internal error", extra=self._registration.subscription._asdict())
                self._error = _INTERNAL_ERROR
                await self._sleep(_ENGINE_RETRY)

    async def _run_session(self) -> None:
        credit = self._credit
        size = self._registration.batch_size
        messages = credit * size if self.breaker.closed else 1
        options = ConsumerOptions(
            self._lease,
            credit=messages,
            batch=max(BATCH, size),
            receipts=False,
            create=self._create,
            from_oldest=self._is_awaited,
        )
        consumer = await self._call_engine(self._engine.consume(self._registration.subscription, options))
        if consumer is None:
            return
        self._error = None
        self._is_awaited = False
        # Without late groups, the group would miss messages that are produced before it exists again.
        self._create = not self._engine.features.late_groups
        acks = AckRuns(consumer, self._report_ack, self._handle_defect)
        self._session = session = Session(consumer, acks)
        try:
            while self._may_take(session, credit):
                taken = await self._call_engine(consumer.take()) or ()
                async for batch in split(taken, size, self._inflate):
                    await self._start_post(session, batch, credit)
                if self._posts and len(taken) < size:
                    await self._wait_for_post(_LINGER)
            if consumer.stopped and not self._engine.draining:
                self._error = _CHANGING
            if self._posts:
                await asyncio.wait(self._posts)
            await acks.drain()
        finally:
            for post in self._posts:
                post.cancel()
            acks.cancel()
            consumer.close()
            self._session = None

    async def _start_post(self, session: Session, batch: list[Leased], credit: int) -> None:
        """Post a batch as soon as `credit` allows, or give it back if no more may be posted."""
        while len(self._posts) >= credit and self._may_take(session, credit):
            await self._wait_for_post(None)
        if not self._may_take(session, credit):
            for leased in batch:
                session.consumer.defer(leased, 0)
            return
        post = asyncio.create_task(self._deliver(session, batch))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def _wait_for_post(self, limit: float | None) -> None:
        """Wait until a POST has ended, at most `limit` seconds, and no longer than `_end_session` allows."""
        posts = tuple(self._posts)
        await self._call_engine(asyncio.wait(posts, timeout=limit, return_when=asyncio.FIRST_COMPLETED))

    @property
    def _is_ending(self) -> bool:
        return self._ended.is_set() or self.gone

    @property
    def _credit(self) -> int:
        return self._registration.credit if self.breaker.closed else 1

    def _may_take(self, session: Session, credit: int) -> bool:
        """Whether a session that was opened with `credit` may take and post another message."""
        is_over = self._is_ending or session.consumer.stopped or credit != self._credit
        return not (is_over or self._remaining_pause() > 0)

    def _remaining_pause(self) -> int:
        """Return the milliseconds until a message may be posted; 0 or less means now."""
        return max(self.paused_until, self.breaker.until) - self._engine.clock.mono()

    async def _call_engine(self, coroutine: Coroutine[object, object, _T]) -> _T | None:
        """Await a call of the engine; return None if `_end_session` cancelled it."""
        self._engine_call = call = asyncio.ensure_future(coroutine)
        try:
            await asyncio.wait((call,))
        finally:
            call.cancel()
        return None if call.cancelled() else call.result()

    def _end_session(self) -> None:
        """Cancel the waiting call. Call this before giving a message back, or the session would take it again."""
        if self._engine_call is not None:
            self._engine_call.cancel()

    async def _deliver(self, session: Session, batch: list[Leased]) -> None:
        try:
            response = await self._post(self._registration, [leased.message for leased in batch])
            self._responses.handle(response, session, batch)
        except RequestFailed as error:
            self._responses.fail(session.consumer, batch, None, str(error))
        except Exception:  # noqa: BLE001 - a defect must not keep a message leased
            self._handle_defect(session.consumer, batch)

    def _handle_defect(self, consumer: PushConsumer, batch: Sequence[Leased]) -> None:
        """Log the exception that is being handled, and deliver the messages again."""
        _log.exception("internal error", extra=self._registration.subscription._asdict())
        self._responses.fail(consumer, batch, None, _INTERNAL_ERROR)

    def _report_ack(self, error: str | None) -> None:
        self._error = error

    async def _sleep(self, duration: int) -> None:
        """Wait `duration` ms, or less if `end` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(duration / 1000):
                await self._ended.wait()
