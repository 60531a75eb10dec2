from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mirror.manifest import File, Gap, Manifest
from bridge.mirror.sink.fold import Catalogue

A, B, C = (File(f"data/destination=d/date=2026-11-21/hour=07/{name}.parquet", 10, 100) for name in "abc")
FIRST = Manifest("q/000000000000", 1, {"log": (0, 10)}, adds=(A,))
SECOND = Manifest("q/000000000001", 2, {"log": (10, 20), "late": (5, 6)}, (Gap("log", 12, 14),), adds=(B,))
COMPACTED = Manifest("compact/0-a-b", 3, adds=(C._replace(rows=20),), removes=(A.path, B.path))


def folded(*manifests: Manifest, keep_files: bool = True) -> Catalogue:
    catalogue = Catalogue(keep_files=keep_files)
    for manifest in manifests:
        catalogue.add(manifest)
    return catalogue


@pytest.mark.parametrize("order", list(permutations([FIRST, SECOND, COMPACTED])))
def test_manifests_come_in_any_order(order: tuple[Manifest, ...]) -> None:
    catalogue = folded(*order)
    assert catalogue.files == {C.path: C._replace(rows=20)}
    assert catalogue.rows == 20
    assert catalogue.next == {"log": 20, "late": 6}
    assert catalogue.gaps == [Gap("log", 12, 14)]
    assert catalogue.batches == {"q": 1}
    assert catalogue.committed == 3


def test_a_manifest_told_twice_changes_nothing() -> None:
    catalogue = folded(FIRST, SECOND, COMPACTED, FIRST, SECOND, COMPACTED)
    assert set(catalogue.files) == {C.path}
    assert catalogue.gaps == [Gap("log", 12, 14)]


def test_a_file_that_is_gone_never_comes_back() -> None:
    pruned = Manifest("prune/1", 4, removes=(C.path,))
    assert folded(pruned, COMPACTED, FIRST, SECOND, COMPACTED).files == {}


def test_what_is_missing_of_a_query() -> None:
    catalogue = folded(FIRST, SECOND._replace(key="q/000000000003"))
    assert catalogue.missing("q", 3) == [1, 2]
    assert catalogue.missing("q", 5) == [1, 2, 4, 5]
    assert catalogue.missing("q", 0) == []
    assert catalogue.missing("another", 1) == [0, 1]
    assert len(catalogue.missing("another", 10**9)) == 10


@pytest.mark.parametrize(
    ("asked", "overlaps"),
    [((20, 30), False), ((19, 30), True), ((0, 1), True), ((3, 3), False), ((12, 13), True), ((0, 100), True)],
)
def test_overlap(asked: tuple[int, int], overlaps: bool) -> None:
    catalogue = folded(FIRST, SECOND)
    assert catalogue.overlap({"log": asked, "unknown": asked}) == ({"log": asked} if overlaps else {})


def test_an_empty_range_covers_nothing() -> None:
    assert folded(FIRST._replace(ranges={"log": (7, 7)})).next == {}


_PATHS = st.sampled_from([A, B, C])
_MANIFESTS = st.builds(
    Manifest,
    st.one_of(
        st.builds("q{}/{:012d}".format, st.integers(0, 1), st.integers(0, 5)),
        st.builds("compact/{}".format, st.integers(0, 5)),
    ),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from("xy"), st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple)),
    st.lists(st.builds(Gap, st.just("x"), st.integers(0, 3), st.none() | st.integers(4, 9)), max_size=1).map(tuple),
    st.just(()),
    st.lists(_PATHS.map(lambda file: file.path), max_size=2, unique=True).map(tuple),
)


@given(st.lists(_MANIFESTS, max_size=6, unique_by=lambda manifest: manifest.key), st.integers(0, 6))
def test_a_snapshot_in_between_is_not_seen(manifests: list[Manifest], at: int) -> None:
    told = [manifest._replace(adds=(file,)) for manifest, file in zip(manifests, [A, B, C], strict=False)]
    told += manifests[3:]
    before = folded(*told[:at])
    again = Catalogue.from_json(before.to_json([manifest.key for manifest in told]))
    for manifest in told:  # those that are folded already are told once more
        again.add(manifest)
    assert again.to_json([m.key for m in told]) == folded(*told).to_json([m.key for m in told])


def test_without_files_it_knows_all_the_rest() -> None:
    text = folded(FIRST, SECOND, COMPACTED).to_json([])
    for light in (Catalogue.from_json(text, keep_files=False), folded(FIRST, SECOND, COMPACTED, keep_files=False)):
        assert light.files == {}
        assert light.next == {"log": 20, "late": 6}
        assert SECOND.key in light


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', "null", '{"version": 1}'])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Catalogue.from_json(text)
