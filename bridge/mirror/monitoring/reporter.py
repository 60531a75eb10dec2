"""What the job and Spark report, from any thread, to everything that shows it."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, Literal, ParamSpec

from prometheus_client import generate_latest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.monitoring.server import Pages, Response, registry, serving
from bridge.mirror.monitoring.status import Committed, Status, write
from bridge.mirror.monitoring.terminal import live_view, summary, terminal
from bridge.mirror.offsets import Ranges, Record, backlog
from bridge.mirror.sources import Options, Source
from bridge.mirror.sources.range_source import LAST_ERROR
from bridge.mirror.sources.ranges import describe
from bridge.mirror.storage import StorageUnavailable, check_reachable
from bridge.settings import Address, redact

READY_FOR: Final = 60.0
"""Seconds of an outage during which `/readyz` still reports ready."""
_STATUS_EVERY: Final = 1.0
"""Seconds between two versions of the status file."""
_PROBE_EVERY: Final = 10.0
"""Seconds without rows before the backend is probed, and between two probes."""
_PROBE_SHARE: Final = 20
"""A backend of a thousand logs answers slowly: it is probed at most a twentieth of the time."""
_NAMED: Final = 10
"""Destinations that a log line names."""
_REASON_MAX: Final = 500
_NULL: Final = frozenset(("None", "null"))
"""An offset that is null in the JVM, as PySpark shows it."""

Show = Literal["auto", "lines", "quiet"]
"""A view on a terminal, else a log line per batch; log lines; warnings only."""
P = ParamSpec("P")

_log = logging.getLogger("bridge.mirror")


class Reporter(StreamingQueryListener):
    """Keeps the status of one job, logs its changes and counts its batches. Spark calls the methods `onQuery…`."""

    def __init__(self, options: Options, source: Source, *, log_batches: bool) -> None:
        self._lock = threading.Lock()
        self._source = source
        self._log_batches = log_batches
        self._activities: set[str] = set()
        self._out = options.out
        self._waits_for = "backend"
        out = redact(options.out) if "://" in options.out else options.out
        self.status = Status(redact(options.backend), out, datetime.now(UTC))
        self._registry, self._seconds = registry(self.status)
        self._reached: Mapping[str, int] | None = None
        """By log, the next offset to mirror; None: the mirror was not read yet."""
        self.address: Address | None = None
        """Where metrics are served, with the actual port."""

    def _change(self, transition: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        with self._lock:  # they come from threads of the job, of Spark and of the probe
            transition(*args, **kwargs)

    def activity(self, activity: str) -> None:
        """Report what the job does now; before the first batch it is logged, each activity once."""
        if self._log_batches and activity not in self._activities and not self.status.batches:
            _log.info(activity)
        self._activities.add(activity)
        self.status.activity = activity

    def began(self, record: Record | None) -> None:
        """Report what the mirror holds before the first batch, and look in a thread how far it is behind."""
        self._reached = {} if record is None else record.next
        if record is not None:
            self._change(self.status.began, datetime.fromtimestamp(record.written / 1000, UTC))
        threading.Thread(target=self.probe, name="oms-mirror-lag", daemon=True).start()

    def committed(self, batch: Committed) -> None:
        """Report a batch."""
        self._change(self.status.committed, batch)
        for phase, milliseconds in batch.milliseconds.items():
            self._seconds.labels(phase).observe(milliseconds / 1000)
        commit = {"commit": batch.key}
        if bad := batch.rows.get("quarantine"):
            _log.warning("records could not be read; they are in quarantine", extra={"rows": bad, **commit})
        if batch.gaps:
            lost = {"gaps": describe(batch.gaps), **commit}
            _log.warning("offsets were dropped before they could be read", extra=lost)
        if self._log_batches:
            rows = {f"rows_{area.replace('-', '_')}": count for area, count in batch.rows.items()}
            times = {f"{phase}_ms": took for phase, took in batch.milliseconds.items()}
            _log.info("a batch is mirrored", extra=commit | rows | times | {"bytes": batch.bytes, "files": batch.files})

    def unavailable(self, reason: str, what: str = "backend") -> None:
        """Report that the backend, or the mirror's storage, cannot be reached."""
        if self.status.waiting_since is None:
            self._waits_for = what
            _log.warning("the %s is not ready", what, extra={"reason": reason})
        self._change(self.status.unavailable, reason, datetime.now(UTC))

    def available(self) -> None:
        """Report that both can be reached."""
        if self.status.waiting_since is not None:
            _log.warning("the %s is ready", self._waits_for)
        self._change(self.status.available)

    def unmirrored(self, reasons: Mapping[str, str]) -> None:
        """Report all destinations that cannot be mirrored; why, by destination."""
        self._change(self.status.not_mirrored, reasons)
        if reasons:
            names = "; ".join(f"{name}: {why}" for name, why in islice(sorted(reasons.items()), _NAMED))
            _log.warning("destinations are not mirrored", extra={"count": len(reasons), "first": names})

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Spark waits until it returns, and then runs the query."""
        self._change(self.status.query_started, str(event.runId), datetime.now(UTC))
        if restarts := self.status.restarts:
            _log.warning("the query runs again", extra={"restarts": restarts})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A trigger has ended."""
        progress = event.progress
        (source,) = progress.sources
        behind, rows, now = lag(source, self._source.moved), progress.numInputRows, datetime.now(UTC)
        if rows:
            self.available()
        if source.endOffset not in _NULL:
            moved = self._source.moved(None, source.endOffset)
            self._reached = {**(self._reached or {}), **{log: end for log, (_, end) in moved.items()}}
        self._change(self.status.triggered, rows, progress.batchDuration, behind, now)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802
        """There is no new data; Spark reports no progress then."""
        self._change(self.status.idle, datetime.now(UTC))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended, with or without an error."""
        reason = event.exception and sentence(event.exception)
        self._change(self.status.query_ended, str(event.runId), reason)

    def stopped(self, reason: str | None) -> None:
        """Report the end of the job."""
        self._change(self.status.stopped, reason)

    def document(self) -> str:
        """Return the status as JSON."""
        with self._lock:
            return self.status.to_json(datetime.now(UTC))

    def summary(self) -> str:
        """Return what the run has done, for standard output."""
        return summary(self.status, datetime.now(UTC))

    def probe(self) -> None:
        """Ask storage and backend if no rows come: a mirror that waits for either looks like an idle one."""
        now, last = datetime.now(UTC), self.status.last_rows
        idle = last is not None and (now - last).total_seconds() >= _PROBE_EVERY
        first = self._reached is not None and self.status.lag["rows"] is None
        if not idle and not first and self.status.waiting_since is None:
            return
        try:
            check_reachable(self._out)
            bounds = self._source.bounds()
        except StorageUnavailable as error:
            self.unavailable(str(error), "storage")
        except (BackendUnavailable, CannotStart) as error:
            self.unavailable(str(error))
        except Exception:  # noqa: BLE001 - a defect of a source must not end the probing
            _log.exception("the probe of the backend failed")
        else:
            self.available()
            if self._reached is not None:
                self._change(self.status.looked, backlog(bounds, self._reached), now)

    def pages(self) -> Pages:
        """Return what the management port serves."""
        return {
            "/livez": lambda: (200, "text/plain", b"alive\n"),
            "/readyz": lambda: readiness(self.status, datetime.now(UTC)),
            "/metrics": lambda: (200, "text/plain; version=1.0.0; charset=utf-8", generate_latest(self._registry)),
            "/status": lambda: (200, "application/json", self.document().encode()),
        }


@contextmanager
def reporting(
    options: Options, source: Source, *, status_file: Path | None, metrics: Address | None, show: Show = "auto"
) -> Iterator[Reporter]:
    """Report a mirror while the block runs. Raises `CannotStart` for a file or an address that cannot be used.

    An exception that ends the block is the reason that is shown, except `KeyboardInterrupt` and `SystemExit`.
    """
    console = terminal() if show == "auto" else None
    reporter = Reporter(options, source, log_batches=console is None and show != "quiet")
    with ExitStack() as stack:
        if status_file is not None:
            stack.enter_context(_status_file(status_file, reporter))
        if metrics is not None:
            reporter.address = stack.enter_context(serving(metrics, reporter.pages()))
        stack.enter_context(_repeating("oms-mirror-probe", _PROBE_EVERY, reporter.probe))
        if console is not None:
            stack.enter_context(live_view(console, reporter.status))
        try:
            yield reporter
        except Exception as error:
            reporter.stopped(sentence(str(error)) or type(error).__name__)
            raise
        finally:
            if reporter.status.state != "stopped":
                reporter.stopped(None)


def readiness(status: Status, now: datetime) -> Response:
    """Return the response of `/readyz`."""
    since = status.waiting_since
    if status.state == "running" or (since is not None and (now - since).total_seconds() < READY_FOR):
        return 200, "text/plain", b"ready\n"
    reason = f": {status.reason}" if status.reason else ""
    return 503, "text/plain", f"not ready: the mirror is {status.state}{reason}\n".encode("utf-8", "replace")


def lag(source: SourceProgress, moved: Callable[[str | None, str], Ranges]) -> Mapping[str, int] | None:
    """Return how many offsets each log is behind, without logs that are not; None: unknown."""
    end, latest = source.endOffset, source.latestOffset
    if _NULL.intersection((end, latest)):
        return None
    logs = json.loads(latest)
    if isinstance(logs, dict) and isinstance(logs.get(LAST_ERROR), str):  # a topic of that name is an object
        del logs[LAST_ERROR]
    if not logs:  # of a batch that is repeated after a restart: the backend was not asked yet
        return None
    return {log: last - first for log, (first, last) in moved(end, json.dumps(logs)).items() if last > first}


def sentence(exception: str) -> str:
    """Return the line of an exception's text that says what happened: below a trace of Python, else the first."""
    first, *rest = exception.strip().splitlines() or [""]
    if first.endswith("Traceback (most recent call last):"):
        first = next((line for line in rest if line[:1].strip()), first)
    return first.strip()[:_REASON_MAX]


@contextmanager
def _status_file(path: Path, reporter: Reporter) -> Iterator[None]:
    failed = False

    def keep() -> None:
        nonlocal failed
        try:
            write(path, reporter.document())
            failed = False
        except OSError as error:
            if not failed:
                extra = {"path": str(path), "reason": error.strerror}
                _log.warning("the status file cannot be written", extra=extra)
            failed = True

    try:
        write(path, reporter.document())
    except OSError as failure:
        raise CannotStart(f"the status file {path} cannot be written: {failure.strerror}") from failure
    try:
        with _repeating("oms-mirror-status", _STATUS_EVERY, keep):
            yield
    finally:
        keep()


@contextmanager
def _repeating(name: str, pause: float, work: Callable[[], None]) -> Iterator[None]:
    """Call `work` every `pause` seconds in its own daemon thread, which may hang: it is not waited for."""
    over = threading.Event()

    def repeat() -> None:
        wait = pause
        while not over.wait(wait):
            begun = time.monotonic()
            work()
            wait = max(pause, _PROBE_SHARE * (time.monotonic() - begun))

    threading.Thread(target=repeat, name=name, daemon=True).start()
    try:
        yield
    finally:
        over.set()
