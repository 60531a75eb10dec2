"""Which partitions are whose, for any members, and a bridge's view of the others."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from adapters.rabbitmq.group.assignment import Peers, decode, encode, share

identities = st.sets(st.text(max_size=3), min_size=1, max_size=7)


@given(identities, st.integers(0, 24), st.text(max_size=3))
def test_each_partition_is_one_members_and_nobody_has_more_than_one_more(
    members: set[str], partitions: int, group: str
) -> None:
    shares = [share(group, me, members - {me}, partitions) for me in members]
    assert sorted(partition for each in shares for partition in each) == list(range(partitions))
    assert len({len(each) for each in shares}) <= 1 or max(map(len, shares)) - min(map(len, shares)) == 1


def test_groups_of_one_partition_are_spread() -> None:
    members = {"a", "b", "c", "d"}
    served = Counter(me for number in range(400) for me in members if share(f"g{number}", me, members, 1))
    assert min(served.values()) > 50


@given(st.sets(st.text(max_size=5)))
def test_what_is_said_is_read(groups: set[str]) -> None:
    assert decode(encode(groups)) == groups


@given(st.binary(max_size=20))
@example(b"[" * 100_000)
@example(b'{"a": 1}')
@example(b"17")
@example(b"\xff")
def test_what_nobody_here_has_said_is_no_group(said: bytes) -> None:
    assert all(isinstance(group, str) for group in decode(said))


def test_only_numbers_and_lists_of_groups_are_no_group() -> None:
    assert decode(b'["a", 1, ["b"], null]') == {"a"}


def test_what_a_bridge_says_is_news_once() -> None:
    peers = Peers()
    assert peers.announced("oms.bridges.a.1", encode({"g", "h"})) == (True, frozenset("gh"))
    assert peers.announced("oms.bridges.a.1", encode({"g", "h"})) == (False, frozenset())
    assert peers.announced("oms.bridges.a.1", encode({"g", "i"})) == (False, frozenset("hi"))
    assert peers.announced("oms.bridges.b.1", encode({"g"})) == (True, frozenset("g"))
    assert peers.serving("g") == ["oms.bridges.a", "oms.bridges.b"]
    assert peers.serving("i") == ["oms.bridges.a"]


def test_a_bridge_with_a_new_queue_is_the_same_bridge() -> None:
    peers = Peers()
    peers.announced("oms.bridges.a.1", encode({"g"}))
    assert peers.announced("oms.bridges.a.2", encode({"g"})) == (True, frozenset())
    assert peers.queues() == ["oms.bridges.a.2"]
    assert peers.remove("oms.bridges.a.1") == frozenset(), "only that queue is gone"
    assert peers.serving("g") == ["oms.bridges.a"]
    assert peers.remove("oms.bridges.a.2") == {"g"}
    assert peers.serving("g") == []
    assert peers.remove("oms.bridges.a.2") == frozenset()
