"""Sends the metrics of `/metrics` to an OTLP receiver, at intervals."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from bridge import __version__
from bridge.tracing.spans import resource

_TIMEOUT: Final = 3.0
"""Seconds that one export may take; also the last one, when the bridge stops."""
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class MetricsExport:
    """Sends all metrics, and once more at the end."""

    def __init__(
        self, exporter: MetricExporter, families: Callable[[], Awaitable[Iterable[Family]]], interval: int
    ) -> None:
        """`interval`: ms."""
        self._exporter = exporter
        self._families = families
        self._interval = interval / 1000
        self._since = time.time_ns()

    async def run(self) -> None:
        """Send until cancelled. A receiver that is away costs what it did not get; the SDK logs it."""
        while True:
            try:
                await asyncio.sleep(self._interval)
            finally:
                await asyncio.to_thread(self._exporter.export, self._data(await self._families()))

    def _data(self, families: Iterable[Family]) -> MetricsData:
        metrics = [self._metric(family) for family in families if family.samples]
        scope = ScopeMetrics(InstrumentationScope("openmessaging-bridge", __version__), metrics, "")
        return MetricsData([ResourceMetrics(resource(), [scope], "")])

    def _metric(self, family: Family) -> Metric:
        """Return a metric with the name of its series, of a counter without `_total`: receivers add it."""
        now, samples = time.time_ns(), family.samples
        if family.type == "histogram":
            return Metric(
                family.name, family.documentation, "s", Histogram(self._histograms(samples, now), _CUMULATIVE)
            )
        points = [NumberDataPoint(each.labels, self._since, now, float(each.value)) for each in samples]
        if family.type == "counter":
            return Metric(family.name, family.documentation, "", Sum(points, _CUMULATIVE, is_monotonic=True))
        return Metric(samples[0].name, family.documentation, "", Gauge(points))

    def _histograms(self, samples: Sequence[Sample], now: int) -> list[HistogramDataPoint]:
        by_labels: defaultdict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
        for each in samples:
            by_labels[tuple((name, value) for name, value in each.labels.items() if name != "le")].append(each)
        return [self._histogram(dict(labels), found, now) for labels, found in by_labels.items()]

    def _histogram(self, labels: dict[str, str], samples: Sequence[Sample], now: int) -> HistogramDataPoint:
        below = [(float(each.labels["le"]), int(each.value)) for each in samples if "le" in each.labels]
        counts = [count - before for (_, count), (_, before) in zip(below, [(0, 0), *below], strict=False)]
        total = next(each.value for each in samples if each.name.endswith("_sum"))
        bounds = [bound for bound, _ in below[:-1]]
        return HistogramDataPoint(labels, self._since, now, below[-1][1], total, counts, bounds, None, None)  # type: ignore[arg-type] # the least and the largest are not known


def metric_exporter(endpoint: str, protocol: Literal["http", "grpc"]) -> MetricExporter:
    """Return the exporter for the receiver at `endpoint`, without connecting."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter  # noqa: PLC0415 - see `spans`

        return GrpcExporter(endpoint, timeout=_TIMEOUT)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - see `spans`

    return OTLPMetricExporter(f"{endpoint.rstrip('/')}/v1/metrics", timeout=_TIMEOUT)
