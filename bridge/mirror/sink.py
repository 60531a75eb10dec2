"""The function of `foreachBatch`: a batch becomes one commit of the table of messages, once.

Each batch is a Delta transaction of the application `APPLICATION`, numbered over all queries. Delta lets one of two
commits with the same number pass, so two jobs on one table cannot both write a batch. The commit's metadata is the
`Record` of the offsets that the mirror holds then: a batch that Spark repeats after a crash is recognized by it.
Unreadable records follow in a second commit, to the table of quarantine, with the same number.
"""

import errno
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset as pds
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.classic.column import Column

from adapters.wall_clock import wall
from bridge.errors import CannotStart
from bridge.mirror.monitoring.status import Committed
from bridge.mirror.offsets import Gap, Ranges, Record, to_json
from bridge.mirror.schema import AREAS, COLUMNS, PARTITION, SCHEMA_VERSION, Area
from bridge.mirror.sources import Source
from bridge.mirror.spark_checkpoint import Checkpoint
from bridge.mirror.table import LATEST, MESSAGES, QUARANTINE, WHOLE_EVERY, Commit, Name, Table, spark_path

if TYPE_CHECKING:
    from bridge.tracing.spans import BatchSpan, Tracing

ORDER: Final = ("destination", "partition", "log", "offset")
"""How the rows of a file are sorted: a reader of one destination skips the row groups of the others."""


_CONDITIONS: Final[Mapping[Name, str]] = {
    MESSAGES: "error IS NULL",
    QUARANTINE: "error IS NOT NULL AND gap_end IS NULL",
}
"""Which rows of a source belong to a table. The others are gaps."""


def stamped(rows: DataFrame, mirrored: int) -> DataFrame:
    """Add the columns of the sink to rows of `schema.SOURCE_DDL`; `mirrored` is the batch's time, ms since 1970."""
    stamps = {
        "mirrored_timestamp": Column(_append_scala(rows).time(mirrored)),
        "schema_version": F.lit(SCHEMA_VERSION),
        PARTITION: F.lit(f"{datetime.fromtimestamp(mirrored / 1000, UTC):%Y-%m-%d}"),
    }
    return rows.withColumns(stamps).select(*(f"`{column}`" for column in COLUMNS))


def _append_scala(rows: DataFrame) -> Any:  # noqa: ANN401 - py4j has no types
    """Return the object of append.scala."""
    return rows.sparkSession.sparkContext._jvm.openmessaging.mirror.Append  # type: ignore[union-attr] # noqa: SLF001 - the same


_FULL_TEXTS: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "DSQuotaExceededException",
    "could only be written to 0 of the",  # HDFS: no datanode has room
)
_FULL_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain_full_disk(error: BaseException, out: str) -> CannotStart | None:
    """Return the operator's sentence if the cause is a disk without space; else None."""
    lines = [line.strip() for line in str(error).splitlines() if any(text in line for text in _FULL_TEXTS)]
    if not lines and getattr(error, "errno", None) not in _FULL_NUMBERS:
        return None
    shown = (lines or [str(error)])[0][:200]
    return CannotStart(
        f"The disk of {out}, or of Spark's folders, is full ({shown}): free space and start again. The mirror "
        "continues where it was; no message is lost."
    )


APPLICATION: Final = "oms-mirror"
_CONFLICT: Final = "DELTA_CONCURRENT_TRANSACTION"
_WHOLE_AFTER: Final = 24 * 3600 * 1000
"""Milliseconds after which a record holds all logs again: Delta deletes commits that are seven days old."""

_GAP: Final = ("log", "offset", "gap_end")
"""Columns of a row that is a gap, in the order of `Gap`."""

Observer = Callable[[Committed], None]

_log = logging.getLogger(__name__)


class Sink:
    """Of one job. `failed` is what it refused, if it did: Spark passes on only the text."""

    def __init__(
        self, out: str, checkpoint: Checkpoint, source: Source, observe: Observer, tracing: "Tracing | None" = None
    ) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._observe = observe
        self._tracing = tracing
        self._table = Table.require(out)
        self._held: Record | None = None
        """What the mirror holds, as far as this job knows; None: not known yet."""
        self._last_whole: Record | None = None
        """The last record of this job that was written with all logs."""
        self.out = out
        self.failed: CannotStart | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Mirror a batch. Raises `CannotStart` if an operator must act, and what Spark and the disk raise."""
        query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        try:
            if self._tracing is None:
                self._mirror(frame, query, number)
            else:
                self._mirror_traced(self._tracing, frame, query, number)
        except Exception as error:
            self.failed = error if isinstance(error, CannotStart) else explain_full_disk(error, self.out)
            if self.failed is None or self.failed is error:
                raise
            raise self.failed from error

    def _mirror_traced(self, tracing: "Tracing", frame: DataFrame, query: str, number: int) -> None:
        from bridge.tracing.spans import BatchSpan  # noqa: PLC0415 - not needed without tracing

        with BatchSpan.during(tracing) as span:
            committed = self._mirror(frame, query, number)
            if span is not None and committed is not None:
                _describe(span, self._table, committed)

    def _mirror(self, frame: DataFrame, query: str, number: int) -> Committed | None:
        """Return the committed batch; None: it was committed before the last stop."""
        before, after = self._offsets(number)
        ranges, gaps = self._source.moved(before, after), tuple(self._source.gaps(before, after))
        held = self._read_held()
        if query == held.query and number <= held.batch:
            self._again(frame, number, held, ranges)
            return None
        if overlap := held.overlap(ranges):
            log, start, end = overlap
            raise CannotStart(
                f"{self.out} holds offsets {start} to {end - 1} of {log}, and this batch "
                "would repeat them: its checkpoint is an old copy or another mirror's. Move it away and run with "
                "--resume."
            )
        began = time.monotonic()
        written = max(wall(), held.written + 1)  # increases also if the clock was set back: `export` relies on it
        record = held.after(query, number, written, ranges, gaps)
        rows, found, commit = self._write(frame, record, self._logs_of(record, ranges))
        committed = Committed(
            key=f"{record.query}/{record.batch:012d}",
            batch=record.batch,
            rows=rows,
            bytes=int(commit.metrics.get("numOutputBytes", 0)),
            files=int(commit.metrics.get("numFiles", 0)),
            gaps=(*gaps, *found),
            milliseconds={"stage": round((time.monotonic() - began) * 1000)},
            committed=record.written,
        )
        self._observe(committed)
        return committed

    def _read_held(self) -> Record:
        """Return the newest record of the table; it is put together anew only if another program has committed."""
        self._table.delta.update_incremental()
        newest = self._table.newest_record()
        if self._held is None or newest is None or newest.key != self._held.key:
            self._held = self._table.record() or Record()
        return self._held

    def _logs_of(self, record: Record, ranges: Ranges) -> Collection[str] | None:
        """Return the logs to write of a record: those that moved, and now and then all (None)."""
        last = self._last_whole
        if (
            last is None
            or record.sequence - last.sequence >= WHOLE_EVERY
            or record.written - last.written > _WHOLE_AFTER
        ):
            self._last_whole = record
            return None
        return ranges.keys()

    def _offsets(self, number: int) -> tuple[str | None, str]:
        before, after = self._checkpoint.offset(number - 1), self._checkpoint.offset(number)
        if after is None or (before is None and number > 0):
            raise CannotStart(
                f"The checkpoint {self._checkpoint.place} is damaged: the offsets of batch {number} or of the one "
                "before are missing. Move it away and run with --resume."
            )
        return before, after

    def _again(self, frame: DataFrame, number: int, held: Record, ranges: Ranges) -> None:
        """Spark repeats a batch if it was stopped between the table's commit and the checkpoint's."""
        if number < held.batch or any(held.next.get(log) != end for log, (_, end) in ranges.items()):
            raise CannotStart(
                f"The checkpoint {self._checkpoint.place} plans batch {number} anew, and {self.out} ends with batch "
                f"{held.batch} and other offsets: the checkpoint is an old copy. Move it away and run with --resume."
            )
        _log.info("batch %d is in the table already: it was committed before the last stop", number)
        self._append(frame, QUARANTINE, held, None)
        lost = frame.where("gap_end IS NOT NULL").select(*_GAP).collect()
        self._record_gaps(held, lost)

    def _write(
        self, frame: DataFrame, record: Record, logs: Collection[str] | None
    ) -> tuple[Mapping[Area, int], Sequence[Gap], Commit]:
        """Commit a batch. Return its rows by area, the gaps found in it, and the commit of the messages."""
        seen = Observation("rows")
        counts = [F.count_if(F.col("area") == area).alias(area) for area in AREAS]
        lost = F.collect_list(F.when(F.col("gap_end").isNotNull(), F.struct(*_GAP))).alias("gaps")
        self._append(frame.observe(seen, *counts, lost), MESSAGES, record, logs)
        commit = self._commit(record)
        self._held = record
        counted = seen.get  # waits for the rows, which a skipped commit never reads
        if counted["quarantine"]:
            self._append(frame, QUARANTINE, record, logs)
        return {area: int(counted[area]) for area in AREAS}, self._record_gaps(record, counted["gaps"]), commit

    def _append(self, frame: DataFrame, name: Name, record: Record, logs: Collection[str] | None) -> None:
        """Commit the rows of a table, unless it has the transaction already.

        Delta skips the commit then, or reports a conflict: with another job's commit, or with this one if S3's answer
        to it was lost and the request repeated.
        """
        rows = stamped(frame.where(_CONDITIONS[name]), record.written)
        transaction = {"txnAppId": APPLICATION, "txnVersion": str(record.sequence)}
        options = {**transaction, "userMetadata": to_json(record, logs), "compression": "zstd"}
        try:
            _append_scala(rows).apply(rows.sortWithinPartitions(*ORDER)._jdf, spark_path(self.out, name), options)  # noqa: SLF001 - for append.scala
        except Exception as error:
            if _CONFLICT not in str(error):
                raise

    def _record_gaps(self, record: Record, lost: Iterable[Row]) -> Sequence[Gap]:
        """Record the gaps that tasks found, in a commit without rows: the batch is in the table. Return them."""
        gaps = [gap for gap in (Gap(*row) for row in lost) if gap not in record.gaps]
        if gaps:
            self._table.delta.update_incremental()
            self._held = self._last_whole = record.with_gaps(gaps)
            self._table.commit_record(self._held, APPLICATION)
        return gaps

    def _commit(self, record: Record) -> Commit:
        """Return the commit of a batch. Raises `CannotStart` if another job has committed its number."""
        self._table.delta.update_incremental()
        for most in (1, LATEST):
            for commit in self._table.commits(most):
                if commit.of_batch and commit.record is not None and commit.record.key == record.key:
                    return commit
        raise CannotStart(f"Another mirror writes to {self.out}: stop one of the two.")


def _describe(span: "BatchSpan", table: Table, batch: Committed) -> None:
    """Add to a span what was committed, read from the table. If that fails, the span is without it."""
    span.count(sum(batch.rows.values()))
    written = pds.field("mirrored_timestamp") == datetime.fromtimestamp(batch.committed / 1000, UTC)
    try:
        rows = table.dataset().to_table(["destination", "traceparent"], filter=written)
        span.describe(rows["destination"].unique().to_pylist(), rows["traceparent"].unique().drop_null().to_pylist())
    except Exception:  # noqa: BLE001 - of delta-rs and pyarrow, which share no base
        _log.warning("the messages of a batch could not be read for its span", exc_info=True)
