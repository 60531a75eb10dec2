"""Which arrivals are second copies of a message that was sent again."""

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.rabbitmq.consume import repeated_arrivals
from adapters.rabbitmq.consume.repeated_arrivals import RepeatedArrivals
from adapters.rabbitmq.headers import RESENT, STORED


def arrival(identity: str, stored: int | None = 7, resent: object = None) -> Arrival:
    headers = {name: value for name, value in ((STORED, stored), (RESENT, resent)) if value is not None}
    return Arrival(1, False, "p0", Properties(message_id=identity, headers=headers), b"")


def repeats(*arrivals: Arrival) -> list[bool]:
    seen = RepeatedArrivals()
    return [seen.repeats(each) for each in arrivals]


def test_a_copy_that_was_sent_again_comes_after_the_first() -> None:
    assert repeats(arrival("a"), arrival("a", resent=1), arrival("a", resent=2)) == [False, True, True]


def test_only_copies_that_were_sent_again_have_arrived() -> None:
    """The first copy of them is delivered, and may be delivered again by the broker."""
    copies = arrival("a", resent=1), arrival("a", resent=2), arrival("a", resent=1)
    assert repeats(*copies) == [False, True, False]


def test_the_first_copy_comes_late() -> None:
    """The broker reads it from a connection that it has not yet taken for lost."""
    assert repeats(arrival("a", resent=1), arrival("a"), arrival("a", resent=1)) == [False, True, False]


def test_another_message_of_the_same_id_is_none() -> None:
    assert repeats(arrival("a"), arrival("a"), arrival("a", stored=8, resent=1), arrival("b", resent=1)) == [False] * 4


def test_a_message_of_a_native_producer_is_none() -> None:
    assert repeats(arrival("a"), arrival("a", None), arrival("a", None, 1), arrival("a", resent="1")) == [False] * 4


def test_the_oldest_are_forgotten() -> None:
    seen, count = RepeatedArrivals(), repeated_arrivals._REMEMBERED
    for number in range(count + 10):
        assert not seen.repeats(arrival(str(number)))
    assert [seen.repeats(arrival(str(number), resent=1)) for number in (9, 10, count + 9)] == [False, True, True]
    for number in range(2 * count):
        seen.repeats(arrival(str(number), stored=8, resent=1))
    assert len(seen._resent) == count
