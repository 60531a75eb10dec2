"""A source that is written in Python: everything that Spark and the job ask, over four methods of each backend.

Spark makes one reader in a separate process to plan with, and one in each task to read with, and it kills the query
for any exception. So while a backend cannot be reached there is nothing new; a task waits in `read_splits` for as long
as it thinks fit, and then raises `BackendUnavailable`, which `outage` recognizes on the other side.

Promises of all sources:

- A range of offsets once planned gives the same rows again after any restart.
- Nothing that a producer writes stops the job: what cannot be read is a row in quarantine (`Rows`).
"""
# ruff: noqa: N802 - the names are Spark's

import json
import re
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bridge.errors import BackendUnavailable
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.schema import SOURCE_DDL, Rows
from bridge.mirror.sources import ranges
from bridge.mirror.sources.ranges import Position, Split

_PAUSE: Final = 1.0
"""Seconds without asking after the first time a backend could not be reached; twice as long each further time."""
_LONGEST_PAUSE: Final = 30.0
_OPTION: Final = "secret"
"""It holds the backend's URL; Spark shows the value of no option whose name says that it is one."""
LAST_ERROR: Final = "last_error"
"""Key in the latest offset that is reported; no log has this name."""
BUSY: Final = "Python worker failed to connect back"
"""What Spark says when a new planner is not there within 10 s: seen on two cores with a load of 20."""
_MARK: Final = re.compile(r"^(?:[\w.]+\.)?(DataLost|BackendUnavailable|CannotStart): (.*)$", re.MULTILINE)


OnDataLoss = Literal["fail", "record"]


class Options(NamedTuple):
    """How a mirror is run."""

    backend: str
    """URL of the backend, as for `serve`."""
    out: str
    """Any path that Spark can write: `/srv/mirror`, `s3a://…`."""
    bridge: str = "http://127.0.0.1:8080"
    """Where the bridge is whose memory is read; for `memory://` only."""
    checkpoint: str | None = None
    """None: `<out>/checkpoint`."""
    on_data_loss: OnDataLoss = "fail"
    """What to do when offsets are gone before they were read: stop and say so, or record the gap and go on."""
    rows: int = 200_000
    """At most so many rows a batch (> 0)."""
    every: float = 10.0
    """Seconds from one batch to the next while there is something to do."""
    resume: bool = False
    """Whether to begin a new checkpoint where the last commit ends: the way out where the old checkpoint is lost."""
    export: bool = False
    """Whether to export closed hours as plain Parquet while the job runs."""
    conf: tuple[str, ...] = ()
    """Settings of Spark, each `key=value`."""


class DataLost(Exception):
    """Offsets are gone before they were read, and the options say to stop then."""


class ReaderOptions(NamedTuple):
    """Options of a reader."""

    options: Options
    start: Mapping[str, int]
    """See `Source.rows`."""
    tasks: int
    """At most so many at one time."""

    def to_options(self) -> dict[str, str]:
        """Write it as options of a Spark source: strings."""
        return {_OPTION: json.dumps([self.options._asdict(), dict(self.start), self.tasks])}

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> "ReaderOptions":
        """Read what `to_options` wrote."""
        options, start, tasks = json.loads(given[_OPTION])
        return cls(Options(**options | {"conf": tuple(options["conf"])}), start, tasks)


class Splits(InputPartition):
    """What one task reads."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs by ranges of offsets. It travels to tasks: connections are opened when they are needed."""

    backend: str
    """Name for the column of that name."""
    lost_unread: ClassVar[bool] = False
    """Whether a log that is gone is a gap even if it was read to the end that was last seen."""

    def __init__(self, ask: ReaderOptions) -> None:
        self._ask = ask
        self._target: Ranges | None = None
        self.seen: Ranges = {}
        """What `bounds` said when it was last asked."""
        self._last_error: str | None = None
        self._pause = 0.0
        self._retry_at = 0.0

    @abstractmethod
    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log there is, never too high: all, or none.

        A log that is not among them is taken for gone. Raises `BackendUnavailable`.
        """

    @abstractmethod
    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        """Yield the messages of a task, the same each time, and a gap for what was dropped since it was planned.

        Raises `BackendUnavailable` after some attempts.
        """

    @abstractmethod
    def destination_of(self, log: str, given: Splits) -> str:
        """Return the destination of a log that a task reads."""

    @abstractmethod
    def stop(self) -> None:
        """Close every connection. Called at the end of a task; of a planner only now and then."""

    # What Spark asks of the planner

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch: Spark calls this more than once."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one batch may cover."""
        return ReadMaxRows(self._ask.options.rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where to stop. Raises `BackendUnavailable`: nothing to do would be said to be all done."""
        self._target = self.bounds()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan the next batch; `start` again where there is nothing new. Raises `DataLost`."""
        bounds = self._bounds()
        if bounds is None:
            return start
        self.seen = bounds
        if self._target is not None:
            bounds = ranges.capped(bounds, self._target)
        before = ranges.from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        after = ranges.plan(before, bounds, self._ask.start, most, lost_unread=self.lost_unread)
        losses = ranges.gaps(before, after)
        if losses and self._ask.options.on_data_loss == "fail":
            raise DataLost(ranges.describe(losses))
        return ranges.to_json(after)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of all logs at the last look, in the form of an offset."""
        seen = ranges.to_json({log: Position(first, end, end) for log, (first, end) in self.seen.items()})
        return {**seen, LAST_ERROR: self._last_error} if self._last_error else seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the ranges between two offsets among tasks, without known gaps."""
        before, after = ranges.from_json(start), ranges.from_json(end)
        wanted = dict(ranges.moved(before, after))
        for gap in ranges.gaps(before, after):
            if gap.end is not None:
                wanted[gap.log] = (gap.end, max(gap.end, after[gap.log].next))
        return [Splits(splits) for splits in ranges.split(wanted, self._ask.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task was given. Raises `DataLost` and `BackendUnavailable`."""
        assert isinstance(partition, Splits)  # noqa: S101 - only the mirror makes them
        try:
            for found in self.read_splits(partition):
                yield self._lost(found, partition) if isinstance(found, Gap) else found
        finally:
            self.stop()

    def _lost(self, gap: Gap, given: Splits) -> pa.RecordBatch:
        """Return a row that is the gap: the sink records it after the batch, whose gaps are listed already."""
        description = ranges.describe([gap])
        if self._ask.options.on_data_loss == "fail":
            raise DataLost(description)
        rows = Rows(self.backend)
        destination = self.destination_of(gap.log, given)
        rows.add_gap(f"dropped before it was read: {description}", destination, gap)
        return rows.take()

    def _bounds(self) -> Ranges | None:
        """Return None while the backend cannot be reached; asked at longer and longer intervals then."""
        if time.monotonic() < self._retry_at:
            return None
        try:
            bounds = self.bounds()
        except BackendUnavailable as error:
            if self._target is not None:
                raise  # without new data the query would end, as if all were done
            self._last_error = error.detail
            self._pause = min(self._pause * 2 or _PAUSE, _LONGEST_PAUSE)
            self._retry_at = time.monotonic() + self._pause
            return None
        self._last_error, self._pause = None, 0.0
        return bounds


class RangeDataSource(DataSource):
    """Gives Spark a reader. Spark finds the class by its name, so each kind is a class at module level."""

    reads: ClassVar[type[RangeReader]]

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return f"oms-{cls.reads.backend}"

    def schema(self) -> str:
        """Return the columns of every source."""
        return SOURCE_DDL

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: ARG002 - Spark's signature
        """Return a reader with these options."""
        return self.reads(ReaderOptions.from_options(self.options))


class Source:
    """Everything that one deployment of a backend keeps. While the backend cannot be reached there is nothing new."""

    data: ClassVar[type[RangeDataSource]]

    def __init__(self, options: Options) -> None:
        """Take the options; nothing is connected yet. Raises `CannotStart` or `ValueError` for one that is wrong."""
        self._options = options
        self._reader()

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """Return the stream of rows, of the columns `schema.SOURCE_DDL`.

        `start`: by log, the offset to begin at where there is no checkpoint yet; a log that is not in it begins with
        the oldest that is there. New logs are picked up as they come.
        """
        spark.dataSource.register(self.data)
        ask = ReaderOptions(self._options, start, self.tasks(spark))
        return spark.readStream.format(self.data.name()).options(**ask.to_options()).load()

    def tasks(self, spark: SparkSession) -> int:
        """Return how many tasks a batch has at most."""
        return spark.sparkContext.defaultParallelism

    def moved(self, before: str | None, after: str) -> Ranges:
        """Return the ranges between two of this source's offsets, as Spark's checkpoint and progress hold them.

        Logs in which nothing moved are left out. `before` None: `after` is where the first batch ended.
        """
        return ranges.moved(ranges.read(before), ranges.read(after))

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return the gaps that planning found in those; messages that are dropped later are a row in quarantine."""
        return ranges.gaps(ranges.read(before), ranges.read(after))

    def bounds(self) -> Ranges:
        """Return what every log keeps, now; any thread may ask. Raises `BackendUnavailable`, `CannotStart`."""
        reader = self._reader()
        try:
            return reader.bounds()
        finally:
            reader.stop()

    def unmirrored(self) -> Mapping[str, str]:
        """Return why destinations cannot be mirrored, by destination; it may take seconds. Raises as `bounds`."""
        return {}

    @staticmethod
    def outage(error: BaseException) -> bool:
        """Whether a query ended because the backend, or a planner, could not be reached: it is started again later."""
        return _raised(error, "BackendUnavailable") is not None or BUSY in str(error)

    @staticmethod
    def explain(error: BaseException) -> str | None:
        """Return the operator's sentence about the error that ended a query; None: it is unknown, or an outage."""
        if lost := _raised(error, "DataLost"):
            return (
                f"Messages were dropped before they were mirrored: {lost}. With --on-data-loss record the mirror "
                "records the gap and continues."
            )
        return _raised(error, "CannotStart")

    def _reader(self) -> RangeReader:
        return self.data.reads(ReaderOptions(self._options, {}, 1))


def _raised(error: BaseException, name: str) -> str | None:
    """Return the message of an error of the planner or a task: Spark passes it on as the text of a traceback."""
    return next((match[2] for match in _MARK.finditer(str(error)) if match[1] == name), None)
