"""What is known of a running mirror: the members of the status file, as docs/mirror-status.md lists them.

No I/O but `write`, and no clock. Totals count from the start of the process.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from bridge import __version__
from bridge.mirror.offsets import Gap
from bridge.mirror.schema import Area

LISTED: Final = 100
"""Gaps, the newest, and destinations that cannot be mirrored which are listed: a broker may have any number."""
WORST: Final = 20
"""Logs whose lag is listed."""


class Committed(NamedTuple):
    """A batch that was committed. One that is repeated after a crash, and was committed before, is not reported."""

    key: str
    """Name of the commit."""
    batch: int
    rows: Mapping[Area, int]
    """By area; an area without rows may be left out."""
    bytes: int
    """Size of its files."""
    files: int
    gaps: tuple[Gap, ...]
    milliseconds: Mapping[str, int]
    """How long each phase of the commit took."""
    committed: int
    """When, in ms since 1970."""


@dataclass
class Status:
    """One mirror, now. Its methods are what can happen to it; `now` is the time in UTC."""

    backend: str
    out: str
    started: datetime
    version: str = __version__
    pid: int = field(default_factory=os.getpid)
    state: Literal["starting", "running", "waiting", "stopped"] = "starting"
    activity: str = "starting"
    reason: str | None = None
    waiting_since: datetime | None = None
    rows_per_second: float = 0.0
    rows: int = 0
    messages: int = 0
    dead_letters: int = 0
    quarantined: int = 0
    bytes: int = 0
    files: int = 0
    batches: int = 0
    trigger_milliseconds: int | None = None
    last_commit: Mapping[str, Any] | None = None
    lag: Mapping[str, Any] = field(default_factory=lambda: _lag(None))
    gap_count: int = 0
    gaps: tuple[Gap, ...] = ()
    restarts: int = 0
    unmirrored_count: int = 0
    unmirrored: tuple[Mapping[str, str], ...] = ()
    _run: str | None = None
    """Id of the running query; None: no query runs."""
    _rate_from: tuple[datetime, int] | None = None
    """When the last trigger ended, and the rows then; None: no query has run."""
    last_rows: datetime | None = None
    """When rows last came, or the query started."""
    _whole: datetime | None = None
    """When the mirror last held everything that the backend had, as far as known; None: unknown, not before `started`.
    """

    def began(self, committed: datetime) -> None:
        """The job continues a mirror: what came after its last commit is taken to be missing since then."""
        self._whole = min(committed, self.started)

    def looked(self, lag: Mapping[str, int] | None, now: datetime) -> None:
        """The backend was asked for its offsets; `lag` by log, without logs that are not behind, None if unknown."""
        self.lag = _lag(lag)
        if lag is not None and not lag:
            self._whole = now

    def lag_seconds(self, now: datetime) -> float | None:
        """Return for how long the mirror has been behind: the oldest missing message is not older, by its arrival.

        0: it was not at the last look. None: unknown.
        """
        if (rows := self.lag["rows"]) is None:
            return None
        if not rows:
            return 0.0
        return round(max(0.0, (now - (self._whole or self.started)).total_seconds()), 1)

    def query_started(self, run: str, now: datetime) -> None:
        """Spark runs the query, for the first time or again."""
        self.restarts += self._rate_from is not None
        self._run, self._rate_from, self.last_rows = run, (now, self.rows), now
        if self.waiting_since is None:
            self.state, self.reason = "running", None

    def committed(self, batch: Committed) -> None:
        """Add a batch."""
        when = datetime.fromtimestamp(batch.committed / 1000, UTC)
        rows = sum(batch.rows.values())
        self.rows += rows
        self.messages += batch.rows.get("data", 0)
        self.dead_letters += batch.rows.get("dead-letters", 0)
        self.quarantined += batch.rows.get("quarantine", 0)
        self.bytes += batch.bytes
        self.files += batch.files
        self.batches += 1
        self.gaps = (*self.gaps, *batch.gaps)[-LISTED:]
        self.gap_count += len(batch.gaps)
        self.last_rows = when if rows else self.last_rows
        amounts = {"rows": rows, "bytes": batch.bytes, "files": batch.files, "milliseconds": batch.milliseconds}
        self.last_commit = {"time": when, "batch": batch.batch, "commit": batch.key, **amounts}

    def triggered(self, rows: int, milliseconds: int, lag: Mapping[str, int] | None, now: datetime) -> None:
        """Spark ended a trigger, in which the source returned `rows`; `lag` by log, None if unknown."""
        self.idle(now)
        self.looked(lag, now - timedelta(milliseconds=milliseconds))
        if rows:
            self.trigger_milliseconds, self.last_rows = milliseconds, now
            self.available()

    def idle(self, now: datetime) -> None:
        """Spark has no new data."""
        # not Spark's rows per second: it counts a row again each time that the sink reads the batch
        since, rows = self._rate_from or (now, self.rows)
        seconds = max(0.001, (now - since).total_seconds())
        self.rows_per_second, self._rate_from = round((self.rows - rows) / seconds, 1), (now, self.rows)

    def query_ended(self, run: str, reason: str | None) -> None:
        """Spark ended a query. It may report this after the next query has started."""
        if run == self._run:
            self._run, self.rows_per_second = None, 0.0
            if self.state == "running":
                self.state, self.reason = "starting", reason

    def unavailable(self, reason: str, now: datetime) -> None:
        """The backend cannot be reached."""
        self.state, self.reason, self.rows_per_second = "waiting", reason, 0.0
        self.waiting_since = self.waiting_since or now

    def available(self) -> None:
        """The backend can be reached."""
        if self.waiting_since is not None:
            self.waiting_since = self.reason = None
            self.state = "starting" if self._run is None else "running"

    def not_mirrored(self, reasons: Mapping[str, str]) -> None:
        """Replace the destinations that cannot be mirrored; why, by destination."""
        listed = islice(sorted(reasons.items()), LISTED)
        self.unmirrored = tuple({"destination": name, "reason": why} for name, why in listed)
        self.unmirrored_count = len(reasons)

    def stopped(self, reason: str | None) -> None:
        """The job has ended. `reason` None: it had done its work, or was asked to stop."""
        self.state, self.reason, self.waiting_since, self.rows_per_second = "stopped", reason, None, 0.0

    def to_json(self, now: datetime) -> str:
        """Return the document."""
        members = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        lag = {**self.lag, "seconds": self.lag_seconds(now)}
        members |= {"gaps": [gap._asdict() for gap in self.gaps], "lag": lag, "written": now}
        return json.dumps(members, indent=2, allow_nan=False, default=_iso) + "\n"


def write(path: Path, document: str) -> None:
    """Replace the file: a reader sees the old document or the new one. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(document)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _lag(lag: Mapping[str, int] | None) -> dict[str, Any]:
    if lag is None:
        return {"rows": None, "logs": None, "worst": []}
    worst = nlargest(WORST, lag.items(), key=lambda item: item[1])
    return {"rows": sum(lag.values()), "logs": len(lag), "worst": [{"log": log, "rows": rows} for log, rows in worst]}


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
