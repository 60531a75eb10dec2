"""Several rosters that tell each other, over a network that delays and reorders: they always come to the same."""

import itertools
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.rabbitmq.roster import Roster, State, decode, encode, shares

ROUNDS: Final = 20
"""Rounds of messages after which all must have come to the same. A guard: it takes a few."""
Claims = Mapping[str, frozenset[int]]


def claims_of(partitions: int) -> st.SearchStrategy[Claims]:
    names = st.text(string.ascii_lowercase, min_size=1, max_size=3)
    taken = st.frozensets(st.integers(0, partitions + 1))
    return st.dictionaries(names, taken, min_size=1, max_size=7)


some_claims = st.integers(1, 24).flatmap(lambda n: st.tuples(claims_of(n), st.just(n)))


def without_conflicts(claims: Claims, partitions: int) -> Claims:
    free = set(range(partitions))
    found = {}
    for member, share in claims.items():
        found[member] = share & free
        free -= share
    return found


def check_fair(found: Claims, partitions: int) -> None:
    counts = Counter(itertools.chain.from_iterable(found.values()))
    assert counts == dict.fromkeys(range(partitions), 1), found
    sizes = {len(share) for share in found.values()}
    assert max(sizes) - min(sizes) <= 1, found


@given(some_claims, st.randoms(use_true_random=False))
def test_shares_are_fair_whole_and_the_same_for_all(case: tuple[Claims, int], random: Random) -> None:
    claims, partitions = case
    found = shares(claims, partitions)
    assert set(found) == set(claims)
    check_fair(found, partitions)
    names = list(claims)
    random.shuffle(names)
    assert shares({name: claims[name] for name in names}, partitions) == found
    assert shares(found, partitions) == found


@given(some_claims)
def test_whoever_holds_no_more_than_its_due_keeps_it_and_others_give_up_no_more_than_they_must(
    case: tuple[Claims, int],
) -> None:
    partitions = case[1]
    before = without_conflicts(*case)
    after = shares(before, partitions)
    for member, share in before.items():
        assert len(after[member] & share) == min(len(share), len(after[member])), member
    # those that have most keep one more, where shares cannot be alike: so nothing moves that need not
    least, more = divmod(partitions, len(before))
    sizes = sorted((len(share) for share in before.values()), reverse=True)
    moved = sum(max(0, size - least - (at < more)) for at, size in enumerate(sizes))
    assert sum(len(before[member] - after[member]) for member in before) == moved


@given(
    st.integers(1, 24).flatmap(lambda n: st.tuples(st.frozensets(st.integers(0, n - 1), max_size=n // 2), st.just(n)))
)
def test_a_newcomer_keeps_what_it_claims_already_though_its_last_holder_says_the_same(
    case: tuple[frozenset[int], int],
) -> None:
    claimed, partitions = case
    everything = frozenset(range(partitions))
    assert shares({"a": everything, "b": claimed}, partitions)["b"] >= claimed
    assert shares({"a": claimed, "b": everything}, partitions)["a"] >= claimed


def test_what_was_said_earlier_is_not_heeded_later() -> None:
    roster = Roster("a", 4, itertools.count(1))
    assert roster.heard("b", State(2, frozenset({1})))
    assert not roster.heard("b", State(3, frozenset({2})))
    assert not roster.heard("b", State(2, frozenset({1})))
    assert not roster.heard("b", State(1, None))
    assert roster.others == {"b": State(3, frozenset({2}))}
    assert not roster.heard("b", State(4, None))
    assert not roster.others
    roster.heard("b", State(5, frozenset({1})))
    roster.vanished("b")
    assert not roster.others


states = st.builds(State, st.integers(0), st.none() | st.frozensets(st.integers(0, 100)))


@given(st.dictionaries(st.text(), states))
def test_what_is_told_is_what_is_heard(told: dict[str, State]) -> None:
    assert decode(encode(told)) == told


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"\xff",
            b"7",
            b"[]",
            b'{"g":3}',
            b'{"g":[1]}',
            b'{"g":["1",[]]}',
            b'{"g":[1,["a"]]}',
            b'{"g":[1,[-1]]}',
        ),
        *(b'{"g":[true,[]]}', b'{"g":[1,{}]}', b'{"g":[1,[1.5]]}', b"[" * 100_000),
    ],
    ids=range(13),
)
def test_what_no_bridge_has_written_is_not_heard(body: bytes) -> None:
    assert decode(body) == {}


@dataclass
class Bridge:
    """A roster with what `Inbox` and `Membership` do for it."""

    roster: Roster
    inbox: list[tuple[str, State, bool]] = field(default_factory=list)


class Network(RuleBasedStateMachine):
    """Nothing is lost, but to those that are gone; anything may be late, or overtake what was sent before it."""

    @initialize(partitions=st.integers(1, 12))
    def begin(self, partitions: int) -> None:
        self.partitions = partitions
        self.bridges: dict[str, Bridge] = {}
        self.versions = itertools.count(1)

    @precondition(lambda self: len(self.bridges) < 6)
    @rule(name=st.text(string.ascii_lowercase, min_size=2, max_size=4))
    def comes(self, name: str) -> None:
        if name in self.bridges:
            return
        self.bridges[name] = Bridge(Roster(name, self.partitions, self.versions))
        for other in self.bridges:
            self.send(name, other, hello=True)

    @precondition(lambda self: self.bridges)
    @rule(random=st.randoms(use_true_random=False))
    def leaves(self, random: Random) -> None:
        name = random.choice(sorted(self.bridges))
        farewell = State(next(self.versions), None)
        for other in self.bridges.pop(name).roster.others:
            if other in self.bridges:
                self.bridges[other].inbox.append((name, farewell, False))

    @precondition(lambda self: self.bridges)
    @rule(random=st.randoms(use_true_random=False))
    def dies(self, random: Random) -> None:
        del self.bridges[random.choice(sorted(self.bridges))]

    @precondition(lambda self: self.bridges)
    @rule(random=st.randoms(use_true_random=False), count=st.integers(1, 20))
    def time_passes(self, random: Random, count: int) -> None:
        for _ in range(count):
            name = random.choice(sorted(self.bridges))
            random.choice((self.hears, self.hears, self.decides, self.beats))(name, random)

    @rule(random=st.randoms(use_true_random=False))
    def all_comes_to_rest(self, random: Random) -> None:
        for _ in range(ROUNDS):
            before = self.told()
            for name in sorted(self.bridges):
                self.beats(name, random)
            while waiting := sorted(name for name, bridge in self.bridges.items() if bridge.inbox):
                self.hears(random.choice(waiting), random)
            for name in random.sample(sorted(self.bridges), len(self.bridges)):
                self.decides(name, random)
            if self.told() == before and not any(bridge.inbox for bridge in self.bridges.values()):
                break
        else:
            raise AssertionError(self.told())
        if self.bridges:
            check_fair({name: bridge.roster.share for name, bridge in self.bridges.items()}, self.partitions)
        for name, bridge in self.bridges.items():
            assert set(bridge.roster.others) == set(self.bridges) - {name}

    @invariant()
    def what_is_told_is_what_is_taken(self) -> None:
        for bridge in getattr(self, "bridges", {}).values():
            assert bridge.roster.state.share == bridge.roster.share <= set(range(self.partitions))

    def hears(self, name: str, random: Random) -> None:
        bridge = self.bridges[name]
        if not bridge.inbox:
            return
        sender, state, hello = bridge.inbox.pop(random.randrange(len(bridge.inbox)))
        if bridge.roster.heard(sender, state):
            for other in list(bridge.roster.others):
                self.send(name, other)
        elif hello:
            self.send(name, sender)

    def decides(self, name: str, _random: Random) -> None:
        roster = self.bridges[name].roster
        if roster.decide():
            self.beats(name, _random)

    def beats(self, name: str, _random: Random) -> None:
        for other in list(self.bridges[name].roster.others):
            self.send(name, other)

    def send(self, name: str, other: str, *, hello: bool = False) -> None:
        """Tell another; what comes back says that it is gone."""
        roster = self.bridges[name].roster
        if other == name:
            return
        if other in self.bridges:
            self.bridges[other].inbox.append((name, roster.state, hello))
        else:
            roster.vanished(other)

    def told(self) -> dict[str, tuple[State, dict[str, State]]]:
        return {name: (bridge.roster.state, dict(bridge.roster.others)) for name, bridge in self.bridges.items()}


Network.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestNetwork = Network.TestCase
