import pytest

from bridge.mirror.manifest import File, Gap, Manifest, from_json, to_json

WHOLE = Manifest(
    "q/000000000007",
    1_790_000_000_000,
    {"b/0": (3, 9), "a/0": (0, 1)},
    (Gap("b/0", 3, 5), Gap("c/0", 7, None)),
    (File("data/destination=ü%3A/date=2026-11-21/hour=07/x.parquet", 5, 1000),),
    ("data/gone.parquet",),
)


def test_there_and_back() -> None:
    assert from_json(to_json(WHOLE)) == WHOLE
    assert from_json(to_json(Manifest("prune/1", 0))) == Manifest("prune/1", 0)


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[]", "null", '"x"', '{"version": 2}', '{"version": 1}', to_json(WHOLE)[:-20]]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no manifest"):
        from_json(to_json(WHOLE).replace('"key"', '"quay"'))
