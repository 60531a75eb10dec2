"""Messages that are in the history of a late group and in its own queue."""

from collections import Counter

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.rabbitmq.group.groups import is_duplicate, marker
from adapters.rabbitmq.message.mapping import is_marker


def arrival(name: str) -> Arrival:
    return Arrival(1, False, "p0", Properties(message_id=name), b"")


def test_each_message_of_the_history_has_one_duplicate() -> None:
    overlap = Counter({"a": 1, "b": 2})
    found = [is_duplicate(overlap, arrival(name)) for name in ("a", "c", "a", "b", "b", "b")]
    assert found == [True, False, False, True, True, False]


def test_a_mark_is_recognized_by_its_text() -> None:
    assert is_marker(marker("end"))
    assert is_marker(marker("end"), "end")
    assert not is_marker(marker("end"), "start")
    assert not is_marker(Properties(), "end")
    assert not is_marker(Properties(headers={"x": "end"}))
