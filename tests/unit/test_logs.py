"""No input can forge a line of the log: one event, one line of ASCII JSON."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

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
    (line,) = text.splitlines()
    assert all(" " <= char <= "~" for char in line)
    record = json.loads(line, parse_constant=pytest.fail)
    assert isinstance(record, dict)
    return record


@pytest.mark.parametrize("text", FORGERIES)
def test_a_message_cannot_start_a_line(output: io.StringIO, text: str) -> None:
    logging.getLogger("bridge.test").warning("refused %s", text)
    record = only_line(output)
    assert record["message"] == f"refused {text}"
    assert (record["level"], record["logger"]) == ("warning", "bridge.test")


@pytest.mark.parametrize("text", FORGERIES)
def test_an_extra_value_cannot_start_a_line(output: io.StringIO, text: str) -> None:
    logging.getLogger("bridge.test").warning("dead letter", extra={"source": text, text: "as a name"})
    record = only_line(output)
    assert record["source"] == text
    assert record["level"] == "warning"


@pytest.mark.parametrize("text", FORGERIES)
def test_an_exception_stays_in_its_line(output: io.StringIO, text: str) -> None:
    try:
        raise ValueError(text)  # noqa: TRY301 - to have a trace
    except ValueError:
        logging.getLogger("bridge.test").exception("a defect")
    record = only_line(output)
    assert record["message"] == "a defect"
    assert record["exception"].startswith("Traceback")
    assert text in record["exception"]


def test_half_a_surrogate_pair_costs_no_event() -> None:
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


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_a_number_that_json_has_not_is_text(output: io.StringIO, number: float) -> None:
    logging.getLogger("bridge.test").info("measured", extra={"value": number})
    assert only_line(output)["value"] == str(number)


def test_numbers_and_truths_stay_what_they_are(output: io.StringIO) -> None:
    logging.getLogger("bridge.test").info("measured", extra={"count": 3, "seconds": 0.5, "ready": True, "none": None})
    record = only_line(output)
    assert (record["count"], record["seconds"], record["ready"], record["none"]) == (3, 0.5, True, "None")


def test_arguments_that_do_not_fit_cost_no_event() -> None:
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
