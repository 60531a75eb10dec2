"""Structured logs: one JSON object a line on standard error, which no input can forge."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_TEXT_MAX: Final = 2000
_TRACE_MAX: Final = 8000
_NUMBER_MAX: Final = 2**63
_LEAST: Final = {
    "hpack": logging.INFO,  # at debug each header field it reads, the client's credentials among them
    "pika": logging.CRITICAL,  # what it warns of, the adapter says in one line
    "py4j": logging.CRITICAL,  # at info every call between Spark and Python, at error traces of what the job explains
    "kafka": logging.WARNING,  # at info every partition that it looks at
    "kafka.coordinator": logging.ERROR,  # warns of coordinators that are well
    "kafka.net.sasl": logging.ERROR,  # warns at each login without TLS; the bridge does so once
}
"""What libraries may say at most."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """ASCII only: control characters, newlines and terminal escapes from outside arrive escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record)[:_TEXT_MAX],
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in line:
                line[name] = value if _is_number(value) else str(value)[:_TEXT_MAX]
        if record.exc_info:
            # a trace is read from its end
            line["exception"] = self.formatException(record.exc_info)[-_TRACE_MAX:]
        return json.dumps(line, ensure_ascii=True)


def _is_number(value: object) -> bool:
    """Whether JSON can say it: not NaN, not infinite, not an integer that readers choke on."""
    return isinstance(value, (int, float)) and -_NUMBER_MAX < value < _NUMBER_MAX


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # a library's arguments that do not fit: its sentence is better than a raw trace
        return str(record.msg)


def configure(level: str) -> None:
    """Send every log of the process through the formatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name, least in _LEAST.items():
        logging.getLogger(name).setLevel(max(least, root.level))
