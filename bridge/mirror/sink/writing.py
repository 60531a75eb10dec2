"""Parquet files written by the tasks themselves, with pyarrow: for a disk that the tasks and the driver share.

Spark's own writer takes 7 to 20 ms to open and close a file, wherever it is, and a batch of 1,000 destinations has
1,000 files.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark import TaskContext

from bridge.mirror.schema import ARROW, FILE, PATH

WRITTEN: Final = pa.schema([("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
WRITTEN_DDL: Final = "path string, rows bigint, bytes bigint"
REPEATING: Final = ("backend", "log", "born_host", "store_host", "content_type", "error", "compression")
"""Columns worth a dictionary; it is waste on bodies and ids."""
HELD_BYTES: Final = 64 << 20
"""What a task gathers before it writes: fewer files, and a bound for its memory."""
_KEYS: Final = ("area", *PATH)
_SCHEMA: Final = pa.schema([pa.field(column.name, ARROW[column.kind]) for column in FILE])
_ROW_GROUP: Final = 64 << 10
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(1, 32)))
"""What Spark escapes in the name of a folder."""
_NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"


def write(folder: str, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write what one task gets under `folder`, and yield the files, of the columns `WRITTEN`."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    held: list[pa.RecordBatch] = []
    size = number = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= HELD_BYTES:
            yield _write(Path(folder), f"{name}-{attempt}-{number}", held)
            held, size, number = [], 0, number + 1
    if held:
        yield _write(Path(folder), f"{name}-{attempt}-{number}", held)


def escape(value: str | None) -> str:
    """Return a value as Spark writes it into a folder's name."""
    if not value:
        return _NOTHING
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in value)


def _write(folder: Path, name: str, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    files = []
    for keys, rows in _sorted(pa.Table.from_batches(batches)):
        path = "/".join(f"{key}={escape(value)}" for key, value in keys.items()) + f"/{name}.parquet"
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(
            rows,
            place,
            row_group_size=_ROW_GROUP,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(REPEATING),
        )
        files.append({"path": path, "rows": rows.num_rows, "bytes": place.stat().st_size})
    return pa.RecordBatch.from_pylist(files, WRITTEN)


def _sorted(table: pa.Table) -> Iterator[tuple[Mapping[str, str | None], pa.Table]]:
    """Yield the rows of each folder, in the order in which they came."""
    codes = [pc.dictionary_encode(table[key].combine_chunks(), null_encoding="encode") for key in _KEYS]
    order = np.lexsort([code.indices.to_numpy() for code in reversed(codes)])
    columns = [code.indices.to_numpy()[order] for code in codes]
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    table = table.select(_SCHEMA.names).cast(_SCHEMA)
    if len(edges) > 2:  # noqa: PLR2004 - more than one folder
        table = table.take(pa.array(order))
    for start, end in pairwise(edges):
        keys = {
            key: code.dictionary[int(column[start])].as_py()
            for key, code, column in zip(_KEYS, codes, columns, strict=True)
        }
        yield keys, table.slice(start, end - start)
