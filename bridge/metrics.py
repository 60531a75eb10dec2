"""Prometheus metrics. Clients name the values of the labels `destination` and `group` only, up to a limit."""

import asyncio
import platform
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Final

from bridge import __version__
from bridge.callbacks.counters import CallbackCounters
from bridge.engine.client_limits import MemoryBudget
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.identity.access import Access
from bridge.long_work import Slicer, Steps

# prometheus_client imports python-snappy, if it is installed, for pushes that the bridge does not make: 1.7 MiB
sys.modules.setdefault("snappy", None)  # type: ignore[arg-type] # None makes an import of it fail
try:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
finally:
    if sys.modules["snappy"] is None:
        del sys.modules["snappy"]

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Seconds."""
_LAG_EVERY: Final = 0.5
"""Seconds between two measurements of the event loop's lag."""

_TOTALS: Final = {
    "produced": "Messages stored, including those that had expired when they arrived.",
    "delivered": "Deliveries of messages to consumers, redeliveries included.",
    "redelivered": "Deliveries of messages that had been delivered before.",
    "settled": "Messages acknowledged, or settled before they were sent.",
    "nacked": "Messages that their consumer has returned with a nack.",
    "leases_ended": "Leases that reached their end without an ack or a nack.",
    "duplicates": "Produced messages that were not stored, because an earlier one of the same name was.",
    "expired": "Messages dropped after their expireTime.",
    "dead_letters": "Messages moved to a dead-letter destination.",
    "dead_letter_failures": "Failed attempts to write a dead letter; each is retried.",
    "callbacks_delivered": "Callback requests that the endpoint answered with 2xx.",
    "callbacks_failed": "Callback requests that failed.",
    "transactions_committed": "Transactions committed.",
    "transactions_rolled_back": "Transactions rolled back, after their timeout or before.",
    "transaction_checks": "Times that a producer was asked whether to commit.",
}
_NOW: Final = {
    "in_flight": "Messages that the backend has not confirmed yet.",
    "in_flight_bytes": "Bytes of messages that the backend has not confirmed yet.",
    "waiting_pulls": "Pulls and streams that wait for a message.",
    "callbacks": "Registered callbacks.",
    "callback_circuits_open": "Callbacks whose circuit is open: no requests are sent to their endpoint.",
}


class Observer:
    """Counts the requests of one route: plain integers on the hot path (0.4 us), turned into metrics by a scrape.

    prometheus_client's own histogram costs 2.4 us an observation, 4 % of a whole produce.
    """

    __slots__ = ("active", "buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.active = 0
        self.statuses: Counter[int] = Counter()
        self.buckets = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0

    def begin(self) -> float:
        """Count the start of a request and return its time."""
        self.active += 1
        return perf_counter()

    def end(self, begun: float, status: int) -> None:
        """Count the end of a request. Status 499: the client disconnected before the response."""
        took = perf_counter() - begun
        self.active -= 1
        self.statuses[status] += 1
        self.seconds += took
        self.buckets[bisect_left(_BUCKETS, took)] += 1


class BridgeMetrics(Collector):
    """All metrics of one bridge."""

    def __init__(
        self,
        engine: Engine,
        memory: MemoryBudget | None = None,
        callbacks: CallbackCounters | None = None,
        access: Access | None = None,
    ) -> None:
        self._engine = engine
        self._callbacks = callbacks or CallbackCounters()
        self.access = access
        self.memory = memory or MemoryBudget()
        self._observers: dict[str, Observer] = {}
        self.refusals: Counter[str] = Counter()
        """Requests answered with an error, by its code."""
        self._lag = 0.0
        self._slicer = Slicer()
        self._behind: Mapping[SubscriptionKey, int] = {}
        """Messages that are not settled, by the label of the group, when they were last counted."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def observer(self, route: str) -> Observer:
        """Return the observer of a route, such as `POST /v1/messages`."""
        return self._observers.setdefault(route, Observer())

    async def families(self) -> Iterable[Metric]:
        """Return all metrics."""
        await self.count_unsettled()
        return self._registry.collect()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format; `count_unsettled` comes before."""
        return generate_latest(self._registry)

    async def count_unsettled(self) -> None:
        """Count what each group has not settled, in slices: a group has a position in each of its partitions."""
        self._behind = await self._slicer.run(self._unsettled())

    def _unsettled(self) -> Steps[Mapping[SubscriptionKey, int]]:
        behind: Counter[SubscriptionKey] = Counter()
        for key, group in self._engine.groups:
            if (messages := group.lag) is not None:
                behind[self._engine.group_counts.label(key)] += messages
            yield
        return behind

    def totals(self) -> dict[str, int]:
        """Return the counters of the engine and of callbacks, for `/status`."""
        return {name: self._count(name) for name in (*_TOTALS, *_NOW)}

    def _count(self, name: str) -> int:
        counters = self._callbacks if hasattr(self._callbacks, name) else self._engine.counters
        count: int = getattr(counters, name)
        return count

    async def measure_loop_lag(self) -> None:
        """Measure every 0.5 s how late the event loop calls a timer, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_EVERY
            await asyncio.sleep(_LAG_EVERY)
            self._lag = max(0.0, loop.time() - due)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family; called by the registry on a scrape."""
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("oms_build", "1, with the version of the bridge and of its Python.", value=build)
        yield from self._requests()
        yield from self._by_destination_and_group()
        refusals = CounterMetricFamily("oms_refusals", "Requests answered with an error.", labels=("code",))
        for code, count in self.refusals.items():
            refusals.add_metric((code,), count)
        yield refusals
        yield from self._denials()
        for name, text in _TOTALS.items():
            yield CounterMetricFamily(f"oms_{name}", text, value=self._count(name))
        for name, text in _NOW.items():
            yield GaugeMetricFamily(f"oms_{name}", text, value=self._count(name))
        ready = self._engine.not_ready_reason is None and not self._engine.draining
        prefetched = [group.prefetched for _, group in self._engine.groups]
        for name, text, value in (
            ("ready", "1 if /readyz answers 200, else 0.", ready),
            ("loop_lag_seconds", "How late the event loop called a timer, last measurement.", self._lag),
            ("memory_held_bytes", "Bytes of requests and replies, held for clients.", self.memory.held),
            ("transactions", "Open transactions with messages from this bridge.", self._engine.transactions.opened),
            ("groups", "Open consumer groups.", len(prefetched)),
            (
                "prefetch_messages",
                "Messages in prefetch buffers, leased ones included.",
                sum(p.messages for p in prefetched),
            ),
            ("prefetch_bytes", "Bytes of the messages in prefetch buffers.", sum(p.bytes for p in prefetched)),
            (
                "parked_messages",
                "Messages that wait without a body, to be fetched again.",
                sum(p.parked for p in prefetched),
            ),
            ("leases", "Leased messages.", sum(p.leases for p in prefetched)),
        ):
            yield GaugeMetricFamily(f"oms_{name}", text, value=value)
        if (backend := self._engine.measured) is not None:
            for name, value in backend.gauges().items():
                yield GaugeMetricFamily(f"oms_backend_{name}", backend.help_texts[name], value=value)
            for name, value in backend.totals().items():
                yield CounterMetricFamily(f"oms_backend_{name}", backend.help_texts[name], value=value)

    def _denials(self) -> Iterator[Metric]:
        denials = CounterMetricFamily("oms_denials", "Requests denied by identity or rules.", labels=("reason",))
        for reason, count in () if self.access is None else self.access.audit.denials.items():
            denials.add_metric((reason,), count)
        yield denials
        refused = 0 if self.access is None else self.access.refused_files
        text = "Changed files of tokens, rules, revocations or keys that cannot be used."
        yield GaugeMetricFamily("oms_auth_files_refused", text, value=refused)

    def _by_destination_and_group(self) -> Iterator[Metric]:
        stored = CounterMetricFamily("oms_destination_stored", "Messages stored.", labels=("destination",))
        for destination, counts in self._engine.destination_counts.items():
            stored.add_metric((destination,), counts.stored)
        labels = ("destination", "group")
        delivered = CounterMetricFamily("oms_group_delivered", "Deliveries, redeliveries included.", labels=labels)
        settled = CounterMetricFamily("oms_group_settled", "Messages acknowledged, or settled before.", labels=labels)
        lag = GaugeMetricFamily("oms_group_lag_messages", "Messages stored and not settled, about.", labels=labels)
        groups = self._engine.group_counts
        for key, counts in groups.items():
            delivered.add_metric(key, counts.delivered)
            settled.add_metric(key, counts.settled)
        for key, messages in self._behind.items():
            lag.add_metric(key, messages)
        yield from (stored, delivered, settled, lag)

    def _requests(self) -> Iterator[Metric]:
        by_status = CounterMetricFamily("oms_requests", "Requests answered.", labels=("route", "status"))
        active = GaugeMetricFamily(
            "oms_requests_active", "Requests being answered, waiting pulls included.", labels=("route",)
        )
        seconds = HistogramMetricFamily(
            "oms_request_duration_seconds", "Time from a request to the end of its response.", labels=("route",)
        )
        for route, observer in self._observers.items():
            for status, count in observer.statuses.items():
                by_status.add_metric((route, str(status)), count)
            active.add_metric((route,), observer.active)
            below, cumulated = 0, []
            for bound, count in zip((*_BUCKETS, "+Inf"), observer.buckets, strict=True):
                below += count
                cumulated.append((str(bound), below))
            seconds.add_metric((route,), buckets=cumulated, sum_value=observer.seconds)
        yield from (by_status, active, seconds)
