"""The ladder of delays, walked on a model of exchanges and queues that knows what RabbitMQ's manual says of topics."""

import itertools
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq import ladder
from adapters.rabbitmq.ladder import STOREYS, Binding, Declaration, Exchange, Queue
from adapters.rabbitmq.names import NAME_MAX, Own
from bridge.engine.names import NAME_MAX as DESTINATION_MAX

OWN: Final = Own("oms.")
ALIKE: Final = ("orders", "orders.eu", "a", "a.p3", "p3", "a.p3.p3")
_CHARACTERS: Final = "ABab01.-_"
NAMES: Final = st.text(_CHARACTERS, min_size=1, max_size=12).filter(lambda name: name not in {".", ".."})


class End(NamedTuple):
    """Where a message has come to an end, and how long it waited on its way."""

    name: str
    waited: int


class Model:
    """What is declared, and where a message goes from there."""

    def __init__(self, *declarations: Declaration) -> None:
        self.exchanges = {each.name: each for each in declarations if isinstance(each, Exchange)}
        self.queues = {each.name: each for each in declarations if isinstance(each, Queue)}
        self.bindings: dict[str, list[Binding]] = {}
        for each in declarations:
            if isinstance(each, Binding):
                self.bindings.setdefault(each.source, []).append(each)

    def walk(self, exchange: str, key: str, waited: int = 0) -> list[End]:
        """Every end that a message comes to: exchanges and queues out of which nothing leads."""
        if exchange not in self.exchanges:
            return [End(exchange, waited)]
        taken = [each for each in self.bindings.get(exchange, ()) if matches(each.key, key)]
        if not taken:
            alternate = self.exchanges[exchange].arguments.get("alternate-exchange")
            return [] if alternate is None else self.walk(str(alternate), key, waited)
        found: list[End] = []
        for each in taken:
            if each.to_exchange:
                found += self.walk(each.target, key, waited)
            elif (queue := self.queues.get(each.target)) is not None and "x-message-ttl" in queue.arguments:
                ttl = int(queue.arguments["x-message-ttl"])
                found += self.walk(str(queue.arguments["x-dead-letter-exchange"]), key, waited + ttl)
            else:
                found.append(End(each.target, waited))
        return found


def matches(pattern: str, key: str) -> bool:
    """Whether a topic exchange takes the key: `*` is one word, `#` any number of them."""
    return _words_match(pattern.split("."), key.split("."))


def _words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(_words_match(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and first in {"*", words[0]} and _words_match(rest, words[1:])


def declared(*more: Declaration) -> Model:
    storeys = (each for number in range(len(STOREYS)) for each in ladder.storey(OWN, number))
    return Model(*storeys, *more)


WHOLE: Final = declared(ladder.exit_to_exchange(OWN, "orders"))


def sent(model: Model, delay: int, end: str) -> list[End]:
    return model.walk(OWN.level(ladder.first(delay)), ladder.routing_key(delay, end))


def tail(destination: str, partition: int) -> str:
    return f"{ladder.to_destination(destination)}.p{partition}"


def test_the_model_knows_topics() -> None:
    assert matches("a.*.#", "a.b")
    assert matches("a.*.#", "a.b.c.d")
    assert not matches("a.*.#", "a")
    assert matches("*.", "a.")
    assert matches("#", "")
    assert not matches("a.*", "a.b.c")


@given(st.integers(1, ladder.LONGEST))
def test_a_delay_waits_exactly_so_long(delay: int) -> None:
    assert sent(WHOLE, delay, tail("orders", 3)) == [End("orders", delay)]


@pytest.mark.parametrize("delay", [1, 15, 16, 17, 255, 256, 0x1000, 0x10001, 366 * 24 * 3_600_000, ladder.LONGEST])
def test_so_do_the_ends_of_the_range(delay: int) -> None:
    assert sent(WHOLE, delay, tail("orders", 0)) == [End("orders", delay)]


@given(st.integers(1, ladder.LONGEST))
def test_a_delay_enters_at_its_first_digit_that_is_not_zero(delay: int) -> None:
    assert 16 ** ladder.first(delay) <= delay < 16 ** (ladder.first(delay) + 1)


@given(st.integers(1, 16 ** STOREYS[0].stop - 1))
def test_the_first_storey_is_enough_for_most(delay: int) -> None:
    model = Model(*ladder.storey(OWN, 0))
    assert sent(model, delay, "orders.p0") == [End(OWN.lost, delay)]


@pytest.mark.parametrize("number", range(len(STOREYS)))
def test_the_last_queue_of_a_storey_stands_only_if_all_others_do(number: int) -> None:
    """Whoever finds it uses them all, at once."""
    *others, last, binding = ladder.storey(OWN, number)
    assert isinstance(last, Queue)
    assert isinstance(binding, Binding)
    assert (binding.target, binding.to_exchange) == (last.name, False)
    assert last not in others
    assert last.name != OWN.rung(8, 7), "no delay that the engine accepts is blocked while it is not there"


def test_there_are_nine_exchanges_and_135_queues() -> None:
    assert set(WHOLE.exchanges) == {OWN.deliver, OWN.lost, *(f"oms.d{digit}" for digit in range(9))}
    assert len(WHOLE.queues) == 135 + 1
    assert "oms.q8.f" in WHOLE.queues


def test_every_rung_hands_on_at_least_once() -> None:
    """
    > all three or it silently degrades to at-most-once
    """
    for name, queue in WHOLE.queues.items():
        if name != OWN.lost:
            assert queue.arguments["x-queue-type"] == "quorum"
            assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
            assert queue.arguments["x-overflow"] == "reject-publish"


def test_the_longest_wait_is_one_that_rabbitmq_takes() -> None:
    """
    > `x-message-ttl`/`x-expires` accept up to 315 360 000 000 ms (10 y)
    """
    waits = [int(queue.arguments.get("x-message-ttl", 0)) for queue in WHOLE.queues.values()]
    assert max(waits) == 15 * 16**8 < 315_360_000_000


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), st.integers(0, 12), st.integers(1, ladder.LONGEST))
def test_destinations_never_catch_what_is_for_each_other(found: list[str], partition: int, delay: int) -> None:
    model = declared(*(ladder.exit_to_exchange(OWN, name) for name in found))
    for name in found:
        assert sent(model, delay, tail(name, partition)) == [End(name, delay)]


@pytest.mark.parametrize("pair", list(itertools.permutations(ALIKE, 2)))
def test_neither_do_those_that_look_like_each_other(pair: tuple[str, str]) -> None:
    model = declared(*(ladder.exit_to_exchange(OWN, name) for name in pair))
    for name in pair:
        assert sent(model, 5000, tail(name, 3)) == [End(name, 5000)]


@given(NAMES, NAMES, st.integers(0, 12))
def test_what_is_for_one_queue_reaches_only_that(destination: str, group: str, partition: int) -> None:
    queue = f"{destination}.{group.replace('.', ':')}.p{partition}"
    others = (destination, f"{destination}.{group}", f"{destination}.{group}.p{partition}")
    model = declared(ladder.exit_to_queue(OWN, queue), *(ladder.exit_to_exchange(OWN, name) for name in {*others}))
    assert sent(model, 77, ladder.to_queue(queue)) == [End(queue, 77)]
    for name in others:
        assert sent(model, 77, tail(name, partition)) == [End(name, 77)]


def test_what_turns_off_to_an_exchange_keeps_its_partition_or_has_a_key_of_its_own() -> None:
    own, foreign = ladder.turn(OWN, "orders"), ladder.turn(OWN, "billing", "invoice.created")
    assert own.name != foreign.name
    assert own.arguments["x-message-ttl"] == foreign.arguments["x-message-ttl"] == 0
    assert "x-dead-letter-routing-key" not in own.arguments
    assert foreign.arguments["x-dead-letter-routing-key"] == "invoice.created"
    turns = (own, foreign)
    model = declared(*turns, *(ladder.exit_to_queue(OWN, turn.name, partitioned=True) for turn in turns))
    assert sent(model, 9, f"{ladder.to_queue(own.name)}.p3") == [End("orders", 9)]
    assert sent(model, 9, f"{ladder.to_queue(foreign.name)}.p0") == [End("billing", 9)]


def test_what_nobody_takes_is_not_stuck() -> None:
    assert sent(declared(), 300, tail("gone", 0)) == [End(OWN.lost, 300)]
    assert sent(declared(), 300, ladder.to_queue("gone.app.p0")) == [End(OWN.lost, 300)]


def test_what_is_not_delayed_is_not_lost_but_returned() -> None:
    """A destination's last exchange may name `lost` as its alternate: only the delayed must not block anything."""
    assert WHOLE.walk(OWN.lost, "p0") == []
    assert WHOLE.walk(OWN.lost, "invoice.created.eu") == []


@given(st.text(_CHARACTERS, min_size=150, max_size=DESTINATION_MAX), st.integers(0, 9999))
def test_long_names_fit_and_stay_apart(name: str, partition: int) -> None:
    """A topic exchange has no longer routing keys than 255 bytes."""
    other = name[:-1] + ("A" if name[-1] != "A" else "B")
    model = declared(*(ladder.exit_to_exchange(OWN, each) for each in (name, other)))
    for each in (name, other):
        end = tail(each, partition)
        assert len(ladder.routing_key(ladder.LONGEST, end)) <= NAME_MAX
        assert sent(model, 16, end) == [End(each, 16)]
    assert len(ladder.routing_key(1, ladder.to_queue(f"{name}.p0"))) <= NAME_MAX
