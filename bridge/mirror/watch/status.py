"""The state as one JSON document, and the file it is kept in. docs/mirror-status.md is its table."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from bridge import __version__
from bridge.mirror import layout
from bridge.mirror.options import Options
from bridge.mirror.watch.state import State
from bridge.settings import redact

WORST: Final = 20
"""Logs whose lag is named."""
NAMED: Final = 100
"""Destinations that are not mirrored and are named."""

Document = Mapping[str, object]


class About(NamedTuple):
    """What does not change while a mirror runs; free of secrets."""

    backend: str
    out: str
    version: str = __version__
    pid: int = 0


def about(options: Options) -> About:
    """Return what may be shown of the options."""
    out = redact(options.out) if "://" in options.out else options.out
    return About(redact(options.backend), out, pid=os.getpid())


def document(state: State, about: About, now: int) -> Document:
    """Return the document. `now` in ms since 1970."""
    return {
        "state": state.condition,
        "reason": state.reason,
        **about._asdict(),
        "started": _time(state.since),
        "written": _time(now),
        "rows_per_second": round(state.speed, 1),
        "rows": state.total,
        "messages": state.rows["data"],
        "dead_letters": state.rows["dead-letters"],
        "quarantined": state.rows["quarantine"],
        "bytes": state.bytes,
        "files": state.files,
        "batches": state.batches,
        "last_commit": _last(state),
        "lag": _lag(state),
        "gap_count": state.gap_count,
        "gaps": [gap._asdict() for gap in state.gaps],
        "restarts": state.restarts,
        "unmirrored_count": len(state.unmirrored),
        "unmirrored": [{"destination": name, "reason": why} for name, why in islice(state.unmirrored.items(), NAMED)],
    }


def write(path: Path, document: Document) -> None:
    """Put the document in place of the one before: a reader sees one or the other, whole. Raises `OSError`."""
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        passing.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
        passing.replace(path)
    except OSError:
        passing.unlink(missing_ok=True)
        raise


def _last(state: State) -> Document | None:
    if (last := state.last) is None:
        return None
    return {
        "time": _time(last.committed),
        "batch": last.batch,
        "manifest": layout.manifest(last.key),
        "rows": sum(last.rows.values()),
        "bytes": last.bytes,
        "files": last.files,
        "milliseconds": {**last.milliseconds},
        "trigger_milliseconds": state.trigger,
    }


def _lag(state: State) -> Document:
    return {
        "rows": state.behind,
        "logs": None if state.lag is None else len(state.lag),
        "worst": [{"log": log, "rows": rows} for log, rows in state.worst(WORST)],
    }


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
