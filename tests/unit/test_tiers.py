"""Shards, order and allowed skips, on tables of their own."""

from itertools import chain
from pathlib import Path

import pytest

from tests.tiers import SKIPS_FILE, read_skips, shard, slowest_first, unexpected

SECONDS = {"slow.py": 100.0, "middle.py": 60.0, "other.py": 50.0, "quick.py": 1.0}
FILES = [*SECONDS, "new.py"]


def test_slow_files_start_first_and_equal_ones_have_one_order() -> None:
    assert slowest_first(FILES, SECONDS) == ["slow.py", "middle.py", "other.py", "new.py", "quick.py"]
    assert slowest_first(["b.py", "a.py"], {}) == ["a.py", "b.py"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_file_is_in_exactly_one_shard(count: int) -> None:
    shards = [shard(FILES, SECONDS, f"{number}/{count}") for number in range(1, count + 1)]
    assert sorted(chain.from_iterable(shards)) == sorted(FILES)


def test_shards_take_about_the_same_time() -> None:
    assert shard(FILES, SECONDS, "1/2") == {"slow.py", "new.py", "quick.py"}  # 111 s
    assert shard(FILES, SECONDS, "2/2") == {"middle.py", "other.py"}  # 110 s


@pytest.mark.parametrize("wanted", ["", "0/3", "4/3", "1/0", "2", "a/b", "1/3/3", "-1/3"])
def test_a_shard_that_does_not_exist_is_refused(wanted: str) -> None:
    with pytest.raises(ValueError, match="a shard is number/count"):
        shard(FILES, SECONDS, wanted)


def test_a_skip_needs_its_test_and_its_reason_in_the_list() -> None:
    allowed = read_skips(
        '[[skip]]\ntest = "tests/a.py::test_x[*]"\nreason = "needs * here"\n'
        '[[skip]]\ntest = "tests/b.py::*"\nreason = "no *"\n'
    )
    skipped = [
        ("tests/a.py::test_x[granian]", "needs much here"),
        ("tests/a.py::test_x[granian]", "needs much there"),
        ("tests/a.py::test_y[granian]", "needs much here"),
        ("tests/b.py::test_y", "no broker"),
    ]
    assert unexpected(skipped, allowed) == skipped[1:3]


def test_each_allowed_skip_has_a_reason_that_a_test_gives() -> None:
    for row in read_skips(SKIPS_FILE.read_text("utf-8")):
        assert row.test.startswith("tests/")
        reason = row.reason.strip("*")
        assert reason, f"{row.test}: any reason would do"
        folder = SKIPS_FILE.parent.parent / Path(row.test.partition("::")[0]).parent
        assert any(reason in file.read_text("utf-8") for file in folder.glob("*.py")), f"{row.test}: no {reason!r}"
