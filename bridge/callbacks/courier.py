"""Delivers the messages of one registration: takes them from the engine, posts them, tells the engine how it ended.

Order of each key, redelivery, deliveryCount and dead letters are the engine's, as for any consumer. What is added here
is when to take, and after which delay to give back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import random
from typing import Any, Final, TypeVar

from bridge.callbacks.answer import Answer, NotAnswered
from bridge.callbacks.breaker import Breaker
from bridge.callbacks.registration import Failure, History, Registration
from bridge.callbacks.schedule import CAP, Verdict, backoff, judge
from bridge.engine.consumer import Consumer, Leased, Terms
from bridge.engine.engine import Engine
from bridge.errors import BridgeError, Draining, LeaseEnded
from bridge.message import Message

_AGAIN: Final = 1_000
"""Milliseconds before the engine is asked again after it failed."""

_log = logging.getLogger("bridge.callbacks")

_T = TypeVar("_T")
Post = Callable[[str, Message], Awaitable[Answer]]


class Courier:
    """One delivery loop: at most `credit` POSTs at once, a pause where the endpoint asks for it, a circuit breaker.

    It takes in sessions. Each has a consumer of its own and ends when nothing may be taken any more: then the engine is
    left alone until it may, whatever the endpoint does meanwhile.
    """

    def __init__(self, registration: Registration, engine: Engine, post: Post, lease: int, history: History) -> None:
        self.in_flight = 0
        self.breaker = Breaker()
        self.paused_until = 0
        """The endpoint asked not to be called before, mono."""
        self.trouble: str | None = None
        """Why the engine gives no messages, or does not record them."""
        self.gone = False
        """The endpoint has answered 410."""
        self._registration = registration
        self._engine = engine
        self._post = post
        self._lease = lease
        self._history = history
        self._ended = asyncio.Event()
        self._asking: asyncio.Future[Any] | None = None
        """What is asked of the engine and may wait."""

    def end(self) -> None:
        """Take nothing more; `run` returns when the POSTs in flight have ended."""
        self._ended.set()
        self._shut()

    async def run(self) -> None:
        """Deliver until it is ended, the endpoint is gone, or the bridge stops."""
        try:
            await self._run()
        finally:
            self._close_circuit()

    async def _run(self) -> None:
        while not self._ended.is_set():
            if (wait := self._wait()) > 0:
                await self._rest(wait)
                continue
            try:
                await self._session()
            except Draining:
                return
            except BridgeError as error:
                self.trouble = error.detail
                await self._rest(_AGAIN)
            except Exception:  # noqa: BLE001 - no defect may end the loop for good
                _log.exception("a defect of the bridge")
                self.trouble = "a defect of the bridge; its log says more"
                await self._rest(_AGAIN)

    async def _session(self) -> None:
        credit = self._credit
        terms = Terms(self._lease, credit=credit)
        consumer = await self._ask(self._engine.consume(self._registration.name, terms))
        if consumer is None:
            return
        self.trouble = None
        posts: set[asyncio.Task[None]] = set()
        try:
            while self._may_take(credit):
                for leased in await self._ask(consumer.take()) or ():
                    if not self._may_take(credit):
                        consumer.put_off(leased, 0)
                        continue
                    post = asyncio.create_task(self._deliver(consumer, leased))
                    posts.add(post)
                    post.add_done_callback(posts.discard)
                if consumer.stopped:
                    self._ended.set()
            if posts:
                await asyncio.wait(posts)
        finally:
            for post in posts:
                post.cancel()
            consumer.close()

    @property
    def _credit(self) -> int:
        return self._registration.credit if self.breaker.closed else 1

    def _may_take(self, credit: int) -> bool:
        """Whether the session goes on that was opened with that credit."""
        return not (self._ended.is_set() or self._wait() > 0 or credit != self._credit)

    def _wait(self) -> int:
        """Milliseconds in which nothing may be posted; none where it is not above 0."""
        return max(self.paused_until, self.breaker.until) - self._engine.clock.mono()

    async def _ask(self, work: Coroutine[object, object, _T]) -> _T | None:
        """Ask the engine; None when that was cut short by `_shut`."""
        self._asking = asking = asyncio.ensure_future(work)
        try:
            await asyncio.wait((asking,))
        finally:
            asking.cancel()
        return None if asking.cancelled() else asking.result()

    def _shut(self) -> None:
        """End the session's waiting. Before anything is given back, or it would be taken again."""
        if self._asking is not None:
            self._asking.cancel()

    async def _deliver(self, consumer: Consumer, leased: Leased) -> None:
        self.in_flight += 1
        try:
            answer = await self._post(self._registration.url, leased.message)
            await self._obey(answer, consumer, leased)
        except NotAnswered as error:
            self._fail(consumer, leased, None, str(error))
        except Exception:  # noqa: BLE001 - nor keep a message leased for ever
            _log.exception("a defect of the bridge")
            self._fail(consumer, leased, None, "a defect of the bridge; its log says more")
        finally:
            self.in_flight -= 1

    async def _obey(self, answer: Answer, consumer: Consumer, leased: Leased) -> None:
        ruling = judge(answer, self._engine.clock.wall())
        if ruling.verdict is Verdict.ACKNOWLEDGE:
            self._history.delivered += 1
            self._engine.counters.callbacks_delivered += 1
            self._close_circuit()
            await self._acknowledge(consumer, leased)
        elif ruling.verdict is Verdict.RETRY:
            self._fail(consumer, leased, answer.status, f"the endpoint answered {answer.status}")
        else:
            if ruling.verdict is Verdict.STOP:
                self.gone = True
                self._ended.set()
            else:
                self.paused_until = max(self.paused_until, self._engine.clock.mono() + ruling.pause)
            self._shut()
            consumer.put_off(leased, 0)

    def _fail(self, consumer: Consumer, leased: Leased, status: int | None, reason: str) -> None:
        if consumer.stopped:
            return  # "nothing is counted as a failed delivery": the engine gives back what is still leased
        clock, message = self._engine.clock, leased.message
        attempt = message.delivery_count or 1
        self._history.failed += 1
        self._history.failures.append(Failure(clock.wall(), message.message_id or "", attempt, status, reason))
        self._engine.counters.callbacks_failed += 1
        was_closed = self.breaker.closed
        self.breaker.fail(clock.mono(), random())  # noqa: S311 - jitter
        if not self.breaker.closed:
            self._engine.counters.callback_circuits_open += was_closed
            self._shut()
        if was_closed or status is not None:
            consumer.nack(leased, backoff(attempt, CAP, random()))  # noqa: S311
        else:
            # It was to find out whether the endpoint lives, and says nothing about the message. The next probe is
            # another one where there is one: this may be what kills the endpoint.
            consumer.put_off(leased, 2 * max(self.breaker.until - clock.mono(), 0))

    async def _acknowledge(self, consumer: Consumer, leased: Leased) -> None:
        """Repeat it until it is recorded: to deliver again what the endpoint has taken would be worse than to wait."""
        while True:
            try:
                await consumer.ack(leased)
            except LeaseEnded:
                return  # it has gone back: the bridge is stopping
            except BridgeError as error:
                self.trouble = error.detail
                await asyncio.sleep(_AGAIN / 1000)
                if consumer.stopped:
                    return
            else:
                self.trouble = None
                return

    def _close_circuit(self) -> None:
        self._engine.counters.callback_circuits_open -= not self.breaker.closed
        self.breaker.succeed()

    async def _rest(self, duration: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), duration / 1000)
