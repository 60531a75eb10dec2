"""What is logged of a mirror: what needs somebody's eye always, every batch where nothing else shows it."""

import logging
from itertools import islice
from typing import Final

from bridge.mirror import layout
from bridge.mirror.sources.ranges import told
from bridge.mirror.watch.events import Committed, Event, OutageBegan, Unmirrored
from bridge.mirror.watch.state import State

_NAMED: Final = 10

_log = logging.getLogger("bridge.mirror")


def note(event: Event, before: State, after: State, *, batches: bool) -> None:
    """Log an event; `batches`: each batch too."""
    match event:
        case Committed():
            _committed(event, batches=batches)
        case OutageBegan() if before.waiting is None:
            _log.warning("the backend is not ready", extra={"reason": event.reason})
        case Unmirrored() if after.unmirrored != before.unmirrored and after.unmirrored:
            names = "; ".join(f"{name}: {why}" for name, why in islice(after.unmirrored.items(), _NAMED))
            _log.warning("destinations are not mirrored", extra={"count": len(after.unmirrored), "first": names})
        case _ if before.waiting is not None and after.condition == "running":
            _log.warning("the backend is ready")
    if after.restarts > before.restarts:
        _log.warning("the query runs again", extra={"restarts": after.restarts})


def _committed(batch: Committed, *, batches: bool) -> None:
    manifest = layout.manifest(batch.key)
    if bad := batch.rows.get("quarantine"):
        _log.warning("records could not be read; they are in quarantine", extra={"rows": bad, "manifest": manifest})
    if batch.gaps:
        gone = {"gaps": told(batch.gaps), "manifest": manifest}
        _log.warning("offsets were gone before they could be read", extra=gone)
    if batches:
        numbers = {f"rows_{area.replace('-', '_')}": rows for area, rows in batch.rows.items()}
        _log.info(
            "a batch is mirrored",
            extra={
                "manifest": manifest,
                **numbers,
                "bytes": batch.bytes,
                "files": batch.files,
                **{f"{phase}_ms": took for phase, took in batch.milliseconds.items()},
            },
        )
