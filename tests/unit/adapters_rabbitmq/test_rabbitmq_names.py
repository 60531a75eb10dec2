"""Names in RabbitMQ: no two things share one, and none is longer than its place allows."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.topology import names

LETTERS = st.text("ab.-_1", min_size=1, max_size=6)
LONG = st.builds(lambda head, length, tail: head + "x" * length + tail, LETTERS, st.integers(0, 237), LETTERS)
NAMES = LETTERS | LONG
"""All that `bridge.engine.destination_names` lets through, as far as it matters; long ones differ at either end."""
PARTITIONS = st.integers(0, 1 << 20)

Named = tuple[str, str, int]
OF_PARTITIONS: tuple[Callable[[str, str, int], str], ...] = (names.queue, names.attempts, names.history)
OF_GROUPS: tuple[Callable[[str, str], str], ...] = (names.setup, names.group)
OF_DESTINATIONS: tuple[Callable[[str], str], ...] = (names.log, names.parts, names.rest)


def every(destination: str, group: str, partition: int) -> set[str]:
    """Return the names of queues that there are for it."""
    return {
        *(name(destination, group, partition) for name in OF_PARTITIONS),
        names.setup(destination, group),
        names.log(destination),
    }


@given(st.tuples(NAMES, NAMES, PARTITIONS), st.tuples(NAMES, NAMES, PARTITIONS))
def test_no_two_share_a_name(one: Named, two: Named) -> None:
    assert len(every(*one)) == len(OF_PARTITIONS) + 2
    for name in OF_PARTITIONS:
        assert (name(*one) == name(*two)) == (one == two)
    for pair in OF_GROUPS:
        assert (pair(*one[:2]) == pair(*two[:2])) == (one[:2] == two[:2])
    for single in OF_DESTINATIONS:
        assert (single(one[0]) == single(two[0])) == (one[0] == two[0])
    if one[:2] != two[:2]:
        assert every(*one) & every(*two) <= {names.log(one[0])}


@given(NAMES, NAMES, PARTITIONS)
def test_names_have_room(destination: str, group: str, partition: int) -> None:
    assert all(len(name.encode()) <= names.NAME_MAX for name in every(destination, group, partition))
    assert len(names.log(destination).encode()) <= names.STREAM_MAX
    assert len(names.token(destination).encode()) <= names.TOKEN_MAX
    assert all(len(name(destination)) <= names.NAME_MAX for name in OF_DESTINATIONS)


@given(NAMES, NAMES, st.integers(0, 99))
def test_a_name_that_fits_is_what_the_table_says(destination: str, group: str, partition: int) -> None:
    whole = f"{destination}.{group.replace('.', ':')}.p{partition}"
    if len(whole) <= names.NAME_MAX:
        assert names.queue(destination, group, partition) == whole
    else:
        assert names.queue(destination, group, partition).endswith(f".p{partition}")


def test_names_are_those_of_the_documentation() -> None:
    assert [name("d", "g.h", 7) for name in OF_PARTITIONS] == ["d.g:h.p7", "d.g:h.n7", "d.g:h.h7"]
    assert [name("d", "g.h") for name in OF_GROUPS] == ["d.g:h.setup", "d.g:h"]
    assert [name("d") for name in OF_DESTINATIONS] == ["d.log", "d.parts", "d.rest"]
    assert (names.token("d"), names.routing_key(7)) == ("d", "p7")
    own = names.Own("oms.")
    assert [own.catalogue, own.bridges, own.deliver, own.lost] == ["oms.book", "oms.bridges", "oms.deliver", "oms.lost"]
    assert own.delay(28) == "oms.delay28"


def test_a_name_is_cut_only_where_it_is_too_long() -> None:
    assert names.fit("x" * 252, ".p7") == "x" * 252 + ".p7"
    assert len(names.fit("x" * 252, ".p7")) == names.NAME_MAX
    assert names.fit("x" * 253, ".p7").endswith(".p7")
    assert "~" in names.fit("x" * 253, ".p7")
    assert len(names.fit("x" * 253, ".p7")) == names.NAME_MAX
    assert names.fit("x" * 7, ".p", most=9) == "x" * 7 + ".p"


def test_a_cut_name_is_the_same_in_every_bridge() -> None:
    """Bridges of different versions meet in it."""
    assert names.queue("d" * 249, "g" * 10, 7) == "d" * 235 + "~830ef2562426d3ef.p7"
