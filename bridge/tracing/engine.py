"""Spans of what the engine does with a message: each produce, delivery and settlement of one that is traced."""

from collections.abc import Callable, Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

from opentelemetry.trace import Span

from bridge.callbacks.delivery_worker import Post
from bridge.callbacks.registration import Registration
from bridge.callbacks.retry_policy import EndpointResponse
from bridge.engine.batch import Batch, Publish
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.observer import TransactionObserver
from bridge.engine.produced import Produced
from bridge.errors import BridgeError
from bridge.message import Message
from bridge.tracing.spans import (
    ACK,
    CALLBACK,
    CREATE,
    NACK,
    PULL,
    PUSH,
    SEND,
    Attributes,
    Tracing,
    begin_trace,
    end,
)
from bridge.tracing.transactions import TransactionSpans

_FIRST_ERROR = 400
_OPERATIONS: Final = {"pull": PULL, "push": PUSH, "ack": ACK, "nack": NACK}


class EngineSpans:
    """Makes the spans of the engine: an `Observer`. The deliveries of a callback are traced by `trace_posts`."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self.transactions: TransactionObserver = TransactionSpans(tracing)

    def publishing(self, publish: Publish) -> Publish:
        """Return the step of a produce that makes a span for each message."""

        async def traced(batch: Batch) -> None:
            started = [(each, None) if isinstance(each, BridgeError) else self._start(each) for each in batch.take()]
            spans = [span for _, span in started]
            batch.replace([message for message, _ in started])
            started.clear()  # nothing here holds the bodies meanwhile: see `Batch.take`
            try:
                await publish(batch)
            except BaseException as error:
                for unfinished in filter(None, spans):
                    end(unfinished, error)
                raise
            for span, result in zip(spans, batch.results, strict=True):
                if span is None:
                    continue
                if isinstance(result, BridgeError):
                    end(span, result)
                else:
                    end(span, attributes=_stored(result))

        return traced

    def delivered(self, how: Literal["pull", "push"], key: SubscriptionKey, message: Message, begun: int) -> None:
        """Make the span of a delivery."""
        span = self._tracing.start(_OPERATIONS[how], key.source, message, key.group, begun)
        if span is not None:
            end(span)

    def settling(
        self, how: Literal["ack", "nack"], key: SubscriptionKey, message: Message
    ) -> Callable[[BaseException | None], None]:
        """Start the span of a settlement; the result ends it."""
        span = self._tracing.start(_OPERATIONS[how], key.source, message, key.group)

        def ended(error: BaseException | None) -> None:
            if span is not None:
                end(span, error)

        return ended

    def _start(self, message: Message) -> tuple[Message, Span | None]:
        """Start the span of a produce; a message without trace context gets that of the span."""
        is_first = message.traceparent is None and message.trace_id is None
        span = self._tracing.start(CREATE if is_first else SEND, message.destination, message)
        return (begin_trace(message, span) if is_first and span is not None else message), span


def trace_posts(post: Post, tracing: Tracing) -> Post:
    """Return `post` with a span for each message of a POST."""

    async def traced(registration: Registration, messages: Sequence[Message]) -> EndpointResponse:
        source, group = registration.subscription
        started = [tracing.start(CALLBACK, source, message, group) for message in messages]
        spans = [span for span in started if span is not None]
        attributes = _request(registration, len(messages)) if spans else {}
        try:
            response = await post(registration, messages)
        except BaseException as error:
            for span in spans:
                end(span, error, attributes)
            raise
        failed = str(response.status) if response.status >= _FIRST_ERROR else None
        for span in spans:
            end(span, failed, {**attributes, "http.response.status_code": response.status})
        return response

    return traced


def _request(registration: Registration, messages: int) -> Attributes:
    """Return the attributes of a POST; path and query of the URL may contain a token."""
    url = urlsplit(registration.url)
    attributes: dict[str, str | int] = {"http.request.method": "POST", "server.address": url.hostname or ""}
    if url.port is not None:
        attributes["server.port"] = url.port
    if registration.batch is not None:
        attributes["messaging.batch.message_count"] = messages
    return attributes


def _stored(produced: Produced) -> Attributes:
    attributes: dict[str, str | int] = {"messaging.message.id": produced.message_id}
    if produced.stored.partition is not None:
        attributes["messaging.destination.partition.id"] = str(produced.stored.partition)
    return attributes
