"""The job: one streaming query from a source into the sink, restarted after an outage, stopped by SIGTERM or Ctrl-C."""

import signal
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.jars import spark_jars
from bridge.mirror.monitoring.reporter import Reporter, Show, reporting, sentence
from bridge.mirror.parquet_export import exporting
from bridge.mirror.session import S3_SCHEME, check_conditional_writes, s3_settings, session, submitted
from bridge.mirror.sink import Sink, explain_full_disk
from bridge.mirror.sources import Options, Source, open_source
from bridge.mirror.spark_checkpoint import Checkpoint, check_start
from bridge.mirror.storage import check_reachable, outage
from bridge.mirror.table import Table, create, is_remote, local_path, shown, spark_path
from bridge.settings import Address

if TYPE_CHECKING:
    from bridge.tracing.spans import Tracing

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """The first signal that asked the job to stop while the block ran. A second one ends the process.

    `KeyboardInterrupt` ends the block and is not raised further; nor is the loss of the JVM after a signal.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """None: the job is to continue."""
        self.deferred = False
        """Whether the job looks at `number` regularly; else a signal raises `KeyboardInterrupt`."""
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def install(self) -> None:
        """Handle the signals. Again after the start of Spark: PySpark replaces the handler of SIGINT."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt):
            self.number = self.number or signal.SIGINT  # PySpark's handler raises it too, until ours is installed again
        # the loss of the JVM: systemd signals it and the job at once
        return self.number is not None and isinstance(error, KeyboardInterrupt | Py4JError | OSError)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if not self.deferred:
            raise KeyboardInterrupt


QUERY: Final = "oms-mirror"
_POLL: Final = 0.5
"""Seconds between two looks at the query and at the stop signal."""
_LAST_BATCH: Final = 30.0
"""Seconds that a batch under way has to end after a stop signal; the next run repeats one that is cut short."""
_PAUSE: Final = 5.0
"""Seconds from an outage to the next attempt."""
_RETRY: Final = 1.0
"""Seconds between two attempts to reach the backend before `once` starts Spark."""
_CONCURRENT: Final = "Multiple streaming "
"""What Spark says of jobs or queries that plan or end the same batch."""
_ACTIVITIES: Final = {
    "Initializing": "starting the query",
    "Getting offsets": "looking for new messages",
    "Writing offsets": "planning a batch",
    "Processing new data": "reading and writing a batch",
    "Waiting": "waiting for new messages",
}
"""What Spark's query says that it does, by its beginning, and what it means."""


class Monitoring(NamedTuple):
    """What is shown of the job, and where."""

    status: Path | None = None
    metrics: Address | None = None
    show: Show = "auto"
    tracing: "Tracing | None" = None
    """Makes the spans of batches; None: there are none."""


def run(options: Options, monitoring: Monitoring, *, timeout: float | None) -> tuple[Reporter, int | None]:
    """Mirror until SIGTERM or Ctrl-C; with a `timeout`, until all that is there now is mirrored.

    `timeout`: seconds for which backend and storage may be unreachable. Returns the reporter, and the signal that
    stopped the job before it had ended. Raises `CannotStart` for whatever an operator has to repair, at any time.
    """
    source = open_source(options)
    conf = s3_settings(_checkpoint(options)) | dict(pair.split("=", 1) for pair in options.conf)
    status, metrics, show, tracing = monitoring
    with reporting(options, source, status_file=status, metrics=metrics, show=show) as reporter, StopSignal() as stop:
        check_writable(options.out)
        _await("storage", lambda: check_reachable(options.out), reporter, timeout)
        create(options.out)
        if timeout is not None:  # starting Spark for nothing takes ten seconds; `run` leaves the waiting to its query
            _await("backend", source.bounds, reporter, timeout)
        jars = () if submitted() else spark_jars()  # Maven may take a minute, and ends with the first Ctrl-C
        stop.deferred = True  # an interrupted start would leave Spark's JVM running
        reporter.activity("starting Spark")
        with session("oms-bridge mirror", jars, conf) as spark:
            stop.install()
            spark.streams.addListener(reporter)
            reporter.activity("reading the mirror")
            query = _prepare(spark, options, source, reporter, tracing, once=timeout is not None)
            with suppress(BackendUnavailable):  # the query will wait for it
                reporter.unmirrored(source.unmirrored())
            with exporting(options.out) if options.export else nullcontext():
                if _supervise(query, source, reporter, stop, timeout):
                    stop.number = None
    return reporter, stop.number


def check_writable(out: str) -> None:
    """Raise `CannotStart` if `out` is a local folder in which no file can be made; Spark checks other file systems."""
    if is_remote(out):
        return
    path = local_path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise CannotStart(f"--out {path} cannot be written: {error.strerror}.") from None


def _checkpoint(options: Options) -> str:
    return options.checkpoint or spark_path(options.out, "checkpoint")


def _await(what: str, ask: Callable[[], object], reporter: Reporter, timeout: float | None) -> None:
    """Wait until it can be reached, at most so many seconds. Raises `CannotStart`."""
    reporter.activity(f"connecting to the {what}")
    begun = time.monotonic()
    while True:
        try:
            ask()
        except BackendUnavailable as error:
            reporter.unavailable(error.detail, what)
            if timeout is not None and time.monotonic() >= begun + timeout:
                raise _gave_up(what, timeout, error.detail) from None
            time.sleep(_RETRY)
        else:
            reporter.available()
            return


def _gave_up(what: str, timeout: float, reason: str) -> CannotStart:
    return CannotStart(f"The {what} could not be reached for {timeout:g} s, so not everything is mirrored: {reason}")


def _prepare(  # noqa: PLR0913 - the job, its options and what it reports to
    spark: SparkSession,
    options: Options,
    source: Source,
    reporter: Reporter,
    tracing: "Tracing | None",
    *,
    once: bool,
) -> "_Query":
    """Check what is in `--out`, and return the query that continues it. Raises `CannotStart`."""
    try:
        if options.out.startswith(S3_SCHEME):
            check_conditional_writes(spark, options.out)
        checkpoint = Checkpoint(spark, _checkpoint(options))
        record = check_start(options.out, checkpoint, Table.require(options.out), resume=options.resume)
        sink = Sink(options.out, checkpoint, source, reporter.committed, tracing)
    except Py4JJavaError as error:
        raise CannotStart(f"--out {shown(options.out)} cannot be used: {error.java_exception.toString()}") from None
    reporter.began(record)
    start = {} if record is None else record.next
    return _Query(lambda: source.rows(spark, start), sink, checkpoint.place, None if once else options.every)


class _Query(NamedTuple):
    """Starts the query, again after each outage."""

    rows: Callable[[], DataFrame]
    sink: Sink
    checkpoint: str
    every: float | None
    """Seconds from one batch to the next; None: until all is mirrored."""

    def begin(self) -> StreamingQuery:
        writer = self.rows().writeStream.queryName(QUERY).foreachBatch(self.sink)
        if self.every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.every} seconds")
        return writer.option("checkpointLocation", self.checkpoint).start()


def _supervise(query: _Query, source: Source, reporter: Reporter, stop: StopSignal, timeout: float | None) -> bool:
    """Run the query to its end, over outages of backend and storage. Returns whether it ended before a stop signal."""
    gives_up, batches = None, -1
    while stop.number is None:
        try:
            return _follow(query.begin(), reporter, stop)
        except Exception as error:
            if (failure := query.sink.failed or explain_full_disk(error, query.sink.out)) is not None:
                raise failure from None
            if stop.number is not None:  # the signal has reached Spark's workers, too
                return False
            if (explanation := source.explain(error)) is not None:
                raise CannotStart(explanation) from error
            if _CONCURRENT in str(error):
                raise CannotStart(
                    f"Another mirror uses the checkpoint {query.checkpoint}: stop one of the two."
                ) from None
            away = outage(query.sink.out, error)
            if away is None and not source.outage(error):
                raise
            what, reason = ("storage", away.detail) if away else ("backend", sentence(str(error)))
            reporter.unavailable(reason, what)
            reporter.activity(f"waiting for the {what}")
            if gives_up is None or reporter.status.batches > batches:
                gives_up, batches = time.monotonic() + (timeout or 0), reporter.status.batches
            if timeout is not None and time.monotonic() >= gives_up:
                raise _gave_up(what, timeout, reason) from error
        _wait(_PAUSE, stop)
    return False


def _follow(query: StreamingQuery, reporter: Reporter, stop: StopSignal) -> bool:
    """Return whether the query ended before a stop signal."""
    while not query.awaitTermination(_POLL):  # type: ignore[arg-type] # PySpark's own check takes float, its hint int
        message = str(query.status["message"])
        for beginning, activity in _ACTIVITIES.items():
            if message.startswith(beginning):
                reporter.activity(activity)
        if stop.number is not None:
            until, batches = time.monotonic() + _LAST_BATCH, reporter.status.batches
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                if reporter.status.batches > batches:  # the next one follows at once
                    break
                time.sleep(_POLL)
            query.stop()
            return False
    return True


def _wait(seconds: float, stop: StopSignal) -> None:
    until = time.monotonic() + seconds
    while stop.number is None and time.monotonic() < until:
        time.sleep(_POLL)
