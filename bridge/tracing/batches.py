"""Spans of batches of the mirror. Each begins a trace: a batch has messages of many traces, to which it has links."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Self

from opentelemetry.trace import Span

from bridge.tracing.spans import LINKS_MAX, MIRROR, Tracing, add_links, end, is_sampled


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
