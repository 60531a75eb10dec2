"""What the span of a batch shows of its messages."""

import logging
from datetime import UTC, datetime

import pyarrow.dataset as pds

from bridge.mirror.monitoring.status import Committed
from bridge.mirror.table import Table
from bridge.tracing.spans import BatchSpan

_log = logging.getLogger(__name__)


def describe(span: BatchSpan, table: Table, batch: Committed) -> None:
    """Add to a span what was committed, read from the table. If that fails, the span is without it."""
    span.count(sum(batch.rows.values()))
    written = pds.field("mirrored_timestamp") == datetime.fromtimestamp(batch.committed / 1000, UTC)
    try:
        rows = table.dataset().to_table(["destination", "traceparent"], filter=written)
        span.describe(rows["destination"].unique().to_pylist(), rows["traceparent"].unique().drop_null().to_pylist())
    except Exception:  # noqa: BLE001 - of delta-rs and pyarrow, which share no base
        _log.warning("the messages of a batch could not be read for its span", exc_info=True)
