"""Transactions with a span for each prepare, commit and rollback of what is traced."""

from collections.abc import Callable
from typing import Final, Literal

from opentelemetry.trace import Span

from bridge.message import Message
from bridge.tracing.spans import (
    COMMIT,
    LINKS_MAX,
    PREPARE,
    ROLLBACK,
    Attributes,
    Tracing,
    add_links,
    begin_trace,
    end,
    is_sampled,
)

_OPERATIONS: Final = {"commit": COMMIT, "rollback": ROLLBACK}


class TransactionSpans:
    """Makes the spans of transactions: a `TransactionObserver`.

    A commit or rollback belongs to the trace of the first message that was prepared at this bridge, and has links to
    all of them. It begins a trace if none was prepared here.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._contexts: dict[str, list[str | None]] = {}
        """By transaction: the trace contexts of its messages, at most `LINKS_MAX`."""

    def preparing(self, name: str, message: Message) -> tuple[Message, Callable[[BaseException | None], None]]:
        """Start the span of a prepare; a message without trace context gets that of the span."""
        is_first = message.traceparent is None and message.trace_id is None
        span = self._tracing.start(PREPARE, message.destination, message)
        if span is not None and is_first:
            message = begin_trace(message, span)
        context = message.traceparent

        def ended(error: BaseException | None) -> None:
            if error is None:
                contexts = self._contexts.setdefault(name, [])
                if len(contexts) < LINKS_MAX:
                    contexts.append(context)
            if span is not None:
                end(span, error)

        return message, ended

    def ending(
        self, how: Literal["commit", "rollback"], name: str, messages: int | None
    ) -> Callable[[BaseException | None], None]:
        """Start the span of the end of a transaction, if its messages are traced."""
        span = self._start(how, name, messages)

        def ended(error: BaseException | None) -> None:
            if span is not None:
                end(span, error)

        return ended

    def forget(self, name: str) -> None:
        """Forget a transaction that has ended."""
        self._contexts.pop(name, None)

    def _start(self, how: Literal["commit", "rollback"], name: str, messages: int | None) -> Span | None:
        attributes: Attributes = {"oms.transaction.id": name}
        if messages is not None:
            attributes = {**attributes, "messaging.batch.message_count": messages}
        contexts = self._contexts.get(name)
        if contexts is None:
            return self._tracing.start_batch(_OPERATIONS[how], attributes)
        sampled = [each for each in contexts if each is not None and is_sampled(each)]
        span = self._tracing.start_batch(_OPERATIONS[how], attributes, sampled[0]) if sampled else None
        if span is not None:
            add_links(span, sampled)
        return span
