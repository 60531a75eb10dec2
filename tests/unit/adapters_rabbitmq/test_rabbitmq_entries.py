"""What the entries of the catalogue come to, also where the stream has dropped the first of them."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.records import Contents, Group, encode

FEW = st.sampled_from(("a", "b", ""))
TEXT = st.text(st.characters(), max_size=4)
ENTRIES = st.one_of(
    st.builds(encode, st.just("destination"), FEW, st.integers(1, 1 << 20), st.integers(0, 1 << 62)),
    st.builds(encode, st.just("begun"), FEW, FEW),
    st.builds(encode, st.just("ready"), FEW, FEW, st.lists(st.integers(0, 9))),
    st.builds(encode, st.just("drained"), FEW, FEW, st.integers(0, 9)),
    st.builds(encode, st.just("deleted"), FEW),
    st.builds(encode, st.just("deleted"), FEW, FEW),
    st.builds(encode, st.sampled_from(("purged", "moved")), FEW, FEW | st.none(), st.integers(1, 9)),
    st.builds(encode, st.just("note"), st.sampled_from((None, "one")), FEW, TEXT | st.none()),
    st.builds(encode, st.sampled_from(("read", "transactions"))),
)


def contents(told: list[bytes], instance: str | None = "one") -> Contents:
    found = Contents(instance)
    assert all(found.read(offset, entry) for offset, entry in enumerate(told))
    return found


def state(found: Contents) -> object:
    return (
        *(found.destinations, found.groups, found.purges, found.moved, found.floor, found.transactions),
        found._metadata,
    )


@given(st.lists(ENTRIES))
def test_what_is_missing_in_an_empty_stream_comes_to_the_same(told: list[bytes]) -> None:
    """A set-up that was begun as well: its queues must be made anew."""
    first = contents(told)
    again = contents([entry for entry, _ in first.missing_in(Contents("one"))])
    assert (again.destinations, again.metadata, again.purges, again.moved, again.transactions) == (
        *(first.destinations, first.metadata, first.purges, first.moved, first.transactions),
    )
    assert again.groups == first.groups


@given(st.lists(ENTRIES), st.lists(ENTRIES))
def test_what_a_stream_has_lost_can_be_written_again(told: list[bytes], others: list[bytes]) -> None:
    """What another bridge has entered meanwhile stays."""
    before, read = contents(told), contents(others)
    after = contents([*others, *(entry for entry, _ in before.missing_in(read))])
    assert after.destinations == before.destinations | read.destinations
    assert after.metadata == before.metadata | read.metadata
    for counts, *others_counts in (
        (after.purges, before.purges, read.purges),
        (after.moved, before.moved, read.moved),
    ):
        expected = {pair: max(each.get(pair, 0) for each in others_counts) for each in others_counts for pair in each}
        # what is entered again counts from the floor of the other state, which a real one has reached before
        assert read.floor or counts == expected
        assert all(counts[pair] >= count for pair, count in expected.items())
    assert after.floor == max(before.floor, read.floor)
    assert after.transactions == (before.transactions or read.transactions)
    ready = [{pair for pair, group in each.groups.items() if group.ready} for each in (before, read, after)]
    assert ready[2] == ready[0] | ready[1]
    assert before.missing_in(after) == []


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
    assert late.read(7, encode("begun", "d", "g"))
    assert not late.complete
    late.accept_incomplete()
    assert late.complete
    assert late.groups == {("d", "g"): Group(begun=1)}
    assert late.read(8, b'["whole",6,[]]')
    assert late.groups == {("d", "g"): Group(begun=1)}, "it is complete, so a whole says nothing new"


def test_a_whole_of_another_stream_does_not_count() -> None:
    late = Contents(None)
    assert late.read(7, encode("begun", "d", "g"))
    assert late.read(8, b'["whole",9,[]]')
    assert not late.complete
    assert late.groups == {("d", "g"): Group(begun=1)}


def test_what_the_stream_grows_by_since_a_whole() -> None:
    found = contents([encode("begun", "d", "g")])
    first = found.bytes_since_snapshot
    assert first > len(encode("begun", "d", "g"))
    whole = found.snapshot(0)
    assert (found.bytes_since_snapshot, found.snapshot_bytes) == (0, 0)
    found.read(1, encode("begun", "d", "g"))
    assert found.bytes_since_snapshot == first
    found.read(2, whole)
    assert (found.bytes_since_snapshot, found.snapshot_bytes) == (0, len(whole))


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
        assert (found.destinations, found.groups, found.metadata) == ({}, {}, {})


def test_the_first_of_a_destination_counts() -> None:
    found = contents([encode("destination", "d", 8, 1), encode("destination", "d", 4, 0)])
    assert found.destinations == {"d": Layout(8, 1)}


def test_how_far_a_set_up_is() -> None:
    told = [encode("begun", "d", "g"), encode("begun", "d", "g")]
    assert contents(told).groups == {("d", "g"): Group(begun=2)}
    told.append(encode("ready", "d", "g", [1, 2]))
    assert contents(told).groups == {("d", "g"): Group(ready=True, history=(1, 2))}
    told.append(encode("ready", "d", "g", []))
    assert contents(told).groups == {("d", "g"): Group(ready=True)}


def number(found: Contents, group: str | None = None) -> int:
    """Return the number that a message gets which is delayed for the destination, or deferred for the group."""
    return found.purges.get(("a", None), 0) + (0 if group is None else found.purges.get(("a", group), 0))


MADE = [encode("destination", "a", 8, 0), encode("begun", "a", "g"), encode("ready", "a", "g", [])]


def test_the_highest_number_of_purges_counts() -> None:
    told = [encode("purged", "a", None, 2), encode("purged", "a", "g", 1), encode("purged", "a", None, 1)]
    assert contents([*MADE, *told]).purges == {("a", None): 2, ("a", "g"): 1}


def test_what_is_created_again_gets_no_number_of_before() -> None:
    """Messages that were delayed before may be due only in months."""
    told = [*MADE, encode("purged", "a", None, 2), encode("purged", "a", "g", 3), encode("purged", "a", "h", 1)]
    before = contents(told)
    assert (number(before), number(before, "g")) == (2, 5)
    group = contents([*told, encode("deleted", "a", "g"), encode("ready", "a", "g", [])])
    assert (number(group), number(group, "g")) == (2, 5)
    whole = contents([*told, encode("deleted", "a"), *MADE])
    assert (number(whole), number(whole, "g"), number(whole, "h")) == (5, 5, 5)
    assert whole.moved == whole.purges, "no earlier number is in use"
    gone = contents([*told, encode("deleted", "a")])
    again = contents([*told, encode("deleted", "a"), gone.snapshot(7), *MADE])
    assert state(again) == state(whole)


def test_purges_of_an_exchange_of_others_stay() -> None:
    told = [encode("ready", "a", "g", []), encode("purged", "a", None, 2), encode("purged", "a", "g", 1)]
    gone = contents([*told, encode("deleted", "a")])
    assert (gone.purges, gone.floor) == ({("a", None): 2}, 3)


def test_what_is_created_and_deleted_leaves_nothing() -> None:
    found = Contents(None)
    entries = (
        entry
        for each in range(3_000)
        for name in (f"orders.session-{each}", "orders")
        for entry in (
            *(encode("destination", name, 8, 1 << 30), encode("ready", name, f"g{each}", [])),
            *(encode("purged", name, None, each + 1), encode("moved", name, None, each + 1)),
            *(encode("purged", name, f"g{each}", 1), encode("deleted", name, f"g{each}"), encode("deleted", name)),
        )
    )
    for offset, entry in enumerate(entries):
        assert found.read(offset, entry)
    assert len(found.snapshot(0)) < 100


def test_a_full_catalogue_is_no_longer_full_after_deletions() -> None:
    found = contents([encode("destination", f"d{each}", 8, 0) for each in range(100)])
    found.read(100, found.snapshot(99))
    assert found.exceeds(2_000)
    for each in range(60):
        found.read(101 + each, encode("deleted", f"d{each}"))
    assert not found.exceeds(2_000)
    assert found.exceeds(500)


def test_notes_are_of_an_instance() -> None:
    told = [encode("note", "one", "k", "1"), encode("note", None, "k", "2"), encode("note", "two", "k", None)]
    assert [contents(told, instance).metadata for instance in ("one", None, "two")] == [{"k": "1"}, {"k": "2"}, {}]


def test_a_history_is_read_partition_by_partition() -> None:
    told = [encode("ready", "a", "b", [0, 2, 5]), encode("drained", "a", "b", 2), encode("drained", "b", "a", 5)]
    assert contents(told).groups["a", "b"] == Group(0, ready=True, history=(0, 5))


def test_what_is_deleted_can_be_claimed_anew() -> None:
    told = [
        encode("destination", "a", 2, 0),
        encode("ready", "a", "g", [0]),
        encode("ready", "a", "h", []),
        encode("destination", "b", 4, 0),
        encode("ready", "b", "g", []),
        encode("deleted", "b", "g"),
    ]
    before = contents(told)
    assert (set(before.groups), before.deleted) == ({("a", "g"), ("a", "h")}, [])
    gone = contents([*told, encode("deleted", "a")])
    assert (set(gone.destinations), gone.groups, gone.deleted) == ({"b"}, {}, ["a"])
    anew = contents([*told, encode("deleted", "a"), encode("destination", "a", 3, 5)])
    assert anew.destinations["a"] == Layout(3, 5)
    assert anew.groups == {}
