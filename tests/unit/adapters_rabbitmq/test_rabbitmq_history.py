"""The deduplicator of a partition with history: whenever its holder is killed, each message comes once."""

from collections import Counter, deque
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.rabbitmq.group import history
from adapters.rabbitmq.group.history import Deduplicator, Verdict
from adapters.rabbitmq.message.headers import MARKER

SETUP = "one-set-up"


def arrival(name: str, body: bytes = b"") -> Arrival:
    return Arrival(1, False, "p0", Properties(message_id=name), body)


def record(both: Counter[str], setup: str = SETUP) -> Arrival:
    properties, body = history.end(setup, both)
    return Arrival(1, False, "queue", properties, body)


def marker(setup: str = SETUP) -> Arrival:
    return Arrival(1, False, "queue", history.through(setup), b"")


class Case(NamedTuple):
    """A log with marks A and B, and which messages between them were routed to the own queue as well."""

    ids: list[str]
    a: int
    b: int
    routed: list[bool]
    late: int
    """How many messages after B are in the own queue before its marker."""
    lives: list[int]
    """After how many arrivals each holder is killed."""

    def queues(self) -> tuple[deque[Arrival], deque[Arrival]]:
        log = [arrival(name, b"%d" % at) for at, name in enumerate(self.ids)]
        own = [each for each, routed in zip(log[self.a : self.b], self.routed, strict=False) if routed]
        own += [*log[self.b : self.b + self.late], marker(), *log[self.b + self.late :]]
        return deque([*log[: self.b], record(Counter(self.ids[self.a : self.b]))]), deque(own)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    before, between, after = (draw(st.integers(0, 12)) for _ in range(3))
    same = draw(st.booleans())
    """Whether ids between the marks repeat, as those of a producer do that sends again."""
    ids = [f"b{n}" for n in range(before)]
    ids += [f"x{n % 3 if same else n}" for n in range(between)]
    ids += [f"a{n}" for n in range(after)]
    return Case(
        ids,
        before,
        before + between,
        draw(st.lists(st.booleans(), min_size=between, max_size=between)),
        draw(st.integers(0, after)),
        draw(st.lists(st.integers(0, 30), max_size=4)),
    )


def live(past: deque[Arrival] | None, own: deque[Arrival], arrivals: int, came: list[bytes]) -> deque[Arrival] | None:
    """Hold the partition for so many arrivals; returns the history queue, None once that is deleted."""
    sieve = Deduplicator()
    reading = own if past is None else past
    for _ in range(arrivals):
        if not reading:
            break
        each = reading[0]
        verdict = sieve.arrived(each)
        if verdict is Verdict.NEXT:
            reading = own
        else:
            reading.popleft()
        if verdict is Verdict.KEEP:
            came.append(each.body)
        elif verdict is Verdict.END:
            past = None
    return past


@given(cases())
def test_each_message_once_and_in_order(case: Case) -> None:
    past: deque[Arrival] | None
    past, own = case.queues()
    came: list[bytes] = []
    for arrivals in case.lives:
        past = live(past, own, arrivals, came)
    past = live(past, own, 1000, came)
    assert past is None
    assert came == [b"%d" % at for at in range(len(case.ids))]


def test_the_record_may_come_twice_to_the_same_holder() -> None:
    sieve = Deduplicator()
    assert sieve.arrived(record(Counter("a"))) is Verdict.NEXT
    assert sieve.arrived(arrival("a")) is Verdict.DROP
    assert sieve.arrived(record(Counter("a"))) is Verdict.NEXT
    assert sieve.arrived(arrival("a")) is Verdict.KEEP


def test_marks_that_mean_nothing_here_are_dropped() -> None:
    forged = Arrival(1, False, "p0", Properties(headers={MARKER: 7}), b"")
    broken = [
        Arrival(1, False, "p0", history.end(SETUP, {})[0], body) for body in (b"", b"[]", b"\xff", b'{"setup": 1}')
    ]
    for sieve in (Deduplicator(), Deduplicator()):
        for each in (marker(), forged, *broken):
            assert sieve.arrived(each) is Verdict.DROP
        assert sieve.arrived(arrival("a")) is Verdict.KEEP
    assert sieve.arrived(record(Counter("a"))) is Verdict.NEXT
    assert sieve.arrived(marker("of another set-up")) is Verdict.DROP
    assert sieve.arrived(arrival("a")) is Verdict.DROP
    assert sieve.arrived(marker()) is Verdict.END
