"""The status as Prometheus metrics. Labels come from fixed tables: no log or destination of a broker is one."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bridge.mirror.monitoring.status import Status

disable_created_metrics()  # type: ignore[no-untyped-call]  # series without readers

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_COUNTERS: Final[dict[str, tuple[str, Callable[[Status], int]]]] = {
    "bytes": ("Bytes of the Parquet files written.", lambda status: status.bytes),
    "files": ("Parquet files written.", lambda status: status.files),
    "batches": ("Batches committed.", lambda status: status.batches),
    "gaps": ("Ranges of offsets that were dropped before they could be read.", lambda status: status.gap_count),
    "restarts": ("Restarts of the query.", lambda status: status.restarts),
}
_GAUGES: Final[dict[str, tuple[str, Callable[[Status], float | None]]]] = {
    "up": ("1 while the query runs and its backend can be reached.", lambda status: status.state == "running"),
    "rows_per_second": ("Rows mirrored per second, between the last two triggers.", lambda s: s.rows_per_second),
    "lag_rows": ("Offsets that the mirror has not written yet.", lambda status: status.lag["rows"]),
    "lag_rows_max": (
        "Offsets not written yet of the log that is furthest behind.",
        lambda status: None if status.lag["rows"] is None else sum(log["rows"] for log in status.lag["worst"][:1]),
    ),
    "lag_logs": ("Logs that are behind.", lambda status: status.lag["logs"]),
    "unmirrored_destinations": ("Destinations that cannot be mirrored.", lambda status: status.unmirrored_count),
    "last_commit_timestamp_seconds": (
        "Time of the last commit.",
        lambda status: status.last_commit["time"].timestamp() if status.last_commit else None,
    ),
}
"""None: unknown; the metric is absent."""


class StatusCollector(Collector):
    """The metrics of one mirror that its status holds."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families; the registry calls it on a scrape."""
        rows = CounterMetricFamily("oms_mirror_rows", "Rows mirrored.", labels=("area",))
        for area, name in (("data", "messages"), ("dead-letters", "dead_letters"), ("quarantine", "quarantined")):
            rows.add_metric((area,), getattr(self._status, name))
        yield rows
        for name, (meaning, counter) in _COUNTERS.items():
            yield CounterMetricFamily(f"oms_mirror_{name}", meaning, value=counter(self._status))
        for name, (meaning, gauge) in _GAUGES.items():
            if (value := gauge(self._status)) is not None:
                yield GaugeMetricFamily(f"oms_mirror_{name}", meaning, value=value)


def registry(status: Status) -> tuple[CollectorRegistry, Histogram]:
    """Return all metrics of a mirror, and the one that counts how long each phase of a batch took, in seconds."""
    made = CollectorRegistry(auto_describe=False)
    made.register(StatusCollector(status))
    ProcessCollector(registry=made)
    name = "oms_mirror_batch_duration_seconds"
    return made, Histogram(name, "Time of a batch.", ("phase",), registry=made, buckets=_BUCKETS)
