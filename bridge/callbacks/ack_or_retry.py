"""Applies the endpoint's responses: to the messages of a POST, to the circuit breaker, and to the registration."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import random
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bridge.callbacks.counters import CallbackCounters
from bridge.callbacks.registration import DeliveryFailure, DeliveryHistory, Registration
from bridge.callbacks.retry_policy import (
    FAILURE_THRESHOLD,
    MAX_BACKOFF,
    CircuitBreaker,
    EndpointResponse,
    ResponseAction,
    backoff,
    classify_response,
)
from bridge.engine.engine import Engine
from bridge.engine.push_consumer import Leased, PushConsumer
from bridge.errors import BridgeError, LeaseEnded
from bridge.wire.callback_batch import Result, decode_results

_RETRY_SECONDS: Final = 1.0
"""Wait after an error of the engine before a run is acknowledged again."""


class AckRuns:
    """Acknowledges the messages of one consumer, and repeats that until it is recorded.

    Waiting is better than a second delivery. `report` is called after each attempt: with the reason why it failed, or
    with None. `on_defect` is called with the messages of a run while an exception that is no `BridgeError` is handled.
    """

    def __init__(
        self,
        consumer: PushConsumer,
        report: Callable[[str | None], None],
        on_defect: Callable[[PushConsumer, Sequence[Leased]], None],
    ) -> None:
        self.pending = 0
        """POSTs whose messages are not acknowledged yet."""
        self._consumer = consumer
        self._report = report
        self._on_defect = on_defect
        self._next_run: list[Leased] = []
        self._next_posts = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, delivered: Sequence[Leased]) -> None:
        """Acknowledge the messages of one POST with the next run."""
        if not self._next_run:
            task = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._next_run.extend(delivered)
        self._next_posts += 1
        self.pending += 1

    async def drain(self) -> None:
        """Wait until every message is acknowledged, or cannot be any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """End all attempts."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        """Acknowledge what has been added before the first turn of this task."""
        run, posts = self._next_run, self._next_posts
        self._next_run, self._next_posts = [], 0
        try:
            await self._acknowledge(run)
        except Exception:  # noqa: BLE001 - a defect must not keep a message leased
            self._on_defect(self._consumer, run)
        finally:
            self.pending -= posts

    async def _acknowledge(self, run: Sequence[Leased]) -> None:
        while True:
            try:
                await self._consumer.ack(*run)
            except LeaseEnded:
                return  # the engine has given these messages back: the bridge stops, or another one has their partition
            except BridgeError as error:
                self._report(error.detail)
                await asyncio.sleep(_RETRY_SECONDS)
                if self._consumer.stopped:
                    return
            else:
                self._report(None)
                return


_MULTI_STATUS: Final = 207
_CIRCUIT_OPEN: Final = f"the circuit of a callback is open after {FAILURE_THRESHOLD} failures in a row"
_CIRCUIT_CLOSED: Final = "the circuit of a callback is closed: its endpoint accepts messages"

_log = logging.getLogger("bridge.callbacks")


class Session(NamedTuple):
    """The consumer of one session of a worker, and what acknowledges its messages."""

    consumer: PushConsumer
    acks: AckRuns


class ResponseHandler:
    """Decides for each message of a POST: acknowledged, given back, or delivered again after a pause.

    `end_session` is called before messages are given back, or the session would take them again.
    """

    def __init__(
        self,
        registration: Registration,
        engine: Engine,
        history: DeliveryHistory,
        counters: CallbackCounters,
        end_session: Callable[[], None],
    ) -> None:
        self.breaker = CircuitBreaker()
        self.paused_until = 0
        """End of the pause that the endpoint asked for, mono."""
        self.gone = False
        """The endpoint has answered 410 (Gone)."""
        self._registration = registration
        self._engine = engine
        self._history = history
        self._counters = counters
        self._end_session = end_session

    def handle(self, response: EndpointResponse, session: Session, batch: Sequence[Leased]) -> None:
        """Apply the response to the POST of a batch."""
        decision = classify_response(response, self._engine.clock.wall())
        if decision.action is ResponseAction.ACKNOWLEDGE:
            self._handle_success(response, session, batch)
        elif decision.action is ResponseAction.RETRY:
            self.fail(session.consumer, batch, response.status, f"the endpoint answered {response.status}")
        else:
            if decision.action is ResponseAction.STOP:
                self.gone = True
            else:
                self.paused_until = max(self.paused_until, self._engine.clock.mono() + decision.pause)
            self._end_session()
            for leased in batch:
                session.consumer.defer(leased, 0)

    def fail(self, consumer: PushConsumer, batch: Sequence[Leased], status: int | None, reason: str) -> None:
        """Record a POST that failed as a whole, and give its messages back. `status` None: there was no response."""
        if consumer.stopped:
            return  # "nothing is counted as a failed delivery": the engine gives back messages that are still leased
        was_closed = self.breaker.closed
        self._count_failure(reason)
        for leased in batch:
            self._record_failure(leased, status, reason)
            if was_closed or status is not None:
                self._retry(consumer, leased)
            else:
                # The probe tested the endpoint, so its failure does not count against the message. The next probe takes
                # another message if there is one: this one may be what crashes the endpoint.
                consumer.defer(leased, 2 * max(self.breaker.until - self._engine.clock.mono(), 0))

    def reset_breaker(self) -> None:
        """Close the circuit: the endpoint has accepted a message, or the worker has ended."""
        self._counters.callback_circuits_open -= not self.breaker.closed
        self.breaker.succeed()

    def _handle_success(self, response: EndpointResponse, session: Session, batch: Sequence[Leased]) -> None:
        """Acknowledge the messages, or those that the results of a batch accept."""
        results = None
        if self._registration.batch is not None:
            try:
                results = decode_results(response.json, len(batch), required=response.status == _MULTI_STATUS)
            except ValueError as error:
                self.fail(session.consumer, batch, response.status, f"the endpoint answered {response.status} {error}")
                return
        if results is None:
            self._accept(session.acks, batch)
        else:
            self._apply_results(session, batch, results)

    def _apply_results(self, session: Session, batch: Sequence[Leased], results: Sequence[Result]) -> None:
        consumer, wall = session.consumer, self._engine.clock.wall()
        accepted: list[Leased] = []
        rejected: list[tuple[Leased, int]] = []
        for leased, result in zip(batch, results, strict=True):
            decision = classify_response(EndpointResponse(result.status, result.retry_after), wall)
            if decision.action is ResponseAction.ACKNOWLEDGE:
                accepted.append(leased)
            elif decision.action is ResponseAction.PAUSE:
                consumer.defer(leased, decision.pause)
            else:
                rejected.append((leased, result.status))
        if accepted:
            self._accept(session.acks, accepted)
        if consumer.stopped or not rejected:
            return
        reason = "the endpoint answered %d for this message of a batch"
        if not accepted:
            self._count_failure(reason % rejected[0][1])
        for leased, status in rejected:
            self._record_failure(leased, status, reason % status)
            self._retry(consumer, leased)

    def _accept(self, acks: AckRuns, delivered: Sequence[Leased]) -> None:
        self._history.delivered += len(delivered)
        self._counters.callbacks_delivered += len(delivered)
        if not self.breaker.closed:
            self._log_circuit(logging.INFO, _CIRCUIT_CLOSED)
        self.reset_breaker()
        acks.add(delivered)

    def _count_failure(self, reason: str) -> None:
        """Count a POST of which no message was accepted."""
        was_closed = self.breaker.closed
        self.breaker.fail(self._engine.clock.mono(), random())  # noqa: S311 - jitter
        if not self.breaker.closed:
            if was_closed:
                self._counters.callback_circuits_open += 1
                self._log_circuit(logging.WARNING, f"{_CIRCUIT_OPEN}: {reason}")
            self._end_session()

    def _record_failure(self, leased: Leased, status: int | None, reason: str) -> None:
        message = leased.message
        self._history.failed += 1
        self._history.failures.append(
            DeliveryFailure(
                self._engine.clock.wall(), message.message_id or "", message.delivery_count or 1, status, reason
            )
        )
        self._counters.callbacks_failed += 1

    def _retry(self, consumer: PushConsumer, leased: Leased) -> None:
        consumer.nack(leased, backoff(leased.message.delivery_count or 1, MAX_BACKOFF, random()))  # noqa: S311

    def _log_circuit(self, level: int, sentence: str) -> None:
        """Log with the host only: path and query of the URL may contain a token."""
        host = urlsplit(self._registration.url).netloc
        _log.log(level, "%s", sentence, extra={**self._registration.subscription._asdict(), "host": host})
