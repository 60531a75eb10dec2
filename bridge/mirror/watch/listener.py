"""What Spark says of its query, made into events. Called on threads of py4j, one event at a time."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from adapters.clock import wall
from bridge.mirror.manifest import Ranges
from bridge.mirror.watch.events import Ended, Event, Idled, Progressed, Started

_REASON_MAX: Final = 500
_TRACE: Final = "Traceback (most recent call last):"
_ABSENT: Final = {"None", "null"}
"""An offset that is null in the JVM, as PySpark shows it."""
_TROUBLE: Final = "trouble"
"""See `sources.reader`."""

Moved = Callable[[str | None, str], Ranges]
"""`Source.moved`."""


class Listener(StreamingQueryListener):
    """Tells of every query of its session: there is one."""

    def __init__(self, moved: Moved, tell: Callable[[Event], None]) -> None:
        self._moved = moved
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Return before the query runs: Spark waits for it."""
        self._tell(Started(str(event.runId), wall()))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Take in a trigger."""
        progress = event.progress
        lags = [lag(source, self._moved) for source in progress.sources]
        known = {log: rows for of_source in lags if of_source is not None for log, rows in of_source.items()}
        self._tell(
            Progressed(
                rows=progress.numInputRows,
                milliseconds=progress.batchDuration,
                lag=None if None in lags else known,
                when=wall(),
            )
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802
        """Take in that there is nothing to do: there is no progress then."""
        self._tell(Idled(wall()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Take in the end of a run, with or without an error."""
        self._tell(Ended(str(event.runId), event.exception and sentence(event.exception), wall()))


def lag(source: SourceProgress, moved: Moved) -> Mapping[str, int] | None:
    """Return how far each log is behind, those that are not left out; None: the source does not say."""
    end, latest = source.endOffset, source.latestOffset
    if latest in _ABSENT or end in _ABSENT:
        return None
    logs = _logs(latest)
    if not logs:  # of a batch that is repeated after a restart: the backend was not asked yet
        return None
    return {log: last - first for log, (first, last) in moved(end, json.dumps(logs)).items() if last > first}


def _logs(latest: str) -> object:
    """Leave out what the sources in Python report beside their logs; a topic of Kafka of that name is an object."""
    fields = json.loads(latest)
    if isinstance(fields, dict) and isinstance(fields.get(_TROUBLE), str):
        del fields[_TROUBLE]
    return fields


def sentence(exception: str) -> str:
    """Return the line of an exception's text that says what happened: below a trace of Python, else the first."""
    first, *rest = exception.strip().splitlines() or [""]
    if first.endswith(_TRACE):
        first = next((line for line in rest if line[:1].strip()), first)
    return first.strip()[:_REASON_MAX]
