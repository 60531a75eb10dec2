"""What is compacted together, and what goes; whether a claim is a dead one's."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import CannotStart
from bridge.mirror.amounts import DURATION, SIZE
from bridge.mirror.manifest import File
from bridge.mirror.upkeep import claim
from bridge.mirror.upkeep.folders import by_folder, folder
from bridge.mirror.upkeep.plan import FILES_AT_ONCE, Work, plan, without
from bridge.mirror.upkeep.prune import Rule, due

NOW: Final = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


def file(name: str, size: int = 10, place: str = "destination=orders/date=2026-11-21/hour=07") -> File:
    area = "" if place.startswith(("dead-letters/", "quarantine/")) else "data/"
    return File(f"{area}{place}/{name}.parquet", 1, size)


def planned(files: Sequence[File], target: int = 100, closed: datetime = NOW) -> list[Work]:
    return list(plan(files, closed, target))


def test_a_path_is_read_as_it_was_written() -> None:
    found = folder("quarantine/destination=a%2Fb c/date=2026-11-21/hour=23/x.parquet")

    assert found.path == "quarantine/destination=a%2Fb c/date=2026-11-21/hour=23"
    assert (found.area, found.destination, found.end) == ("quarantine", "a/b c", datetime(2026, 11, 22, tzinfo=UTC))


@pytest.mark.parametrize("path", ["x", "data/x.parquet", "data/a/b/c/x.parquet", "data/destination=o/date=x/hour=1/y"])
def test_a_path_of_others_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no file of a mirror"):
        folder(path)


def test_an_hour_with_one_file_or_that_is_not_over_is_left() -> None:
    assert planned([file("a")]) == []
    assert planned([file("a"), file("b")], closed=datetime(2026, 11, 21, 7, 59, tzinfo=UTC)) == []
    assert len(planned([file("a"), file("b")], closed=datetime(2026, 11, 21, 8, tzinfo=UTC))) == 1


def test_what_a_compaction_has_filled_is_left_and_what_it_has_not_is_filled() -> None:
    full, small = file("compact-1", 50), file("compact-2", 49)

    assert planned([full, small]) == []
    assert planned([full, small, file("late")])[0].files == [small, file("late")]
    assert planned([full, file("late")]) == []


def test_small_folders_go_together_and_areas_do_not() -> None:
    places = [f"{area}destination={name}/date=2026-11-21/hour=07" for area in ("", "dead-letters/") for name in "abc"]
    works = planned([file(name, 15, place) for place in places for name in ("1", "2")])

    assert [[found.area for found in work.inputs] for work in works] == [["data"] * 3, ["dead-letters"] * 3]
    assert [len(work.inputs) for work in planned([file(n, 20, place) for place in places for n in "12"])] == [
        2,
        1,
        2,
        1,
    ]


def test_a_large_folder_is_alone_with_as_many_files_as_it_needs() -> None:
    works = planned([file("a", 120), file("b", 81), file("c", 1, "destination=x/date=2026-11-21/hour=07")])

    assert [(len(work.inputs), work.outputs) for work in works] == [(1, 3)]


def test_one_change_replaces_so_many_files_at_most() -> None:
    places = [f"destination={name}/date=2026-11-21/hour=07" for name in range(3)]
    half = FILES_AT_ONCE // 2
    works = planned([file(str(n), 1, place) for place in places for n in range(half)], target=1 << 30)

    assert [len(work.files) for work in works] == [FILES_AT_ONCE, half]


@given(st.lists(st.integers(1, 300), min_size=2, max_size=30), st.integers(50, 100))
def test_compacting_comes_to_an_end(sizes: list[int], shrunk: int) -> None:
    files = [file(f"q-{n}", size) for n, size in enumerate(sizes)]
    for number in range(10):
        works = planned(files)
        if not works:
            return
        for work in works:
            size = sum(found.bytes for found in work.files) * shrunk // 100 // work.outputs
            added = [file(f"compact-{number}-{n}", size) for n in range(work.outputs)]
            files = [found for found in files if found not in work.files] + added
    pytest.fail("it goes on for ever")


def test_a_folder_of_which_one_file_is_left_is_no_work() -> None:
    (work,) = planned([file("a"), file("b"), file("c")])

    assert without(work, ["data/destination=orders/date=2026-11-21/hour=07/a.parquet"]).files == [file("b"), file("c")]
    assert not without(work, [found.path for found in work.files[:2]]).inputs


def going(rule: Rule) -> list[str]:
    hours = {
        "data/destination=orders/date=2026-11-20/hour=11",
        "data/destination=orders/date=2026-11-20/hour=12",
        "data/destination=bills/date=2026-11-19/hour=00",
        "data/destination=orders/date=2026-11-21/hour=01",
        "dead-letters/destination=orders.dlq/date=2026-11-01/hour=00",
    }
    return [
        found.path.split("/", 1)[-1] for found in due([File(f"{hour}/x.parquet", 1, 1) for hour in hours], rule, NOW)
    ]


def test_whole_hours_go_that_are_over_for_as_long_as_is_kept() -> None:
    assert going(Rule(timedelta(days=1), areas=["data"])) == [
        "destination=bills/date=2026-11-19/hour=00",
        "destination=orders/date=2026-11-20/hour=11",
    ]
    assert going(Rule(timedelta(days=20))) == ["destination=orders.dlq/date=2026-11-01/hour=00"]
    assert going(Rule(timedelta(days=1), destinations=["bills"])) == ["destination=bills/date=2026-11-19/hour=00"]
    assert going(Rule(timedelta(days=1), areas=["quarantine"])) == []


def test_the_current_day_goes_only_when_it_is_named() -> None:
    today = "destination=orders/date=2026-11-21/hour=01"

    assert today not in going(Rule(timedelta(0)))
    assert today in going(Rule(timedelta(0), today=True))
    assert today not in going(Rule(timedelta(hours=11), today=True))


def test_folders_come_in_the_order_of_their_hours() -> None:
    files = [file("x", 1, f"destination={name}/date=2026-11-{day}/hour=00") for name, day in ("a9", "b8", "c7")]
    assert [found.destination for found in by_folder(files)] == ["c", "b", "a"]


@pytest.mark.parametrize(("text", "hours"), [("30d", 720), ("12h", 12), ("0h", 0)])
def test_a_duration(text: str, hours: int) -> None:
    assert DURATION.convert(text, None, None) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5d", "30m", "9999999d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write days or hours"):
        DURATION.convert(text, None, None)


def test_a_size() -> None:
    assert (SIZE.convert("256MB", None, None), SIZE.convert("1GB", None, None)) == (256 << 20, 1 << 30)
    for wrong in ("0MB", "256", "1TB", "-1MB"):
        with pytest.raises(click.BadParameter, match="write 256MB or 1GB"):
            SIZE.convert(wrong, None, None)


def test_who_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    host, here = socket.gethostname(), claim._place()

    assert not claim._dead(claim.Owner(host, os.getpid(), here, 0.0), claim.LEASE)
    assert claim._dead(claim.Owner(host, os.getpid(), here, 0.0), claim.LEASE + 1)
    assert claim._dead(claim.Owner(host, ended.pid, here, 0.0), 1)
    assert not claim._dead(claim.Owner(host, ended.pid, "another namespace", 0.0), 1)


def test_a_claim_that_cannot_be_read_is_not_passed_over() -> None:
    for text in ("", "{}", json.dumps({"host": "x"})):
        with pytest.raises(CannotStart, match="delete it"):
            claim._owner(text, "upkeep/x.json")
