"""What Python reads of the mirror's tables."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Record, to_json
from bridge.mirror.table import MESSAGES, NAMES, Commit, Day, Table, create

FIRST = Record("q", 0, 5, {"orders/0": (0, 4), "orders/1": (3, 9)}, (Gap("orders/0", 1, 2),))


def write(out: str, day: str, metadata: str) -> None:
    rows = pa.table({"destination": ["b", "a"], "offset": [1, 2], "date": [day] * 2})
    properties = CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(f"{out}/{MESSAGES}", rows, partition_by=["date"], mode="append", commit_properties=properties)


def test_a_table_tells_its_files_commits_and_offsets(tmp_path: Path) -> None:
    out = str(tmp_path / "a b é")
    with pytest.raises(CannotStart, match="There is no mirror in"):
        Table.require(out)
    write(out, "2026-11-22", to_json(FIRST))
    write(out, "2026-11-23", "of another program")
    table = Table.require((tmp_path / "a b é").as_uri())
    assert table.delta.version() == 1
    assert [type(commit) for commit in table.commits()] == [Commit, Commit]
    assert [commit.record for commit in table.commits()] == [None, FIRST]
    assert table.record() == FIRST
    late, early = table.files()
    assert (early.rows, early.day) == (2, Day(MESSAGES, "2026-11-22"))
    assert late.day.date == "2026-11-23"
    (first, _), (second, files) = table.days().items()
    assert (first.path, second.path) == (f"{MESSAGES}/date=2026-11-22", f"{MESSAGES}/date=2026-11-23")
    assert files == [late]
    assert table.dataset().count_rows() == 4


def test_a_new_table_has_the_checksum_file_of_what_it_is(tmp_path: Path) -> None:
    create(str(tmp_path / "a b é"))
    for log in (tmp_path / "a b é" / name / "_delta_log" for name in NAMES):
        checksum = json.loads((log / f"{0:020d}.crc").read_text("utf-8"))
        [metadata, protocol] = [
            action[name]
            for name in ("metaData", "protocol")
            for action in map(json.loads, (log / f"{0:020d}.json").read_text("utf-8").splitlines())
            if name in action
        ]
        assert (checksum.pop("metadata"), checksum.pop("protocol")) == (metadata, protocol)
        counts = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
        assert checksum == counts | {"setTransactions": [], "domainMetadata": [], "allFiles": []}


def test_no_checksum_file_calls_a_table_with_rows_empty(tmp_path: Path) -> None:
    for day in "2026-11-22", "2026-11-23":
        write(str(tmp_path), day, to_json(FIRST))
        create(str(tmp_path))
        assert not [*(tmp_path / MESSAGES / "_delta_log").glob("*.crc")]


def test_a_table_with_commits_is_left_as_it_is(tmp_path: Path) -> None:
    """Its first version may be gone: Delta drops old versions."""
    create(str(tmp_path))
    checksum = tmp_path / MESSAGES / "_delta_log" / f"{0:020d}.crc"
    checksum.unlink()
    Table.require(str(tmp_path)).delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 8 days"})
    create(str(tmp_path))
    assert not checksum.exists()


def test_a_day_has_ended_at_midnight() -> None:
    day, midnight = Day(MESSAGES, "2026-11-22"), datetime(2026, 11, 23, tzinfo=UTC)
    assert day.ended(midnight)
    assert not day.ended(midnight - timedelta(microseconds=1))
    assert not day.ended(midnight.astimezone(timezone(timedelta(hours=-9))) - timedelta(hours=1))
    assert not day._replace(date="9999-12-31").ended(midnight)


def test_a_table_is_read_as_it_was(tmp_path: Path) -> None:
    write(str(tmp_path), "2026-11-22", to_json(FIRST))
    write(str(tmp_path), "2026-11-23", "")
    assert Table.require(str(tmp_path), as_of=0).dataset().count_rows() == 2
    with pytest.raises(CannotStart, match="has no version of 7"):
        Table.require(str(tmp_path), as_of=7)
    with pytest.raises(CannotStart, match="has no version of 100000000000000000000"):
        Table.require(str(tmp_path), as_of=10**20)
    old, new = Table.require(str(tmp_path), as_of=0), Table.require(str(tmp_path))
    assert (old.delta.version(), old.time) == (0, new.delta.history()[1]["timestamp"])


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="There is no mirror in"):
        Table.require(str(tmp_path))
    with pytest.raises(CannotStart, match="holds %"):
        Table.require(f"{tmp_path}/a%")
    write(str(tmp_path), "2026-11-22", to_json(FIRST).replace('"oms-mirror":1', '"oms-mirror":2'))
    with pytest.raises(CannotStart, match=r"Version 0 .* later version of the mirror"):
        Table.require(str(tmp_path)).record()
