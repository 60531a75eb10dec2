"""Logs on standard error: JSON for programs, text for a terminal. No input can forge a line of either form.

Client libraries repeat themselves while a broker is away: without `LibraryFilter`, 165 lines in 20 s for one reason.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, Literal

_TEXT_MAX: Final = 2000
_TRACE_MAX: Final = 8000
_NUMBER_MAX: Final = 2**63
_MINIMUM_LEVELS: Final = {
    "_granian": logging.WARNING,  # at info that its worker starts
    "hpack": logging.INFO,  # at debug it logs each header field it reads, credentials of clients included
    "pika": logging.CRITICAL,  # the adapter says in one line what pika warns of
    "py4j": logging.CRITICAL,  # at info every call between Spark and Python, at error traces of what the job explains
    "kafka": logging.WARNING,  # at info every partition that it looks at
    "kafka.coordinator": logging.ERROR,  # warns of coordinators that work
    "kafka.net.sasl": logging.ERROR,  # warns at each login without TLS; the bridge does so once
}
"""Levels below which a library logs nothing, whatever `log.level` says."""
_LIBRARIES: Final = (
    "_granian",
    "hypercorn",
    "kafka",
    "opentelemetry",
    "pika",
    "adapters.kafka.produce.librdkafka_producer",
)
"""Beginnings of the names of loggers whose repetitions are left out; the last one logs librdkafka's reasons."""
_REPEAT_AFTER: Final = 60.0
"""Seconds after which a library may log the same statement again."""
_STATEMENTS_MAX: Final = 1_000
"""Statements that are remembered. An error's name may come from a client, such as the name of a topic."""
_ERROR_NAME: Final = re.compile(r"\w+(?:Error|Exception)\b")
"""The name of an error in the text of a record."""
_NEW_LEADER: Final = ("NotLeaderForPartition", "LeaderNotAvailable")
"""Errors of Kafka that are normal while a new topic gets its leaders; the client library retries them."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line, ASCII only: control characters, newlines and terminal escapes arrive escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record)[:_TEXT_MAX],
        }
        for name, value in _extras(record):
            if name not in line:
                line[name] = value if _is_number(value) else str(value)[:_TEXT_MAX]
        if record.exc_info:
            # the end of a trace is the part that is read
            line["exception"] = self.formatException(record.exc_info)[-_TRACE_MAX:]
        return json.dumps(line, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """Time in UTC, level, logger, message, other values. Control characters are escaped; a trace is indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the lines of the trace if there is one."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        extras = ", ".join(f"{name}={str(value)[:_TEXT_MAX]}" for name, value in _extras(record))
        text = _message(record)[:_TEXT_MAX] + (f" ({extras})" if extras else "")
        lines = [f"{moment}Z {record.levelname:<7} {record.name}: {_escaped(text)}"]
        if record.exc_info:
            trace = self.formatException(record.exc_info)[-_TRACE_MAX:]
            lines += ["    " + _escaped(line) for line in trace.split("\n")]
        return "\n".join(lines)


class LibraryFilter(logging.Filter):
    """Leaves out what a client library repeats: a log statement passes once a minute for each error that it names.

    The next record that passes has the number of those left out, as `suppressed`. Records that report the normal course
    of a new topic never pass. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, int, str], tuple[float, int]] = {}
        """When each statement, by file, line and error, passed last, and how many records were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        if not record.name.startswith(_LIBRARIES):
            return True
        message = _message(record)
        is_retry = record.name.startswith("kafka") and record.levelno <= logging.WARNING
        if is_retry and any(error in message for error in _NEW_LEADER):
            return False
        error = _ERROR_NAME.search(message)
        statement, now = (record.pathname, record.lineno, error[0] if error else ""), self._clock()
        last, suppressed = self._passed.get(statement, (-_REPEAT_AFTER, 0))
        if now - last < _REPEAT_AFTER:
            self._passed[statement] = last, suppressed + 1
            return False
        if len(self._passed) >= _STATEMENTS_MAX:
            self._passed.clear()
        self._passed[statement] = now, 0
        if suppressed:
            record.suppressed = suppressed
        return True


def configure(level: str, form: Literal["text", "json"] | None = None) -> None:
    """Send every log of the process to standard error.

    `form` None: text if standard error is a terminal, else JSON. Level `debug` leaves out no repetition.
    """
    if form is None:
        form = "text" if sys.stderr.isatty() else "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if form == "text" else JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        handler.addFilter(LibraryFilter())
    for name, minimum in _MINIMUM_LEVELS.items():
        logging.getLogger(name).setLevel(max(minimum, root.level))


def _extras(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield what the caller passed as `extra`."""
    return ((name, value) for name, value in vars(record).items() if name not in _STANDARD)


def _is_number(value: object) -> bool:
    """Whether JSON has this number: not NaN, not infinite, not an integer beyond 64 bits."""
    return isinstance(value, (int, float)) and -_NUMBER_MAX < value < _NUMBER_MAX


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # a library's arguments do not fit its template, which is better than a raw trace
        return str(record.msg)


def _escaped(text: str) -> str:
    """Escape what is not printable ASCII: newlines and terminal escapes, but also letters that look like others."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
