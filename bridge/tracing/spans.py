"""Makes spans by the messaging semantic conventions, and sends them to an OTLP receiver.

The parent of a span is the trace context of its message, so the producer decides whether the message is traced. The SDK
sends the spans from its own thread, with a queue of 2,048 spans; spans that find the queue full are dropped. A batch of
the mirror begins its own trace: it has messages of many traces, to which it has links.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Thread
from typing import Final, Literal, NamedTuple, Self, TypeVar

from opentelemetry import trace
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bridge import __version__
from bridge.errors import BridgeError
from bridge.message import Message

Attributes = Mapping[str, str | int]

_NANOSECONDS: Final = 1_000_000
"""In a millisecond."""
_CLOSE: Final = 3.0
"""Seconds that the last spans have to reach the receiver."""
T = TypeVar("T")

LINKS_MAX: Final = 128
"""Links of one span; the SDK drops more."""
_SAMPLED: Final = 1
_FLAGS: Final = slice(53, 55)
"""Position of the flags in a W3C traceparent."""
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Operation(NamedTuple):
    """What a span is about, in the terms of the semantic conventions."""

    name: str
    type: Literal["create", "send", "receive", "process", "settle"] | None
    """None: the conventions have no type for it."""
    kind: SpanKind = SpanKind.CLIENT


SEND: Final = Operation("send", "send")
CREATE: Final = Operation("send", "send", SpanKind.PRODUCER)
"""The message has no trace context: its consumers get that of the span."""
PULL: Final = Operation("pull", "receive")
PUSH: Final = Operation("push", "receive")
CALLBACK: Final = Operation("callback", "process", SpanKind.CONSUMER)
ACK: Final = Operation("ack", "settle")
NACK: Final = Operation("nack", "settle")
PREPARE: Final = Operation("prepare", "create", SpanKind.PRODUCER)
COMMIT: Final = Operation("commit", "send")
ROLLBACK: Final = Operation("rollback", None)
MIRROR: Final = Operation("mirror", "process", SpanKind.CONSUMER)
_FIRST: Final = (SEND, PREPARE)
"""Operations of producers: they begin before any other of the message, so that there is nothing to link to."""


class Tracing:
    """Starts and ends spans; `close` sends the last ones."""

    def __init__(self, provider: TracerProvider, system: str) -> None:
        self._provider = provider
        self._system = system
        self._tracer = provider.get_tracer("openmessaging-bridge", __version__)

    @classmethod
    def create(cls, endpoint: str, protocol: Literal["http", "grpc"], ratio: float, system: str) -> Self:
        """Build the exporter for the receiver at `endpoint`, without connecting.

        `ratio`: share of the messages without trace context that are traced, 0 to 1. `system`: `messaging.system`.
        """
        provider = TracerProvider(ParentBased(TraceIdRatioBased(ratio)), resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(_exporter(endpoint, protocol)))
        return cls(provider, system)

    def start(
        self, operation: Operation, destination: str, message: Message, group: str | None = None, begun: int = 0
    ) -> Span | None:
        """Start a span of a message; None: the message is not traced.

        `begun`: when the operation began, ms since 1970; 0: now. A span does not begin before its message was stored.
        """
        parent = message.traceparent
        context = links = None
        if parent is not None:
            if not is_sampled(parent):
                return None
            carrier = {"traceparent": parent, "tracestate": message.tracestate or ""}
            context = _PROPAGATOR.extract(carrier)
            links = () if operation in _FIRST else (Link(trace.get_current_span(context).get_span_context()),)
        attributes = self._attributes(operation) | {
            "messaging.destination.name": destination,
            "messaging.message.body.size": len(message.body),
        }
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        if message.message_id is not None:
            attributes["messaging.message.id"] = message.message_id
        if message.partition is not None:
            attributes["messaging.destination.partition.id"] = str(message.partition)
        if message.delivery_count is not None:
            attributes["messaging.message.delivery_count"] = message.delivery_count
        span = self._tracer.start_span(
            f"{operation.name} {destination}",
            context,
            operation.kind,
            attributes,
            links,
            max(begun, message.store_timestamp or 0) * _NANOSECONDS if begun else time.time_ns(),
        )
        return span if span.is_recording() else None

    def start_batch(self, operation: Operation, attributes: Attributes, parent: str | None = None) -> Span | None:
        """Start a span of several messages; None: it is not sampled.

        `parent`: the sampled trace context that it belongs to; None: it begins a trace.
        """
        context = None if parent is None else _PROPAGATOR.extract({"traceparent": parent})
        span = self._tracer.start_span(
            operation.name, context, operation.kind, {**self._attributes(operation), **attributes}
        )
        return span if span.is_recording() else None

    def _attributes(self, operation: Operation) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            "messaging.system": self._system,
            "messaging.operation.name": operation.name,
        }
        if operation.type is not None:
            attributes["messaging.operation.type"] = operation.type
        return attributes

    async def close(self) -> None:
        """Send the last spans, and give up after 3 s."""
        closing = Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE)


def resource() -> Resource:
    """Return what spans and metrics are sent for: this bridge, or as the variables of the SDK say."""
    own = Resource.create({"service.name": "openmessaging-bridge", "service.version": __version__})
    return own.merge(OTELResourceDetector().detect())


def begin_trace(message: Message, span: Span) -> Message:
    """Return the message with the trace context of its span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return message._replace(traceparent=carrier["traceparent"], tracestate=carrier.get("tracestate"))


def is_sampled(traceparent: str) -> bool:
    """Whether the producer of a trace context has it traced."""
    return bool(int(traceparent[_FLAGS], 16) & _SAMPLED)


def add_links(span: Span, traceparents: Iterable[str]) -> None:
    """Link a span to the trace contexts of its messages."""
    for each in traceparents:
        span.add_link(trace.get_current_span(_PROPAGATOR.extract({"traceparent": each})).get_span_context())


async def end_when_done(
    span: Span, work: Awaitable[T], describe: Callable[[T], Attributes | None] = lambda _: None
) -> T:
    """Wait for the work of a span, end the span, and return the result. `describe`: the attributes of a result."""
    try:
        result = await work
    except BaseException as error:
        end(span, error)
        raise
    end(span, attributes=describe(result))
    return result


def end(span: Span, error: BaseException | str | None = None, attributes: Attributes | None = None) -> None:
    """End a span. `error`: why the operation failed; a text is its type."""
    if attributes:
        span.set_attributes(attributes)
    if error is not None:
        span.set_attribute("error.type", _error_type(error))
        span.set_status(Status(StatusCode.ERROR, None if isinstance(error, str) else str(error)))
    span.end()


def _error_type(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    return error.code if isinstance(error, BridgeError) else type(error).__name__


def _exporter(endpoint: str, protocol: Literal["http", "grpc"]) -> SpanExporter:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter  # noqa: PLC0415 - 6 MB that HTTP does not need

        return GrpcExporter(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above

    return OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")


class BatchSpan:
    """The span of a batch."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @classmethod
    @contextmanager
    def during(cls, tracing: Tracing) -> Iterator[Self | None]:
        """Yield the span of the batch that the block mirrors; None: it is not sampled. An exception is its error."""
        span = tracing.start_batch(MIRROR, {})
        if span is None:
            yield None
            return
        try:
            yield cls(span)
        except BaseException as error:
            end(span, error)
            raise
        end(span)

    def count(self, messages: int) -> None:
        """Set how many messages it has."""
        self._span.set_attribute("messaging.batch.message_count", messages)

    def describe(self, destinations: Sequence[str], contexts: Iterable[str]) -> None:
        """Set the destination, if all messages have the same, and links to the trace contexts of messages."""
        if len(destinations) == 1:
            self._span.set_attribute("messaging.destination.name", destinations[0])
            self._span.update_name(f"{MIRROR.name} {destinations[0]}")
        add_links(self._span, islice(filter(is_sampled, contexts), LINKS_MAX))
