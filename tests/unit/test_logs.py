"""No input can forge a line of the log, as JSON or as text; a client library repeats nothing within a minute."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from bridge import logs

FORGERIES = (
    'x\r\n{"level": "error", "message": "forged"}',
    "x\n2025-01-01 forged",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "before\0after",
    "line\u2028separator\u2029paragraph\x85next",
    "\x0b\x0c\x1c\x1d\x1e",
    'quote " backslash \\ brace }',
    "right to left \u202e override",
    "\u00fcn\u00efcode \U0001f600",
    "\x7f\x9b31m",
)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    logs.configure("info")
    (ours,) = root.handlers
    root.handlers = handlers  # pytest's own come and go during a test
    root.addHandler(ours)
    yield stream
    root.removeHandler(ours)
    root.setLevel(level)


def only_line(output: io.StringIO) -> dict[str, Any]:
    text = output.getvalue()
    assert text.isascii()
    assert text.endswith("\n")
    output.seek(0)
    output.truncate()
    (line,) = text.splitlines()
    assert all(" " <= char <= "~" for char in line)
    record = json.loads(line, parse_constant=pytest.fail)
    assert isinstance(record, dict)
    return record


def test_a_message_cannot_start_a_line(output: io.StringIO, subtests: pytest.Subtests) -> None:
    for text in FORGERIES:
        with subtests.test(text=text):
            logging.getLogger("bridge.test").warning("refused %s", text)
            record = only_line(output)
            assert record["message"] == f"refused {text}"
            assert (record["level"], record["logger"]) == ("warning", "bridge.test")


def test_an_extra_value_cannot_start_a_line(output: io.StringIO, subtests: pytest.Subtests) -> None:
    for text in FORGERIES:
        with subtests.test(text=text):
            logging.getLogger("bridge.test").warning("dead letter", extra={"source": text, text: "as a name"})
            record = only_line(output)
            assert record["source"] == text
            assert record["level"] == "warning"


def test_an_exception_stays_in_its_line(output: io.StringIO, subtests: pytest.Subtests) -> None:
    for text in FORGERIES:
        with subtests.test(text=text):
            try:
                raise ValueError(text)  # noqa: TRY301 - to have a trace
            except ValueError:
                logging.getLogger("bridge.test").exception("a defect")
            record = only_line(output)
            assert record["message"] == "a defect"
            assert record["exception"].startswith("Traceback")
            assert text in record["exception"]


def test_half_a_surrogate_pair_is_logged() -> None:
    """Formatted directly: pytest-xdist cannot carry a report whose captured log holds one."""
    record = logging.makeLogRecord({"msg": "refused %s", "args": ("\ud800",), "name": "bridge.test"})
    line = logs.JsonFormatter().format(record)
    assert line.isascii()
    assert json.loads(line)["message"] == "refused \ud800"


def test_huge_values_are_cut(output: io.StringIO) -> None:
    huge = "a" * 10_000_000
    try:
        raise ValueError(huge)  # noqa: TRY301
    except ValueError:
        logging.getLogger("bridge.test").exception("%s", huge, extra={"source": huge})
    assert len(output.getvalue()) < 20_000
    record = only_line(output)
    assert record["source"] == "a" * 2000
    assert record["exception"].endswith("aaa")


def test_an_extra_cannot_pretend_to_be_the_event(output: io.StringIO) -> None:
    extra = {"time": "1999", "level": "debug", "logger": "other"}
    logging.getLogger("bridge.test").error("real", extra=extra)
    record = only_line(output)
    assert (record["level"], record["logger"], record["message"]) == ("error", "bridge.test", "real")
    assert record["time"] != "1999"


def test_a_number_that_json_lacks_is_text(output: io.StringIO, subtests: pytest.Subtests) -> None:
    cases: list[float] = [float("nan"), float("inf"), -float("inf"), 10**400]
    for number in cases:
        with subtests.test(number=number):
            logging.getLogger("bridge.test").info("measured", extra={"value": number})
            assert only_line(output)["value"] == str(number)


def test_numbers_and_booleans_keep_their_types(output: io.StringIO) -> None:
    logging.getLogger("bridge.test").info("measured", extra={"count": 3, "seconds": 0.5, "ready": True, "none": None})
    record = only_line(output)
    assert (record["count"], record["seconds"], record["ready"], record["none"]) == (3, 0.5, True, "None")


def test_arguments_that_do_not_fit_are_logged() -> None:
    record = logging.makeLogRecord({"msg": "%d pieces", "args": ("three",), "name": "some.library"})
    assert json.loads(logs.JsonFormatter().format(record))["message"] == "%d pieces"


def test_the_level_is_a_threshold(output: io.StringIO) -> None:
    logging.getLogger("bridge.test").debug("too small")
    assert not output.getvalue()


def test_the_time_is_utc_with_milliseconds(output: io.StringIO) -> None:
    logging.getLogger("bridge.test").info("now")
    time = only_line(output)["time"]
    assert time.endswith("+00:00")
    assert len(time) == len("2026-01-01T00:00:00.000+00:00")


def text_of(message: str, error: Exception | None = None, **extra: object) -> str:
    record = logging.makeLogRecord({"msg": message, "name": "bridge.test", "created": 0.25, "levelname": "INFO"})
    vars(record).update(extra)
    if error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    return logs.TextFormatter().format(record)


def test_the_text_form_has_the_same_content() -> None:
    shown = text_of("the backend is not ready", reason="it is away", count=3)
    assert (
        shown == "1970-01-01 00:00:00.250Z INFO    bridge.test: the backend is not ready (reason=it is away, count=3)"
    )


def test_a_text_line_cannot_be_forged(subtests: pytest.Subtests) -> None:
    for text in FORGERIES:
        with subtests.test(text=text):
            shown = text_of(text, source=text)
            assert "\n" not in shown
            assert all(" " <= char <= "~" for char in shown)


def test_a_trace_in_the_text_form_is_indented() -> None:
    first, *trace = text_of("a defect", ValueError("x\n1970-01-01 00:00:00.000Z INFO bridge: forged")).split("\n")
    assert first.endswith("a defect")
    assert trace
    assert all(line.startswith("    ") for line in trace)


def test_the_form_is_text_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    root = logging.getLogger()
    cases: list[tuple[bool, Literal["text", "json"] | None, type[logging.Formatter]]] = [
        (True, None, logs.TextFormatter),
        (False, None, logs.JsonFormatter),
        (True, "json", logs.JsonFormatter),
        (False, "text", logs.TextFormatter),
    ]
    for terminal, form, formatter in cases:
        with subtests.test(terminal=terminal, form=form), monkeypatch.context() as changed:
            stream = io.StringIO()
            changed.setattr(stream, "isatty", lambda terminal=terminal: terminal)
            changed.setattr(sys, "stderr", stream)
            changed.setattr(root, "handlers", root.handlers)
            changed.setattr(root, "level", root.level)
            logs.configure("info", form)
            assert type(root.handlers[0].formatter) is formatter


def record_of(name: str, message: str, line: int, level: int = logging.WARNING) -> logging.LogRecord:
    fields = {"name": name, "msg": message, "lineno": line, "levelno": level, "pathname": f"{name}.py"}
    return logging.makeLogRecord(fields)


def test_a_library_logs_a_statement_once_a_minute_and_the_next_counts_those_left_out() -> None:
    now = 0.0
    limited = logs.LibraryFilter(lambda: now)
    assert limited.filter(record_of("kafka.net", "refused: 1", 7))
    assert not any(limited.filter(record_of("kafka.net", f"refused: {number}", 7)) for number in range(5))
    assert limited.filter(record_of("kafka.net", "another statement", 8))
    assert limited.filter(record_of("kafka.net", "refused: GroupAuthorizationFailedError: app", 7)), "another error"
    assert not limited.filter(record_of("kafka.net", "refused: GroupAuthorizationFailedError: other", 7))
    assert limited.filter(record_of("adapters.kafka.produce.librdkafka_producer", "refused", 7))
    assert not limited.filter(record_of("adapters.kafka.produce.librdkafka_producer", "refused", 7))
    now = 60.0
    passed = record_of("kafka.net", "refused: 1", 7)
    assert limited.filter(passed)
    assert vars(passed)["suppressed"] == 5
    assert not limited.filter(record_of("kafka.net", "refused: 1", 7))
    now = 120.0
    assert limited.filter(passed := record_of("kafka.net", "refused: 1", 7))
    assert vars(passed)["suppressed"] == 1


def test_names_of_errors_that_clients_choose_take_no_more_memory() -> None:
    limited = logs.LibraryFilter(lambda: 0.0)
    for number in range(5_000):
        assert limited.filter(record_of("kafka.net", f"no such topic: t{number}Error", 7))
    assert len(limited._passed) <= 1_000


def test_what_the_bridge_logs_is_never_left_out() -> None:
    limited = logs.LibraryFilter(lambda: 0.0)
    for name in ("bridge.engine", "bridge.kafka", "adapters.kafka.options", "asyncio"):
        assert all(limited.filter(record_of(name, "again", 1)) for _ in range(3))


def test_the_leaders_of_a_new_topic_are_no_warning(subtests: pytest.Subtests) -> None:
    limited = logs.LibraryFilter(lambda: 0.0)
    retried = "Got error produce response on topic-partition t-0, retrying (inf attempts left): {}Error"
    cases: list[tuple[str, int, bool]] = [
        (retried.format("NotLeaderForPartition"), logging.WARNING, False),
        (retried.format("LeaderNotAvailable"), logging.WARNING, False),
        (retried.format("RequestTimedOut"), logging.WARNING, True),
        ("Giving up: NotLeaderForPartitionError", logging.ERROR, True),
    ]
    for line, (message, level, passes) in enumerate(cases):
        with subtests.test(message):
            assert limited.filter(record_of("kafka.producer.sender", message, line, level)) is passes
