"""The status for a person: the view on a terminal, by Rich, and the summary of a run that has ended."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bridge.cli.command import printable
from bridge.mirror.monitoring.status import Status
from bridge.mirror.sources.ranges import describe

_WORST: Final = 5
"""Logs whose lag is shown."""
_UNMIRRORED: Final = 10
"""Destinations that the summary names."""
_COLOURS: Final = {"starting": "cyan", "running": "green", "waiting": "yellow", "stopped": "red"}


def terminal() -> Console | None:
    """Return standard error if it is a terminal that can move its cursor and show Unicode."""
    console = Console(stderr=True)
    # isatty: with FORCE_COLOR, which many CI services set, Rich takes a file for a terminal
    usable = sys.stderr.isatty() and not console.is_dumb_terminal and console.encoding.startswith("utf")
    return console if usable else None


@contextmanager
def live_view(console: Console, status: Status) -> Iterator[None]:
    """Show the status while the block runs; log lines appear above it, and the last view stays."""
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.StreamHandler)]
    with Live(get_renderable=lambda: view(status, datetime.now(UTC)), console=console, refresh_per_second=2):
        streams = [(handler, handler.setStream(sys.stderr)) for handler in handlers]  # which Rich has replaced
        try:
            yield
        finally:
            for handler, stream in streams:
                handler.setStream(stream or sys.stderr)


def view(status: Status, now: datetime) -> Table:
    """Return the status as lines of a name, a value and details. Text of others never becomes markup."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(style="bold", no_wrap=True, min_width=12, justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis")
    colour = _COLOURS[status.state]
    activity = "" if status.state == "stopped" else status.activity
    age = _age(now - (status.waiting_since or status.started))
    table.add_row("mirror", Text(status.state, colour), f"{age}  {activity}")
    if status.reason:
        table.add_row("", "", Text(printable(status.reason), colour))
    table.add_row("", "", Text(printable(f"{status.backend} → {status.out}")))
    table.add_row("rows", f"{status.rows:,}", f"{status.rows_per_second:,.0f}/s")
    lag = status.lag
    seconds = status.lag_seconds(now)
    since = f", {_age(timedelta(seconds=seconds))}" if seconds else ""
    table.add_row("lag", "?" if lag["rows"] is None else f"{lag['rows']:,}", f"{lag['logs'] or 0:,} logs{since}")
    for each in lag["worst"][:_WORST]:
        table.add_row("", f"{each['rows']:,}", Text(printable(each["log"])))
    if (last := status.last_commit) is None:
        table.add_row("last commit", "none yet")
    else:
        phases = ", ".join(f"{phase} {took / 1000:.1f} s" for phase, took in last["milliseconds"].items())
        details = f"{last['rows']:,} rows, {last['files']:,} files, {decimal(last['bytes'])}; {phases}"
        table.add_row("last commit", f"{_age(now - last['time'])} ago", details)
    for name in ("dead_letters", "quarantined", "gap_count", "restarts", "unmirrored_count"):
        if count := getattr(status, name):
            details = describe(status.gaps[-1:]) if name == "gap_count" else ""
            table.add_row(name.removesuffix("_count").replace("_", " "), f"{count:,}", Text(printable(details), "red"))
    return table


def summary(status: Status, now: datetime) -> str:
    """Return what a run has done, in one or a few lines without a final newline."""
    areas = f"{status.messages:,} messages, {status.dead_letters:,} dead letters, {status.quarantined:,} quarantined"
    lines = [
        f"{status.rows:,} rows mirrored in {status.batches:,} batches, {_age(now - status.started)}",
        f"{areas}; {status.files:,} files, {decimal(status.bytes)}",
    ]
    if status.gap_count:
        lines.append(f"{status.gap_count:,} gaps: {describe(status.gaps)}")
    if status.unmirrored:
        lines.append(f"{status.unmirrored_count:,} destinations not mirrored")
        lines += [f"{each['destination']}: {each['reason']}" for each in status.unmirrored[:_UNMIRRORED]]
    return "\n".join(map(printable, lines))


def _age(age: timedelta) -> str:
    """Return `h:mm:ss`; a negative age, which a clock that was set back causes, is 0."""
    return str(max(timedelta(), age)).partition(".")[0]
