"""Transactions with a span for each prepare, commit and rollback of what is traced."""

import asyncio
from functools import partial

from opentelemetry.trace import Span

from adapters.base import Adapter
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.open_transactions import Commit, Judged, TransactionRequest
from bridge.engine.options import EngineOptions
from bridge.engine.produce_batch_and_results import Produced
from bridge.engine.producer import Producer
from bridge.engine.transactions import Transactions
from bridge.tracing.spans import (
    COMMIT,
    LINKS_MAX,
    PREPARE,
    ROLLBACK,
    Attributes,
    Operation,
    Tracing,
    add_links,
    begin_trace,
    end,
    end_when_done,
    is_sampled,
)


class TracedTransactions(Transactions):
    """Transactions that trace their messages.

    A commit or rollback belongs to the trace of the first message that was prepared at this bridge, and has links to
    all of them. It begins a trace if none was prepared here.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - those of `Transactions`
        self,
        adapter: Adapter,
        clock: Clock,
        options: EngineOptions,
        counters: Counters,
        producer: Producer,
        tracing: Tracing,
    ) -> None:
        super().__init__(adapter, clock, options, counters, producer)
        self._tracing = tracing
        self._contexts: dict[str, list[str | None]] = {}
        """By transaction: the trace contexts of its messages, at most `LINKS_MAX`."""

    def _prepare(self, request: TransactionRequest, judged: Judged, peer: str) -> asyncio.Future[Produced]:
        message = judged.message
        is_first = message.traceparent is None and message.trace_id is None
        span = self._tracing.start(PREPARE, message.destination, message)
        if span is not None and is_first:
            message = begin_trace(message, span)
            judged = judged._replace(message=message, size=message.size)
        try:
            result = super()._prepare(request, judged, peer)
        except BaseException as error:
            if span is not None:
                end(span, error)
            raise
        on_done = partial(self._on_done, str(request.id), message.traceparent, span)
        if result.done():
            on_done(result)
        else:
            result.add_done_callback(on_done)
        return result

    def _on_done(self, name: str, context: str | None, span: Span | None, result: asyncio.Future[Produced]) -> None:
        error = asyncio.CancelledError() if result.cancelled() else result.exception()
        if error is None:
            self._on_prepared(name, context, span)
        elif span is not None:
            end(span, error)

    def _on_prepared(self, name: str, context: str | None, span: Span | None) -> None:
        contexts = self._contexts.setdefault(name, [])
        if len(contexts) < LINKS_MAX:
            contexts.append(context)
        if span is not None:
            end(span)

    async def _commit(self, name: str) -> Commit:
        span = self._start_end(COMMIT, name)
        return await (super()._commit(name) if span is None else end_when_done(span, super()._commit(name)))

    async def _roll_back(self, name: str) -> None:
        span = self._start_end(ROLLBACK, name)
        await (super()._roll_back(name) if span is None else end_when_done(span, super()._roll_back(name)))

    def forget(self, name: str) -> str:
        """See `Transactions.forget`."""
        self._contexts.pop(name, None)
        return super().forget(name)

    def _start_end(self, operation: Operation, name: str) -> Span | None:
        """Start the span of the end of a transaction; None: its messages are not traced."""
        known = self._required().known_transactions().get(name)
        attributes: Attributes = {"oms.transaction.id": name}
        if known is not None:
            attributes = {**attributes, "messaging.batch.message_count": known.messages}
        contexts = self._contexts.get(name)
        if contexts is None:
            return self._tracing.start_batch(operation, attributes)
        sampled = [each for each in contexts if each is not None and is_sampled(each)]
        span = self._tracing.start_batch(operation, attributes, sampled[0]) if sampled else None
        if span is not None:
            add_links(span, sampled)
        return span
