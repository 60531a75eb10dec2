"""A mirror that has run for a while, as its status holds it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from bridge.mirror.monitoring.status import Committed, Status
from bridge.mirror.offsets import Gap
from bridge.mirror.schema import Area

BEGIN = datetime(2027, 1, 15, 8, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def batch(number: int, rows: Mapping[Area, int], gaps: tuple[Gap, ...] = ()) -> Committed:
    """Return a batch that was committed ten seconds after the one before it."""
    took = {"stage": 1800, "commit": 12}
    return Committed(
        f"commit {number}", number, rows, 350_000, 4, gaps, took, int(after(number * 10).timestamp() * 1000)
    )


def busy() -> Status:
    """Return ten batches in a hundred seconds, with everything that can be shown."""
    status = Status("kafka://user:***@broker-1:9092", "/srv/mirror", BEGIN, "0.1.0", 77)
    lag = {f"orders/{partition}": 20_000 - partition * 1500 for partition in range(8)}
    status.activity = "reading and writing a batch"
    status.query_started("run", BEGIN)
    for number in range(1, 11):
        gaps = (Gap("orders/0", 10, 20),) if number == 7 else ()
        status.committed(batch(number, {"data": 12_345 * number, "dead-letters": 3, "quarantine": number // 10}, gaps))
        status.triggered(12_345, 2300, lag, after(number * 10 + 0.2))
    status.not_mirrored({"legacy": "it is a queue"})
    return status
