"""What the entries of the catalogue come to, also where the stream has dropped the first of them."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.topology import records
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.records import TRANSACTIONS, Contents, Group
from adapters.rabbitmq.topology.shared_log import READ

FEW = st.sampled_from(("a", "b", ""))
TEXT = st.text(st.characters(), max_size=4)
ENTRIES = st.one_of(
    st.builds(records.destination, FEW, st.builds(Layout, st.integers(1, 1 << 20), st.integers(0, 1 << 62))),
    st.builds(records.begun, FEW, FEW),
    st.builds(records.ready, FEW, FEW, st.lists(st.integers(0, 9))),
    st.builds(records.drained, FEW, FEW, st.integers(0, 9)),
    st.builds(records.deleted, FEW, FEW | st.none()),
    st.builds(records.purged, FEW, FEW | st.none(), st.integers(1, 9)),
    st.builds(records.moved, FEW, FEW | st.none(), st.integers(1, 9)),
    st.builds(records.note, st.sampled_from((None, "one")), FEW, TEXT | st.none()),
    st.sampled_from((READ, TRANSACTIONS)),
)


def contents(told: list[bytes], instance: str | None = "one") -> Contents:
    found = Contents(instance)
    assert all(found.read(offset, entry) for offset, entry in enumerate(told))
    return found


def state(found: Contents) -> object:
    return (
        *(found.destinations, found.groups, found.purges, found.moved, found.transactions),
        found._notes,
    )


@given(st.lists(ENTRIES))
def test_the_whole_comes_to_the_same(told: list[bytes]) -> None:
    first = contents(told)
    again = contents(first.whole())
    assert again.destinations == first.destinations
    assert (again.notes, again.purges, again.moved, again.transactions) == (
        *(first.notes, first.purges, first.moved, first.transactions),
    )
    assert again.groups == {pair: group._replace(begun=0) for pair, group in first.groups.items() if group.ready}


@given(st.lists(ENTRIES), st.lists(ENTRIES))
def test_what_was_known_before_another_book(told: list[bytes], others: list[bytes]) -> None:
    """Of destinations the first entry counts, and that may be another bridge's; of all the rest the last."""
    before = contents(told)
    catalogue = [*others, *before.whole()]
    after = before.anew()
    assert all(after.read(offset, entry) for offset, entry in enumerate(catalogue))
    read = contents(catalogue)
    assert after.destinations == read.destinations
    assert {pair for pair, group in after.groups.items() if group.ready} == {
        pair for pair, group in read.groups.items() if group.ready
    }
    assert (after.notes, after.purges, after.moved, after.transactions) == (
        *(read.notes, read.purges, read.moved, read.transactions),
    )


@given(st.lists(ENTRIES), st.lists(ENTRIES), st.lists(ENTRIES), st.data())
def test_whoever_comes_after_the_beginning_was_dropped_knows_the_same(
    told: list[bytes], meanwhile: list[bytes], later: list[bytes], data: st.DataObject
) -> None:
    """`whole` is written behind the entries that others have written meanwhile; it counts from its offset on."""
    known = contents(told, None)
    stream = [*told, *meanwhile, known.snapshot(len(told) - 1), *later]
    first = data.draw(st.integers(0, len(told)))
    late = Contents(None)
    for offset, entry in list(enumerate(stream))[first:]:
        assert late.read(offset, entry)
        assert late.complete or offset < len(told) + len(meanwhile)
    assert state(late) == state(contents(stream, None))


def test_without_a_whole_what_is_there_counts() -> None:
    late = Contents(None)
    assert late.read(7, records.begun("d", "g"))
    assert not late.complete
    late.give_up()
    assert late.complete
    assert late.groups == {("d", "g"): Group(begun=1)}
    assert late.read(8, b'["whole",6,[]]')
    assert late.groups == {("d", "g"): Group(begun=1)}, "it is complete, so a whole says nothing new"


def test_a_whole_of_another_stream_does_not_count() -> None:
    late = Contents(None)
    assert late.read(7, records.begun("d", "g"))
    assert late.read(8, b'["whole",9,[]]')
    assert not late.complete
    assert late.groups == {("d", "g"): Group(begun=1)}


def test_what_the_stream_grows_by_since_a_whole() -> None:
    found = contents([records.begun("d", "g")])
    first = found.grown
    assert first > len(records.begun("d", "g"))
    whole = found.snapshot(0)
    assert (found.grown, found.size) == (0, 0)
    found.read(1, records.begun("d", "g"))
    assert found.grown == first
    found.read(2, whole)
    assert (found.grown, found.size) == (0, len(whole))


@given(
    st.binary()
    | st.from_regex(
        rb'\["(destination|begun|ready|drained|deleted|purged|moved|note|read)"(, ("a"|1|null|\[1?\])){0,4}\]',
        fullmatch=True,
    )
)
def test_whatever_is_written_there_raises_nothing(entry: bytes) -> None:
    found = Contents(None)
    if not found.read(0, entry):
        assert (found.destinations, found.groups, found.notes) == ({}, {}, {})


def test_the_first_of_a_destination_counts() -> None:
    found = contents([records.destination("d", Layout(8, 1)), records.destination("d", Layout(4, 0))])
    assert found.destinations == {"d": Layout(8, 1)}


def test_how_far_a_set_up_is() -> None:
    told = [records.begun("d", "g"), records.begun("d", "g")]
    assert contents(told).groups == {("d", "g"): Group(begun=2)}
    told.append(records.ready("d", "g", [1, 2]))
    assert contents(told).groups == {("d", "g"): Group(ready=True, history=(1, 2))}
    told.append(records.ready("d", "g", []))
    assert contents(told).groups == {("d", "g"): Group(ready=True)}


def test_the_highest_number_of_purges_counts_also_after_the_destination_is_deleted() -> None:
    told = [records.purged("a", None, 2), records.purged("a", "g", 1), records.purged("a", None, 1)]
    assert contents([*told, records.deleted("a", None)]).purges == {("a", None): 2, ("a", "g"): 1}


def test_notes_are_of_an_instance() -> None:
    told = [records.note("one", "k", "1"), records.note(None, "k", "2"), records.note("two", "k", None)]
    assert [contents(told, instance).notes for instance in ("one", None, "two")] == [{"k": "1"}, {"k": "2"}, {}]


def test_a_history_is_read_partition_by_partition() -> None:
    told = [records.ready("a", "b", [0, 2, 5]), records.drained("a", "b", 2), records.drained("b", "a", 5)]
    assert contents(told).groups["a", "b"] == Group(0, ready=True, history=(0, 5))


def test_what_is_deleted_can_be_claimed_anew() -> None:
    told = [
        records.destination("a", Layout(2, 0)),
        records.ready("a", "g", [0]),
        records.ready("a", "h", []),
        records.destination("b", Layout(4, 0)),
        records.ready("b", "g", []),
        records.deleted("b", "g"),
    ]
    before = contents(told)
    assert (set(before.groups), before.deleted) == ({("a", "g"), ("a", "h")}, [])
    gone = contents([*told, records.deleted("a", None)])
    assert (set(gone.destinations), gone.groups, gone.deleted) == ({"b"}, {}, ["a"])
    anew = contents([*told, records.deleted("a", None), records.destination("a", Layout(3, 5))])
    assert anew.destinations["a"] == Layout(3, 5)
    assert anew.groups == {}
