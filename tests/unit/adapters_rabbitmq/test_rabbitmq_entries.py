"""What the entries of the book come to."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq import entries
from adapters.rabbitmq.entries import READ, Contents, Group
from adapters.rabbitmq.topology import Layout

FEW = st.sampled_from(("a", "b", ""))
TEXT = st.text(st.characters(), max_size=4)
ENTRIES = st.one_of(
    st.builds(entries.destination, FEW, st.builds(Layout, st.integers(1, 1 << 20), st.integers(0, 1 << 62))),
    st.builds(entries.begun, FEW, FEW),
    st.builds(entries.ready, FEW, FEW, st.lists(st.integers(0, 9))),
    st.builds(entries.drained, FEW, FEW, st.integers(0, 9)),
    st.builds(entries.note, st.sampled_from((None, "one")), FEW, TEXT | st.none()),
    st.just(READ),
)


def contents(told: list[bytes], instance: str | None = "one") -> Contents:
    found = Contents(instance)
    assert all(found.read(entry) for entry in told)
    return found


@given(st.lists(ENTRIES))
def test_the_whole_comes_to_the_same(told: list[bytes]) -> None:
    first = contents(told)
    again = contents(first.whole())
    assert again.destinations == first.destinations
    assert again.notes == first.notes
    assert again.groups == {pair: group._replace(begun=0) for pair, group in first.groups.items() if group.ready}


@given(st.lists(ENTRIES), st.lists(ENTRIES))
def test_what_was_known_before_another_book(told: list[bytes], others: list[bytes]) -> None:
    """Of destinations the first entry counts, and that may be somebody else's; of all the rest the last."""
    before = contents(told)
    book = [*others, *before.whole()]
    after = before.anew()
    assert all(after.read(entry) for entry in book)
    read = contents(book)
    assert after.destinations == read.destinations
    assert {pair for pair, group in after.groups.items() if group.ready} == {
        pair for pair, group in read.groups.items() if group.ready
    }
    assert after.notes == read.notes


@given(
    st.binary()
    | st.from_regex(rb'\["(destination|begun|ready|drained|note|read)"(, ("a"|1|null|\[1?\])){0,4}\]', fullmatch=True)
)
def test_whatever_is_written_there_raises_nothing(entry: bytes) -> None:
    found = Contents(None)
    if not found.read(entry):
        assert (found.destinations, found.groups, found.notes) == ({}, {}, {})


def test_the_first_of_a_destination_counts() -> None:
    found = contents([entries.destination("d", Layout(8, 1)), entries.destination("d", Layout(4, 0))])
    assert found.destinations == {"d": Layout(8, 1)}


def test_how_far_a_set_up_is() -> None:
    told = [entries.begun("d", "g"), entries.begun("d", "g")]
    assert contents(told).groups == {("d", "g"): Group(begun=2)}
    told.append(entries.ready("d", "g", [1, 2]))
    assert contents(told).groups == {("d", "g"): Group(ready=True, history=(1, 2))}
    told.append(entries.ready("d", "g", []))
    assert contents(told).groups == {("d", "g"): Group(ready=True)}


def test_notes_are_of_an_instance() -> None:
    told = [entries.note("one", "k", "1"), entries.note(None, "k", "2"), entries.note("two", "k", None)]
    assert [contents(told, instance).notes for instance in ("one", None, "two")] == [{"k": "1"}, {"k": "2"}, {}]


def test_a_history_is_read_partition_by_partition() -> None:
    told = [entries.ready("a", "b", [0, 2, 5]), entries.drained("a", "b", 2), entries.drained("b", "a", 5)]
    assert contents(told).groups["a", "b"] == Group(0, ready=True, history=(0, 5))
