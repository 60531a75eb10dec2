"""The delay levels, walked on a model of exchanges and queues by RabbitMQ's manual on topics."""

import itertools
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.levels import LEVELS, LONGEST, UNIT
from adapters.rabbitmq.topology.declarations import Request, bind_queue
from adapters.rabbitmq.topology.names import NAME_MAX, Own, token
from bridge.engine.destination_names import NAME_MAX as DESTINATION_MAX

OWN: Final = Own("oms.")
ALIKE: Final = ("orders", "orders.eu", "a", "a.p3", "p3", "a.p3.p3")
_CHARACTERS: Final = "ABab01.-_"
NAMES: Final = st.text(_CHARACTERS, min_size=1, max_size=12).filter(lambda name: name not in {".", ".."})


class End(NamedTuple):
    """Where a message has come to an end, and how long it waited on its way."""

    name: str
    waited: int


class Node(NamedTuple):
    """An exchange or a queue."""

    name: str
    arguments: dict[str, Any]


class Binding(NamedTuple):
    """From an exchange to a queue, or to another exchange."""

    key: str
    target: str
    to_exchange: bool


class Model:
    """What is declared, and where a message goes from there."""

    def __init__(self, *requests: Request) -> None:
        self.exchanges: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        self.bindings: dict[str, list[Binding]] = {}
        for method, arguments in requests:
            if method == "exchange_declare":
                assert (arguments["exchange_type"], arguments["durable"]) == ("topic", True)
                self.exchanges[arguments["exchange"]] = Node(arguments["exchange"], arguments["arguments"])
            elif method == "queue_declare":
                assert arguments["durable"] is True
                self.queues[arguments["queue"]] = Node(arguments["queue"], arguments["arguments"])
            elif method == "queue_bind":
                binding = Binding(arguments["routing_key"], arguments["queue"], to_exchange=False)
                self.bindings.setdefault(arguments["exchange"], []).append(binding)
            else:
                assert method == "exchange_bind"
                binding = Binding(arguments["routing_key"], arguments["destination"], to_exchange=True)
                self.bindings.setdefault(arguments["source"], []).append(binding)

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
            elif (queue := self.queues.get(each.target)) is not None and "x-dead-letter-exchange" in queue.arguments:
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


def relay(*way: str) -> Node:
    arguments = levels.relay(OWN, *way).arguments
    return Node(arguments["queue"], arguments["arguments"])


def declared(*more: Request) -> Model:
    return Model(*levels.levels(OWN), *more)


WHOLE: Final = declared(levels.deliver_to_exchange(OWN, "orders"))


def sent(model: Model, delay: int, end: str) -> list[End]:
    return model.walk(levels.entry(OWN, delay), levels.routing_key(delay, end))


def tail(destination: str, partition: int) -> str:
    return f"{token(destination)}.p{partition}"


def test_queues_of_the_levels_lose_nothing_on_the_way() -> None:
    """Without one of the three RabbitMQ hands on at most once: quorum, at-least-once, reject-publish."""
    queues = WHOLE.queues
    assert queues["oms.delay5"].arguments == {
        "x-queue-type": "quorum",
        "x-message-ttl": 3_200,
        "x-dead-letter-exchange": "oms.delay4",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert queues["oms.delay0"].arguments["x-dead-letter-exchange"] == "oms.deliver"
    assert queues["oms.lost"].arguments == {
        "x-queue-type": "quorum",
        "x-overflow": "drop-head",
        "x-max-length": levels.LOST_MESSAGES,
        "x-max-length-bytes": levels.LOST_BYTES,
    }
    assert WHOLE.exchanges["oms.deliver"].arguments == {"alternate-exchange": "oms.lost"}
    assert WHOLE.exchanges["oms.lost"].arguments == {}


def test_a_queue_that_messages_leave_at_once() -> None:
    assert relay("orders").arguments == {
        "x-queue-type": "quorum",
        "x-message-ttl": 0,
        "x-dead-letter-exchange": "orders",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert relay("orders", "key").arguments["x-dead-letter-routing-key"] == "key"
    names = {relay(*way).name for way in (("orders",), ("orders", "key"), ("orders", ""), ("other", "key"))}
    names.add(relay("orders", "key", "a destination of several").name)
    assert len(names) == 5
    assert all(name.startswith("oms.relay.") for name in names)


def test_the_model_knows_topics() -> None:
    assert matches("a.*.#", "a.b")
    assert matches("a.*.#", "a.b.c.d")
    assert not matches("a.*.#", "a")
    assert matches("*.", "a.")
    assert matches("#", "")
    assert not matches("a.*", "a.b.c")


@given(st.integers(0, LONGEST))
def test_a_delay_waits_so_many_units(delay: int) -> None:
    assert sent(WHOLE, delay, tail("orders", 3)) == [End("orders", delay // UNIT * UNIT)]


def test_so_do_the_ends_of_the_range(subtests: pytest.Subtests) -> None:
    cases: list[int] = [0, UNIT, 2 * UNIT, 3 * UNIT, 366 * 24 * 3_600_000, LONGEST]
    for delay in cases:
        with subtests.test(delay=delay):
            assert sent(WHOLE, delay, tail("orders", 0)) == [End("orders", delay)]


def test_the_last_queue_stands_only_if_all_others_do() -> None:
    """A bridge that finds it uses all of them at once."""
    *others, last, binding = levels.levels(OWN)
    assert (last.method, binding.method) == ("queue_declare", "queue_bind")
    assert binding.arguments["queue"] == last.arguments["queue"]
    assert last not in others


def test_there_is_one_queue_for_each_level_and_one_for_the_lost() -> None:
    names = {f"oms.delay{level}" for level in range(LEVELS)}
    assert set(WHOLE.exchanges) == {OWN.deliver, OWN.lost} | names
    assert set(WHOLE.queues) == {OWN.lost} | names
    assert LONGEST > 366 * 24 * 3_600_000, "the longest delay that the engine accepts"


def test_the_queue_of_the_lost_has_a_bound_and_keeps_the_newest() -> None:
    assert WHOLE.queues[OWN.lost].arguments == {
        "x-queue-type": "quorum",
        "x-overflow": "drop-head",
        "x-max-length": levels.LOST_MESSAGES,
        "x-max-length-bytes": levels.LOST_BYTES,
    }


def test_every_level_hands_on_at_least_once() -> None:
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
    assert max(waits) == UNIT << (LEVELS - 1) < 315_360_000_000


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), st.integers(0, 12), st.integers(0, LONGEST))
def test_destinations_never_catch_what_is_for_each_other(found: list[str], partition: int, delay: int) -> None:
    model = declared(*(levels.deliver_to_exchange(OWN, name) for name in found))
    for name in found:
        assert sent(model, delay, tail(name, partition)) == [End(name, delay // UNIT * UNIT)]


def test_neither_do_those_that_look_like_each_other(subtests: pytest.Subtests) -> None:
    for pair in list(itertools.permutations(ALIKE, 2)):
        with subtests.test(pair=pair):
            model = declared(*(levels.deliver_to_exchange(OWN, name) for name in pair))
            for name in pair:
                assert sent(model, 5000, tail(name, 3)) == [End(name, 5000)]


@given(NAMES, NAMES, st.integers(0, 12))
def test_what_is_for_one_queue_reaches_only_that(destination: str, group: str, partition: int) -> None:
    queue = f"{destination}.{group.replace('.', ':')}.p{partition}"
    others = (destination, f"{destination}.{group}", f"{destination}.{group}.p{partition}")
    model = declared(
        levels.deliver_to_queue(OWN, queue), *(levels.deliver_to_exchange(OWN, name) for name in {*others})
    )
    assert sent(model, 700, levels.to_queue(queue)) == [End(queue, 700)]
    for name in others:
        assert sent(model, 700, tail(name, partition)) == [End(name, 700)]


def test_what_is_relayed_to_an_exchange_keeps_its_partition_or_has_a_key_of_its_own() -> None:
    own, foreign = relay("orders"), relay("billing", "invoice.created")
    assert own.name != foreign.name
    assert own.arguments["x-message-ttl"] == foreign.arguments["x-message-ttl"] == 0
    assert "x-dead-letter-routing-key" not in own.arguments
    assert foreign.arguments["x-dead-letter-routing-key"] == "invoice.created"
    relays = levels.relay(OWN, "orders"), levels.relay(OWN, "billing", "invoice.created")
    names = (own.name, foreign.name)
    model = declared(*relays, *(levels.deliver_to_queue(OWN, name, partitioned=True) for name in names))
    assert sent(model, 900, f"{levels.to_queue(own.name)}.p3") == [End("orders", 900)]
    assert sent(model, 900, f"{levels.to_queue(foreign.name)}.p0") == [End("billing", 900)]


def test_after_a_purge_earlier_messages_go_another_way() -> None:
    old, new = (levels.deliver_to_exchange(OWN, "orders", purges) for purges in (0, 1))
    model = declared(levels.dropping(OWN), new, bind_queue(OWN.dropped, OWN.deliver, old.arguments["routing_key"]))
    assert sent(model, 900, f"{token('orders', 1)}.p3") == [End("orders", 900)]
    assert sent(model, 900, tail("orders", 3)) == [End(OWN.dropped, 900)]
    assert "x-dead-letter-exchange" not in model.queues[OWN.dropped].arguments


def test_after_a_purge_of_a_queue_it_gets_only_what_is_sent_to_it_since() -> None:
    model = declared(levels.dropping(OWN), levels.deliver_to_queue(OWN, OWN.dropped, 1))
    assert sent(model, 900, levels.to_queue(OWN.dropped, 1)) == [End(OWN.dropped, 900)]
    assert sent(model, 900, levels.to_queue(OWN.dropped)) == [End(OWN.lost, 900)]


def test_what_is_overdue_does_not_wait() -> None:
    assert (levels.not_before(1000, 1001), levels.not_before(1000, 9000)) == (0, 0)
    assert levels.not_before(1000, 1000) == UNIT


def test_what_nobody_takes_is_not_stuck() -> None:
    assert sent(declared(), 300, tail("gone", 0)) == [End(OWN.lost, 300)]
    assert sent(declared(), 300, levels.to_queue("gone.app.p0")) == [End(OWN.lost, 300)]


def test_what_is_not_delayed_is_not_lost_but_returned() -> None:
    """A destination's last exchange may name `lost` as its alternate: only the delayed must not block anything."""
    assert WHOLE.walk(OWN.lost, "p0") == []
    assert WHOLE.walk(OWN.lost, "invoice.created.eu") == []


@given(st.text(_CHARACTERS, min_size=150, max_size=DESTINATION_MAX), st.integers(0, 9999), st.integers(0, 99))
def test_long_names_fit_and_stay_apart(name: str, partition: int, purges: int) -> None:
    """A topic exchange has no longer routing keys than 255 bytes."""
    other = name[:-1] + ("A" if name[-1] != "A" else "B")
    model = declared(*(levels.deliver_to_exchange(OWN, each) for each in (name, other)))
    for each in (name, other):
        end = tail(each, partition)
        assert len(levels.routing_key(LONGEST, end)) <= NAME_MAX
        assert sent(model, 1600, end) == [End(each, 1600)]
    assert len(levels.routing_key(1, levels.to_queue(f"{name}.p0", purges))) <= NAME_MAX
    assert len(levels.routing_key(1, f"{token(name, purges)}.p{partition}")) <= NAME_MAX
