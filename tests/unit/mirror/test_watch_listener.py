import json

import pytest
from pyspark.sql.streaming.listener import SourceProgress

from bridge.mirror.manifest import Ranges
from bridge.mirror.sources import ranges
from bridge.mirror.watch.listener import lag, sentence


def source(end: str, latest: str) -> SourceProgress:
    return SourceProgress("", "", end, latest, 0, 0.0, 0.0, {})


def moved(before: str | None, after: str) -> Ranges:
    return ranges.moved(ranges.read(before), ranges.read(after))


def test_the_lag_is_what_lies_between_what_was_read_and_what_there_is() -> None:
    end = json.dumps({"a": [0, 5], "b": [2, 9], "c": [0, 7]})
    latest = json.dumps({"a": [0, 8], "b": [2, 9], "c": [0, 6], "new": [0, 4]})
    assert lag(source(end, latest), moved) == {"a": 3, "new": 4}


def test_trouble_that_is_reported_beside_the_logs_is_no_log() -> None:
    latest = json.dumps({"a": [0, 8], "trouble": "connection refused"})
    assert lag(source(json.dumps({"a": [0, 5]}), latest), moved) == {"a": 3}


def test_a_topic_called_trouble_is_one() -> None:
    seen: list[str] = []

    def of_kafka(_: str | None, after: str) -> Ranges:
        seen.append(after)
        return {"trouble/0": (1, 3), "trouble/1": (4, 4), "trouble/2": (5, 2)}

    assert lag(source('{"trouble":{"0":1}}', '{"trouble":{"0":3}}'), of_kafka) == {"trouble/0": 2}
    assert [json.loads(text) for text in seen] == [{"trouble": {"0": 3}}]


@pytest.mark.parametrize(
    ("end", "latest"),
    [("{}", "None"), ("{}", "null"), ("None", '{"a": [0, 5]}'), ('{"a": [0, 5]}', "{}"), ("{}", '{"trouble": "x"}')],
)
def test_a_source_that_does_not_say(end: str, latest: str) -> None:
    assert lag(source(end, latest), moved) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it is full", "it is full"),
        ("it is full\n\tat org.apache.spark", "it is full"),
        (
            "said: Traceback (most recent call last):\n  File x\n    y\nValueError: bad\nmore\n\n\tat a",
            "ValueError: bad",
        ),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("x" * 1000, "x" * 500),
        ("", ""),
    ],
)
def test_the_sentence_of_an_exception(text: str, expected: str) -> None:
    assert sentence(text) == expected
