"""A block to rows, without a detour through messages: its columns become Arrow's, its bodies stay as they lie. Pure."""

from bisect import bisect_left
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.engine.names import is_dead_letter
from bridge.mirror.rows import Rows
from bridge.mirror.schema import MESSAGE, SOURCE, TIME_MAX
from bridge.wire.log_block import Block

BACKEND: Final = "memory"
_MICROS: Final = 1000


def to_batch(block: Block, log: str, end: int) -> pa.RecordBatch:
    """Return the rows of a block below the offset `end`, of the columns `schema.SOURCE`."""
    count = bisect_left(block.offsets, end)
    try:
        return _whole(block, log).slice(0, count)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # a message that no reader of Parquet could show: `Rows` finds out which
        rows = Rows(BACKEND)
        for message, offset in zip(block.messages(destination_of(log)), block.offsets[:count], strict=False):
            rows.add(message, log, offset)
        return rows.take()


def destination_of(log: str) -> str:
    """Return the destination of a log, `<epoch>/<destination>/<partition>`."""
    return log.partition("/")[2].rpartition("/")[0]


def _whole(block: Block, log: str) -> pa.RecordBatch:
    count = len(block.offsets)
    destination = destination_of(log)
    bodies = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(block.starts), pa.py_buffer(block.bodies)])
    of_message = {column.name: _column(block, column.name, count) for column in MESSAGE if column.name != "body"}
    arrays = {
        "area": pa.repeat("dead-letters" if is_dead_letter(destination) else "data", count),
        "destination": pa.repeat(destination, count),
        **of_message,
        "body": bodies,
        "body_size": pc.binary_length(bodies).cast(pa.int64()),
        "backend": pa.repeat(BACKEND, count),
        "log": pa.repeat(log, count),
        "offset": pa.array(block.offsets, pa.int64()),
        "error": pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in SOURCE.names], schema=SOURCE)


def _column(block: Block, name: str, count: int) -> pa.Array:
    kind = SOURCE.field(name).type
    if name == "properties":
        return pa.array([list(each.items()) for each in block.properties], kind)
    values: list[Any] | None = block.columns.get(name)
    if values is None:
        return pa.nulls(count, kind)
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    millis = pa.array(values, pa.int64())
    if not pc.all(pc.less_equal(millis, TIME_MAX)).as_py():
        raise ValueError("a time that a Parquet file cannot hold")
    return pc.multiply(millis, _MICROS).cast(kind)
