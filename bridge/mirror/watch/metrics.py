"""The state as Prometheus metrics. Labels come from our own tables: no log or destination of a broker is one."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bridge.mirror.watch.events import PHASES, Committed, Event
from bridge.mirror.watch.state import State

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_SECOND: Final = 1000
"""In ms."""

_TOTALS: Final[dict[str, tuple[str, Callable[[State], int]]]] = {
    "bytes": ("Bytes of the Parquet files written.", lambda state: state.bytes),
    "files": ("Parquet files written.", lambda state: state.files),
    "batches": ("Batches committed.", lambda state: state.batches),
    "gaps": ("Ranges of offsets that were gone before they could be read.", lambda state: state.gap_count),
    "restarts": ("How often the query was started again.", lambda state: state.restarts),
}
_NOW: Final[dict[str, tuple[str, Callable[[State], float | None]]]] = {
    "up": ("1 while the query runs and its backend can be reached.", lambda state: state.condition == "running"),
    "rows_per_second": ("Rows mirrored a second, between the last two triggers.", lambda state: state.speed),
    "lag_rows": ("Offsets that the backend holds and the mirror does not yet.", lambda state: state.behind),
    "lag_rows_max": (
        "Of those, in the log that is furthest behind.",
        lambda state: None if state.lag is None else max(state.lag.values(), default=0),
    ),
    "lag_logs": ("Logs that are behind.", lambda state: None if state.lag is None else len(state.lag)),
    "unmirrored_destinations": (
        "Destinations that cannot be mirrored.",
        lambda state: len(state.unmirrored),
    ),
    "last_commit_timestamp_seconds": (
        "When the last batch was committed.",
        lambda state: None if state.last is None else state.last.committed / _SECOND,
    ),
}
"""None: not known, and not shown."""


class Metrics(Collector):
    """All metrics of one mirror."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._took = {phase: _Times() for phase in PHASES}

    def saw(self, event: Event) -> None:
        """Take in what a state does not keep: how long each batch took."""
        if isinstance(event, Committed):
            for phase, milliseconds in event.milliseconds.items():
                self._took[phase].add(milliseconds / _SECOND)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family; called by the registry on a scrape."""
        state = self._state()
        rows = CounterMetricFamily("oms_mirror_rows", "Rows mirrored.", labels=("area",))
        for area, count in state.rows.items():
            rows.add_metric((area,), count)
        yield rows
        for name, (meaning, total) in _TOTALS.items():
            yield CounterMetricFamily(f"oms_mirror_{name}", meaning, value=total(state))
        for name, (meaning, now) in _NOW.items():
            if (value := now(state)) is not None:
                yield GaugeMetricFamily(f"oms_mirror_{name}", meaning, value=value)
        took = HistogramMetricFamily("oms_mirror_batch_seconds", "Time a batch took in the sink.", labels=("phase",))
        for phase, times in self._took.items():
            took.add_metric((phase,), buckets=times.cumulated(), sum_value=times.seconds)
        yield took


class _Times:
    def __init__(self) -> None:
        self.seconds = 0.0
        self._buckets = [0] * (len(_BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self._buckets[bisect_left(_BUCKETS, seconds)] += 1

    def cumulated(self) -> list[tuple[str, int]]:
        return list(zip(map(str, (*_BUCKETS, "+Inf")), accumulate(self._buckets), strict=True))
