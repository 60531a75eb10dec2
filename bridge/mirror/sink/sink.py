"""What `foreachBatch` calls: a batch becomes one commit of the table of messages, once.

Each batch is a Delta transaction of the application `APPLICATION`, numbered over all queries. Delta lets one of two
commits with the same number pass, so two jobs on one table cannot both write a batch. The commit's metadata is the
`Record` of the offsets that the mirror holds then: a batch that Spark repeats after a crash is recognized by it.
Unreadable records follow in a second commit, to the table of quarantine, with the same number.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from adapters.wall_clock import wall
from bridge.errors import CannotStart
from bridge.mirror.monitoring.status import Committed
from bridge.mirror.offsets import Gap, Ranges, Record, to_json
from bridge.mirror.sink.checkpoint import Checkpoint
from bridge.mirror.sink.frame import ORDER, is_bad, is_dead_letter, stamped
from bridge.mirror.sink.full import explain
from bridge.mirror.sources.base import Source
from bridge.mirror.table import MESSAGES, QUARANTINE, Commit, Name, Table, spark_path

if TYPE_CHECKING:
    from bridge.tracing.spans import Tracing

APPLICATION: Final = "oms-mirror"
_CONFLICT: Final = "DELTA_CONCURRENT_TRANSACTION"
_BEFORE: Final = Record("", -1)
_LATEST: Final = 20
"""Commits among which a batch's own is looked for: upkeep may have committed after it."""

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
        except CannotStart as error:
            self.failed = error
            raise
        except Exception as error:
            failed = explain(error, self.out)
            if failed is None:
                raise
            self.failed = failed
            raise failed from error

    def _mirror_traced(self, tracing: "Tracing", frame: DataFrame, query: str, number: int) -> None:
        from bridge.mirror.sink.traced_batch import describe  # noqa: PLC0415 - not needed without tracing
        from bridge.tracing.spans import BatchSpan  # noqa: PLC0415 - as above

        with BatchSpan.during(tracing) as span:
            committed = self._mirror(frame, query, number)
            if span is not None and committed is not None:
                describe(span, self._table, committed)

    def _mirror(self, frame: DataFrame, query: str, number: int) -> Committed | None:
        """Return what was committed; None: the batch was committed before the last stop."""
        before, after = self._offsets(number)
        ranges, gaps = self._source.moved(before, after), tuple(self._source.gaps(before, after))
        self._table.refresh()
        held = self._table.record() or _BEFORE
        if query == held.query and number <= held.batch:
            self._again(frame, number, held, ranges)
            return None
        if overlap := held.overlap(ranges, gaps):
            raise CannotStart(
                f"{self.out} holds offsets {overlap.start} to {overlap.end - 1} of {overlap.log}, and this batch "
                "would repeat them: its checkpoint is an old copy or another mirror's. Move it away and run with "
                "--resume."
            )
        began = time.monotonic()
        written = max(wall(), held.written + 1)  # increases also if the clock was set back: `export` relies on it
        record = held.after(query, number, written, ranges, gaps)
        try:
            done = self._write(frame, record)
        except Exception as error:
            again = self._source.fallback_read(frame.sparkSession, before, after, error)
            if again is None:
                raise
            done = self._write(again, record)
        committed = _event(record, *done, gaps, round((time.monotonic() - began) * 1000))
        self._observe(committed)
        return committed

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
        self._append(stamped(frame, held.written).where(is_bad()), QUARANTINE, held)

    def _write(self, frame: DataFrame, record: Record) -> tuple[Mapping[str, int], Commit]:
        seen = Observation("rows")
        rows = stamped(frame, record.written).observe(
            seen,
            F.count("*").alias("all"),
            F.count_if(is_bad()).alias("bad"),
            F.count_if(is_dead_letter()).alias("dead"),
        )
        self._append(rows.where(~is_bad()), MESSAGES, record)
        commit = self._commit(record)
        counts: Mapping[str, int] = seen.get  # waits for the rows, which a skipped commit never reads
        if counts["bad"]:
            self._append(stamped(frame, record.written).where(is_bad()), QUARANTINE, record)
        return counts, commit

    def _append(self, rows: DataFrame, name: Name, record: Record) -> None:
        """Commit the rows, unless the table has the transaction already.

        Delta skips the commit then, or reports a conflict: with another job's commit, or with this one if S3's answer
        to it was lost and the request repeated.
        """
        transaction = {"txnAppId": APPLICATION, "txnVersion": str(record.sequence)}
        options = {"userMetadata": to_json(record), "compression": "zstd"}
        writer = rows.sortWithinPartitions(*ORDER).write.format("delta").mode("append")
        try:
            writer.options(**transaction, **options).save(spark_path(self.out, name))
        except Exception as error:
            if _CONFLICT not in str(error):
                raise

    def _commit(self, record: Record) -> Commit:
        """Return the commit of a batch. Raises `CannotStart` if another job has committed its number."""
        self._table.refresh()
        for most in (1, _LATEST):
            for commit in self._table.commits(most):
                if commit.record == record:
                    return commit
        raise CannotStart(f"Another mirror writes to {self.out}: stop one of the two.")


def _event(
    record: Record, counts: Mapping[str, int], commit: Commit, gaps: tuple[Gap, ...], milliseconds: int
) -> Committed:
    return Committed(
        key=f"{record.query}/{record.batch:012d}",
        batch=record.batch,
        rows={
            "data": counts["all"] - counts["bad"] - counts["dead"],
            "dead-letters": counts["dead"],
            "quarantine": counts["bad"],
        },
        bytes=int(commit.metrics.get("numOutputBytes", 0)),
        files=int(commit.metrics.get("numFiles", 0)),
        gaps=gaps,
        milliseconds={"stage": milliseconds},
        committed=record.written,
    )
