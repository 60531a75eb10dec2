"""The in-memory backend as a source: the logs of one bridge, read over HTTP, block by block."""

import json
import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.datasource import ReadLimit

from bridge.engine.destination_names import is_dead_letter
from bridge.errors import BackendUnavailable, CannotStart, DestinationUnknown, NotFound
from bridge.mirror.json_text import json_text
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.schema import MESSAGE, SOURCE, TIME_MAX, TIMES, Rows
from bridge.mirror.sources import ranges
from bridge.mirror.sources.range_source import RangeDataSource, RangeReader, ReaderOptions, Source, Splits
from bridge.settings.values import authorization
from bridge.wire import log_block
from bridge.wire.log_block import Block

_PATIENCE: Final = (0.2, 0.5, 1, 2, 4, 8, 8, 8)
"""Seconds before each further attempt of a task: a bridge that is started again is back within them."""
_TIMEOUT: Final = 30.0
_BLOCK: Final = 2000
"""Messages of one block that are asked for; a bridge sends fewer if they are large."""
_PASSING: Final = frozenset((429, *range(500, 600)))
"""The statuses of trouble that may pass: of the bridge, or with the memory that it has for this client."""
BACKEND: Final = "memory"


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
    count, destination = len(block.offsets), destination_of(log)
    bodies = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(block.starts), pa.py_buffer(block.bodies)])
    columns: dict[str, Any] = dict.fromkeys((column.name for column in MESSAGE), pa.nulls(count)) | block.columns
    columns |= {name: _micros(block.columns[name]) for name in TIMES if name in block.columns}
    columns |= {
        "area": pa.repeat("dead-letters" if is_dead_letter(destination) else "data", count),
        "destination": pa.repeat(destination, count),
        "properties": [list(each.items()) for each in block.properties],
        "body": bodies,
        "body_size": pc.binary_length(bodies),
        "backend": pa.repeat(BACKEND, count),
        "log": pa.repeat(log, count),
        "offset": block.offsets,
        "error": pa.nulls(count),
        "gap_end": pa.nulls(count),
        "json": pa.nulls(count),
    }
    if media_types := block.columns.get("content_type"):
        columns["json"] = list(map(json_text, media_types, bodies.to_pylist()))
    return pa.RecordBatch.from_pydict(columns, schema=SOURCE)


def _micros(values: list[Any]) -> pa.Array:
    millis = pa.array(values, pa.int64())
    if not pc.all(pc.less_equal(millis, TIME_MAX)).as_py():
        raise ValueError("a time that a Parquet file cannot hold")
    return pc.multiply(millis, 1000)


class _MemoryReader(RangeReader):
    """See `RangeReader`. Reads what one bridge keeps. Raises `CannotStart` for a URL that is no bridge's."""

    backend = BACKEND
    lost_unread = True  # without a journal, a bridge that restarts has lost what it stored since the last look

    def __init__(self, ask: ReaderOptions) -> None:
        super().__init__(ask)
        url = ask.options.bridge
        try:
            parts = urlsplit(url)
            self._place = (parts.hostname or "", parts.port)
        except ValueError:
            parts, self._place = urlsplit(""), ("", None)
        if parts.scheme not in {"http", "https"} or not self._place[0] or parts.path not in {"", "/"}:
            raise CannotStart(f"bridge: {url!r} is not the address of a bridge, as in http://127.0.0.1:8080.")
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection: HTTPConnection | None = None
        self._most = _BLOCK
        """Messages to ask for: half of it after each failure, as the bridge may not have the memory for more."""

    def bounds(self) -> Ranges:
        logs = json.loads(self._get("/v1/logs", {}))["logs"]
        return {log: (first, end) for log, (first, end) in logs.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """See `RangeReader`. Raises `CannotStart` if the bridge has gone back."""
        after = super().latestOffset(start, limit)
        for log, place in ranges.from_json(start).items():
            _, end = self.seen.get(log, (0, place.next))
            if end < place.next:
                raise CannotStart(
                    f"The bridge runs on an older copy of its journal: {log} ends at {end} and was mirrored up to"
                    f" {place.next}, so offsets are assigned twice. Use a newer copy, or another folder for the mirror."
                )
        return after

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        for log, start, end in given.splits:
            at = start
            while at < end:
                block = self._block(log, at, end - at)
                if block is None or block.next <= at:
                    yield Gap(log, at, end)
                    break
                yield from (Gap(log, first, min(stop, end)) for first, stop in block.dropped if first < end)
                if block.offsets and block.offsets[0] < end:
                    yield to_batch(block, log, end)
                at = block.next

    def destination_of(self, log: str, given: Splits) -> str:  # noqa: ARG002 - the name says it
        return destination_of(log)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _block(self, log: str, start: int, limit: int) -> Block | None:
        """Read from an offset on, waiting for a bridge that is away; None: there is no such log any more.

        Raises `BackendUnavailable` after half a minute, and `CannotStart`.
        """
        pauses = iter(_PATIENCE)
        while True:
            headers = {"x-oms-log": log, "x-oms-offset": str(start), "x-oms-maxmessages": str(min(limit, self._most))}
            try:
                block = log_block.decode(self._get("/v1/log", headers))
            except DestinationUnknown:
                return None
            except BackendUnavailable:
                if (pause := next(pauses, None)) is None:
                    raise
                time.sleep(pause)
                self._most = max(1, self._most // 2)
            else:
                self._most = min(2 * self._most, _BLOCK)
                return block

    def _get(self, path: str, headers: dict[str, str]) -> bytes:
        if self._connection is None:
            self._connection = self._kind(*self._place, timeout=_TIMEOUT)
        try:
            token = authorization(os.environ)  # the file may have been replaced
        except ValueError as error:
            raise CannotStart(f"bridge: {error}.") from None
        try:
            self._connection.request("GET", path, headers={"x-oms-version": "1.0.0", **token, **headers})
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            self.stop()
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached: {error!r}.") from None
        if answer.status == 200:  # noqa: PLR2004 - the one answer that is none of the error tree
            return body
        raise self._refused(answer.status, answer.headers.get("x-oms-error"), body)

    def _refused(self, status: int, code: str | None, body: bytes) -> Exception:
        if code == DestinationUnknown.code:
            return DestinationUnknown("there is no such log")
        if status in _PASSING:
            return BackendUnavailable(f"The bridge at {self._url} answers {status} {code or ''}".rstrip() + ".")
        if code == NotFound.code:
            return CannotStart(
                f"bridge: {self._url} has no /v1/log: its backend is not memory, or its version is older."
            )
        shown = body[:200].decode("utf-8", "replace")
        return CannotStart(f"bridge: {self._url} answers {status} to the mirror: {shown}")


class _MemoryData(RangeDataSource):
    reads = _MemoryReader


class MemorySource(Source):
    """A bridge without a journal begins a new epoch with each start: unread messages of the old one are lost."""

    data = _MemoryData
