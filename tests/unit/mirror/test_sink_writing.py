"""What a task writes: each row once, in the folder where Spark would put it, with the columns in their order."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyarrow import parquet

from bridge.message import Message
from bridge.mirror.rows import Rows
from bridge.mirror.schema import ARROW, FILE
from bridge.mirror.sink import writing
from bridge.mirror.sink.writing import escape, write

HOUR = {"date": "2026-11-21", "hour": "07"}


def batches(names: list[str], *, each: int = 10) -> Iterator[pa.RecordBatch]:
    """What the sink hands to a task: rows of a source with the sink's own columns."""
    for first in range(0, len(names), each):
        rows = Rows("memory")
        for offset, name in enumerate(names[first : first + each], first):
            rows.add(Message(name, b"%d" % offset, {"a": "b"}, f"id-{offset}", store_timestamp=1), "log", offset)
        batch = rows.take()
        stamped = pa.Table.from_batches([batch])
        for name, value, kind in (
            *((name, value, pa.string()) for name, value in HOUR.items()),
            ("mirrored_timestamp", 5, ARROW["timestamp"]),
            ("schema_version", 1, pa.int32()),
        ):
            stamped = stamped.append_column(name, pa.array([value] * len(batch), kind))
        yield from stamped.to_batches()


def written(folder: Path, names: list[str]) -> list[dict[str, object]]:
    found = [row for batch in write(str(folder), "n", batches(names)) for row in batch.to_pylist()]
    assert {file["path"] for file in found} == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }
    assert all((folder / file["path"]).stat().st_size == file["bytes"] for file in found)
    return found


def test_each_row_is_in_the_folder_of_its_own_and_in_order(tmp_path: Path) -> None:
    names = [("orders", "bills", "orders.dlq")[number % 3] for number in range(35)]
    found = written(tmp_path, names)
    assert [file["rows"] for file in found] == [names.count(name) for name in ("orders", "bills", "orders.dlq")]
    for name, file in zip(("orders", "bills", "orders.dlq"), found, strict=True):
        area = "dead-letters" if name.endswith(".dlq") else "data"
        path = Path(str(file["path"]))
        assert str(path.parent) == f"area={area}/destination={name}/date=2026-11-21/hour=07"
        table = parquet.read_table(tmp_path / path, partitioning=None)
        assert table.column_names == [column.name for column in FILE]
        assert table.schema.types == [ARROW[column.kind] for column in FILE]
        assert table["offset"].to_pylist() == [number for number, other in enumerate(names) if other == name]
        assert table["body"].to_pylist() == [b"%d" % number for number, other in enumerate(names) if other == name]
        assert parquet.read_metadata(tmp_path / path).row_group(0).column(0).compression == "ZSTD"


def test_a_task_writes_before_it_holds_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "HELD_BYTES", 1)
    found = written(tmp_path, ["orders"] * 25)
    assert [file["rows"] for file in found] == [10, 10, 5]
    assert len({file["path"] for file in found}) == 3


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(tmp_path, []) == []


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("a.b_c-d", "a.b_c-d"),
        ("a/b:c*", "a%2Fb%3Ac%2A"),
        ("50%", "50%25"),
        ("ünï c", "ünï c"),
        ("a\nb\x7f", "a%0Ab%7F"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_names_of_folders(name: str | None, folder: str) -> None:
    assert escape(name) == folder
    if name:
        assert unquote(folder) == name
        assert os.sep not in folder
