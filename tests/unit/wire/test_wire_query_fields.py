"""The query parameters that set fields: names, durations, contradictions."""

import pytest

from bridge.errors import HeaderInvalid, HeaderRepeated
from bridge.message import FIELDS, LONG_MAX
from bridge.wire.query_fields import DURATIONS, QUERY_NAMES, merge_values, read_duration, read_query
from tests.unit.strategies import NO_NUMBERS

BORN = 1_767_225_600_000


def test_every_field_of_a_producer_has_one_name_except_the_destination() -> None:
    of_bridge = {"destination", "storeTimestamp", "storeHost", "deliveryCount"}
    assert sorted(QUERY_NAMES.values()) == sorted({field.name for field in FIELDS} - of_bridge)


def test_durations(subtests: pytest.Subtests) -> None:
    cases = {"0ms": 0, "500ms": 500, "5s": 5000, "2m": 120_000, "1h": 3_600_000, "7d": 604_800_000, "007s": 7000}
    for text, millis in cases.items():
        with subtests.test(text):
            assert read_duration("delay", text) == millis
    assert read_duration("delay", f"{LONG_MAX}ms") == LONG_MAX


def test_what_is_no_duration_is_refused(subtests: pytest.Subtests) -> None:
    wrong = ("5", "s", "ms", "5 s", "-5s", "+5s", "1.5h", "5sec", "5S", "5µs", "1m30s", "5mss", "1_0s", "٣s")
    for text in (*wrong, *(f"{number}s" for number in NO_NUMBERS)):
        with subtests.test(text), pytest.raises(HeaderInvalid, match=r"^delay: "):
            read_duration("delay", text)


def test_a_duration_out_of_range_is_refused(subtests: pytest.Subtests) -> None:
    for text in (f"{LONG_MAX + 1}ms", f"{LONG_MAX // 1000 + 1}s", f"{'9' * 5000}d"):
        with subtests.test(text[:30]), pytest.raises(HeaderInvalid, match="out of range"):
            read_duration("delay", text)


def test_each_name_sets_its_field(subtests: pytest.Subtests) -> None:
    by_name = {field.name: field for field in FIELDS}
    for name, meant in QUERY_NAMES.items():
        if name in DURATIONS:
            continue
        field = by_name[meant]
        with subtests.test(name):
            text, value = ("text", "text") if field.maximum is None else ("1", 1)
            assert read_query([(name.upper(), text)], BORN) == ({field.attribute: value}, {})


def test_delay_and_expire_count_from_the_birth_of_the_message() -> None:
    assert read_query([("delay", "5s"), ("expire", "2m")], BORN).fields == {
        "delay_time": 5000,
        "born_timestamp": BORN,
        "expire_time": BORN + 120_000,
    }
    assert read_query([("expire", "2m"), ("born", "7")], BORN).fields["expire_time"] == 120_007
    assert read_query([("expire", f"{LONG_MAX}ms")], BORN).fields["expire_time"] == LONG_MAX


def test_require_is_a_parameter() -> None:
    assert read_query([("require", "priority")], BORN) == ({}, {"require": "priority"})


def test_wrong_queries_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("kee", "x", "unknown query parameter `kee`; did you mean `key`"),
        ("messagekey", "x", "did you mean `key`"),
        ("x-oms-h-delaytime", "5", "did you mean `delay`"),
        ("destination", "x", "unknown query parameter `destination`"),
        ("zzzzzz", "x", "id, key, delay"),
        ("\n", "x", r"unknown query parameter `\\n`"),
        ("priority", "high", "priority: high is not a number"),
        ("qos", "3", "qos: 3 is out of range"),
        ("expire", "0s", "expire: 0 is out of range"),
        ("id", "", "id: the value is empty"),
        ("delay", "soon", "^delay: "),
    ]
    for name, text, sentence in cases:
        with subtests.test(name), pytest.raises(HeaderInvalid, match=sentence):
            read_query([(name, text)], BORN)


def test_a_parameter_that_is_given_twice_is_refused(subtests: pytest.Subtests) -> None:
    for name, text in (("key", "a"), ("require", "qos")):
        with subtests.test(name), pytest.raises(HeaderRepeated, match=f"{name} is given twice"):
            read_query([(name, text), (name.upper(), text)], BORN)


def test_url_and_headers_may_agree_and_may_not_contradict_each_other() -> None:
    assert merge_values({"message_key": "a"}, {"message_key": "a", "qos": 1}) == {"message_key": "a", "qos": 1}
    with pytest.raises(HeaderRepeated, match="messageKey is given twice with different values"):
        merge_values({"message_key": "a"}, {"message_key": "b"})
    with pytest.raises(HeaderRepeated, match="require is given twice"):
        merge_values({"require": "qos"}, {"require": "priority"})
