"""The engine with a span for each produce, delivery and settlement of a message that is traced."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from opentelemetry.trace import Span

from adapters.base import Adapter
from bridge.callbacks.delivery_worker import Post
from bridge.callbacks.registration import Registration
from bridge.callbacks.retry_policy import EndpointResponse
from bridge.engine.client_limits import INTERNAL
from bridge.engine.clock import Clock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine, Pulled
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.produce_batch_and_results import Produced
from bridge.engine.pull_and_prefetch import CancelOnDisconnect, PullRequest, unwatched
from bridge.engine.push_consumer import ConsumerOptions, Leased, PushConsumer
from bridge.engine.transactions import Transactions
from bridge.errors import BridgeError
from bridge.message import Field, Message
from bridge.tracing.spans import (
    ACK,
    CALLBACK,
    CREATE,
    NACK,
    PULL,
    PUSH,
    SEND,
    Attributes,
    Operation,
    Tracing,
    begin_trace,
    end,
)
from bridge.tracing.transactions import TracedTransactions

_FIRST_ERROR = 400


class TracedEngine(Engine):
    """An engine that traces messages."""

    def __init__(self, adapter: Adapter, clock: Clock, options: EngineOptions, tracing: Tracing) -> None:
        self._tracing = tracing
        super().__init__(adapter, clock, options)

    def _create_transactions(self) -> Transactions:
        return TracedTransactions(self.adapter, self.clock, self._options, self.counters, self._producer, self._tracing)

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None = None
    ) -> list[Produced | BridgeError]:
        """See `Engine.produce`."""
        started = [(each, None) if isinstance(each, BridgeError) else self._start(each) for each in messages]
        spans = [span for _, span in started]
        publishing = super().produce([message for message, _ in started], require, peer, key)
        messages, started = (), []  # nothing here holds the bodies meanwhile: see `Producer.produce`
        try:
            results = await publishing
        except BaseException as error:
            for unfinished in filter(None, spans):
                end(unfinished, error)
            raise
        for span, result in zip(spans, results, strict=True):
            if span is None:
                continue
            if isinstance(result, BridgeError):
                end(span, result)
            else:
                end(span, attributes=_stored(result))
        return results

    async def pull(
        self,
        key: SubscriptionKey,
        pull_request: PullRequest,
        *,
        ack: bool,
        client: str = INTERNAL,
        watch: CancelOnDisconnect = unwatched,
    ) -> Pulled | None:
        """See `Engine.pull`."""
        begun = self.clock.wall()
        pulled = await super().pull(key, pull_request, ack=ack, client=client, watch=watch)
        if pulled is not None:
            span = self._tracing.start(PULL, key.source, pulled.message, key.group, begun)
            if span is not None:
                end(span)
        return pulled

    async def ack(self, receipts: Sequence[str], named: SubscriptionKey | None) -> None:
        """See `Engine.ack`."""
        spans = self._start_settling(ACK, receipts, named)
        try:
            await super().ack(receipts, named)
        except BaseException as error:
            found, _ = self._settler.find(list(spans), named)
            settled = {text for text, _, entry in found if entry is None}
            for text, span in spans.items():
                end(span, None if text in settled else error)
            raise
        for span in spans.values():
            end(span)

    def nack(self, receipts: Sequence[str], delay: int, named: SubscriptionKey | None) -> None:
        """See `Engine.nack`."""
        spans = self._start_settling(NACK, receipts, named)
        try:
            super().nack(receipts, delay, named)
        finally:
            for span in spans.values():  # an error is about other receipts: these had a lease
                end(span)

    def _create_consumer(
        self,
        key: SubscriptionKey,
        group: Group,
        options: ConsumerOptions,
        write_receipt: Callable[[Entry], str],
        on_close: Callable[[], None],
    ) -> PushConsumer:
        consumer = TracedPushConsumer(group, self.clock, options, write_receipt, on_close)
        consumer.trace(self._tracing, key)
        return consumer

    def _start(self, message: Message) -> tuple[Message, Span | None]:
        """Start the span of a produce; a message without trace context gets that of the span."""
        is_first = message.traceparent is None and message.trace_id is None
        span = self._tracing.start(CREATE if is_first else SEND, message.destination, message)
        return (begin_trace(message, span) if is_first and span is not None else message), span

    def _start_settling(
        self, operation: Operation, receipts: Sequence[str], named: SubscriptionKey | None
    ) -> dict[str, Span]:
        """Start a span for each receipt with a lease, by the text of the receipt."""
        spans: dict[str, Span] = {}
        for text, group, entry in self._settler.find(receipts, named)[0]:
            if entry is not None and not entry.settling:
                key = next(key for key, each in self.groups if each is group)
                span = self._tracing.start(operation, key.source, entry.message, key.group)
                if span is not None:
                    spans[text] = span
        return spans


class TracedPushConsumer(PushConsumer):
    """A consumer that traces what it takes and settles. The deliveries of a callback are traced by `trace_posts`."""

    def trace(self, tracing: Tracing, key: SubscriptionKey) -> None:
        """Set what the spans are made by. Call it before anything else."""
        self._tracing = tracing
        self._key = key

    async def take(self) -> list[Leased]:
        """See `PushConsumer.take`."""
        begun = self._clock.wall()
        taken = await super().take()
        if self._options.receipts:
            for leased in taken:
                span = self._start(PUSH, leased, begun)
                if span is not None:
                    end(span)
        return taken

    async def ack(self, *leased: Leased) -> None:
        """See `PushConsumer.ack`."""
        spans = [span for each in leased if (span := self._start(ACK, each)) is not None]
        try:
            await super().ack(*leased)
        except BaseException as error:
            for span in spans:
                end(span, error)
            raise
        for span in spans:
            end(span)

    def nack(self, leased: Leased, delay: int) -> None:
        """See `PushConsumer.nack`."""
        span = self._start(NACK, leased)
        super().nack(leased, delay)
        if span is not None:
            end(span)

    def _start(self, operation: Operation, leased: Leased, begun: int = 0) -> Span | None:
        return self._tracing.start(operation, self._key.source, leased.message, self._key.group, begun)


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
