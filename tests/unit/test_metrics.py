import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from adapters.memory import connect
from adapters.memory.subscription import MemorySubscription
from bridge.callbacks.counters import CallbackCounters
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.http.data_port import DataApp, routes
from bridge.http.management_port import management_app
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import Limits
from bridge.long_work import Slicer
from bridge.message import Message
from bridge.metrics import BridgeMetrics, Observer
from tests.calls import produce, settled

OPERATIONS_PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
VERSION = {"x-oms-version": "1.0.0"}
FACTS = {"backend": "memory://"}


class InProcessBridge:
    """A bridge without its servers."""

    def __init__(self) -> None:
        self.engine = Engine(connect("memory://"), SystemClock(), EngineOptions("here", metric_labels=1))
        self.callbacks = CallbackRegistry(self.engine)
        self.metrics = BridgeMetrics(self.engine, callbacks=self.callbacks.counters)
        limits = Limits()
        self.table = routes(self.engine, self.callbacks, limits, 16)
        data = DataApp(self.table, OriginPolicy((), ()), limits, self.metrics)
        self.data = _client(httpx.ASGITransport(data))
        self.management = _client(
            httpx.ASGITransport(management_app(self.engine, self.metrics, FACTS, OriginPolicy((), ())))
        )

    def scrape(self) -> dict[str, Metric]:
        text = self.metrics.exposition().decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str) -> float:
        (sample,) = [s for family in self.scrape().values() for s in family.samples if s.name == name]
        return float(sample.value)

    def series(self) -> set[str]:
        """Name every series, without the values."""
        return {line.rpartition(b" ")[0].decode() for line in _samples(self.metrics.exposition())}


def _client(transport: httpx.ASGITransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def _samples(exposition: bytes) -> Iterator[bytes]:
    return (line for line in exposition.splitlines() if line and not line.startswith(b"#"))


@pytest.fixture
async def bridge() -> AsyncIterator[InProcessBridge]:
    bridge = InProcessBridge()
    await bridge.engine.start()
    yield bridge
    await bridge.engine.close()


async def test_every_counter_is_exposed(bridge: InProcessBridge) -> None:
    names = (*Counters.__slots__, *CallbackCounters.__slots__)
    for number, name in enumerate(names, 1):
        setattr(bridge.engine.counters if name in Counters.__slots__ else bridge.callbacks.counters, name, number)
    families = bridge.scrape()
    for number, name in enumerate(names, 1):
        (sample,) = families[f"oms_{name}"].samples
        assert sample.value == number, name
        assert sample.name in {f"oms_{name}", f"oms_{name}_total"}
        assert sample.name.endswith("_total") is (families[f"oms_{name}"].type == "counter")
    assert bridge.metrics.totals() == {name: number for number, name in enumerate(names, 1)}


async def test_every_family_says_what_it_is(bridge: InProcessBridge) -> None:
    for name, family in bridge.scrape().items():
        assert family.documentation, name
        assert family.type in {"counter", "gauge", "histogram"}, name
        assert name.startswith(("oms_", "process_")), name


async def test_the_operations_page_lists_every_metric_and_no_other(bridge: InProcessBridge) -> None:
    rows = re.findall(r"^\| (`(?:oms|process)_[^|]*) \|", OPERATIONS_PAGE.read_text("utf-8"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    families = bridge.scrape()
    exposed = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert listed == exposed


async def test_what_happens_to_a_message_is_counted(bridge: InProcessBridge) -> None:
    await bridge.data.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": "orders"}, content=b"x")
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-ack": "true"}
    first = await bridge.data.get("/v1/messages", headers=pull)
    assert (bridge.value("oms_leases"), bridge.value("oms_groups")) == (1, 1)
    await bridge.data.post("/v1/nack", headers=VERSION | {"x-oms-receipt": first.headers["x-oms-receipt"]})
    second = await bridge.data.get("/v1/messages", headers=pull)
    await bridge.data.post("/v1/ack", headers=VERSION | {"x-oms-receipt": second.headers["x-oms-receipt"]})
    counted = {name: bridge.value(f"oms_{name}_total") for name in ("produced", "delivered", "redelivered", "nacked")}
    assert counted == {"produced": 1, "delivered": 2, "redelivered": 1, "nacked": 1}
    assert bridge.value("oms_settled_total") == 1
    assert bridge.value("oms_leases") == 0


async def test_destinations_and_groups_have_labels_up_to_a_limit(bridge: InProcessBridge) -> None:
    for destination, count in (("orders", 3), ("bills", 2), ("carts", 1)):
        for _ in range(count):
            await bridge.data.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": destination})
        source = VERSION | {"x-oms-source": destination, "x-oms-consumerid": "app"}
        await bridge.data.get("/v1/messages", headers=source | {"x-oms-ack": "true"})  # a lease does not settle
        if count > 1:
            await bridge.data.get("/v1/messages", headers=source)
    await bridge.metrics.count_unsettled()
    families = bridge.scrape()
    found = {
        name: {tuple(sample.labels.values()): sample.value for sample in families[f"oms_{name}"].samples}
        for name in ("destination_stored", "group_delivered", "group_settled", "group_lag_messages")
    }
    assert found == {
        "destination_stored": {("orders",): 3, ("other",): 3},
        "group_delivered": {("orders", "app"): 2, ("other", "other"): 3},
        "group_settled": {("orders", "app"): 1, ("other", "other"): 1},
        "group_lag_messages": {("orders", "app"): 2, ("other", "other"): 2},
    }


async def test_a_scrape_of_many_groups_and_partitions_leaves_the_loop_to_others() -> None:
    """Each of 300 groups has a position in each of 256 partitions."""
    engine = Engine(connect("memory://?partitions=256"), SystemClock(), EngineOptions("here", metric_labels=10))
    await engine.start()
    metrics = BridgeMetrics(engine)
    client = _client(httpx.ASGITransport(management_app(engine, metrics, FACTS, OriginPolicy((), ()))))
    await produce(engine, Message("orders", b"x"), (), "")
    for number in range(300):
        await settled(engine.pull(SubscriptionKey("orders", f"g{number}"), PullRequest(1000), ack=True))
    counted: list[Group] = []
    most = 0
    ticks = itertools.count()
    metrics._slicer = Slicer(lambda: next(ticks) / 1000)  # each step takes 1 ms, and a slice has five

    def lag(group: Group) -> int:
        counted.append(group)
        return 7

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "lag", property(lag))
        scraping = asyncio.ensure_future(client.get("/metrics"))
        while not scraping.done():
            before = len(counted)
            await asyncio.sleep(0)
            most = max(most, len(counted) - before)
    assert 'oms_group_lag_messages{destination="orders",group="g7"} 7.0' in (await scraping).text
    assert len(counted) == len(set(counted)) == 300
    assert most <= 6
    await metrics.count_unsettled()
    assert 'oms_group_lag_messages{destination="orders",group="g7"} 1.0' in metrics.exposition().decode()
    await engine.close()


async def test_requests_are_counted_by_route_and_status(bridge: InProcessBridge) -> None:
    for _ in range(3):
        await bridge.data.get("/v1/capabilities")
    await bridge.data.get("/v1/messages")
    counted = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in bridge.scrape()["oms_requests"].samples
    }
    assert counted == {("GET /v1/capabilities", "200"): 3, ("GET /v1/messages", "400"): 1}


async def test_a_request_under_way_is_active(bridge: InProcessBridge) -> None:
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-waitmills": "10000"}
    waiting = asyncio.create_task(bridge.data.get("/v1/messages", headers=pull))
    async with asyncio.timeout(30):
        while not bridge.value("oms_waiting_pulls"):  # noqa: ASYNC110 - a gauge has no event
            await asyncio.sleep(0.001)
    active = {s.labels["route"]: s.value for s in bridge.scrape()["oms_requests_active"].samples}
    assert {route for route, number in active.items() if number} == {"GET /v1/messages"}
    assert bridge.value("oms_waiting_pulls") == 1
    bridge.engine.drain()
    await waiting
    assert not any(sample.value for sample in bridge.scrape()["oms_requests_active"].samples)
    assert bridge.value("oms_waiting_pulls") == 0


async def test_no_input_adds_a_series(bridge: InProcessBridge) -> None:
    async def ask(number: int) -> None:
        name = f"d{number}"
        await bridge.data.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": name}, content=b"x")
        await bridge.data.get("/v1/messages", headers=VERSION | {"x-oms-source": name, "x-oms-consumerid": name})
        await bridge.data.get(f"/v1/{name}?{name}={name}", headers={f"x-oms-{name}": name})
        await bridge.data.request(f"VERB{number}", "/v1/messages")
        await bridge.data.get("/v1/messages", headers={"x-oms-consumerid": name})

    await ask(0)
    await ask(1)
    before = bridge.series()
    for number in range(2, 500):
        await ask(number)
    assert bridge.value("oms_produced_total") == 500
    assert bridge.series() == before
    assert not any("d499" in series for series in before)


async def test_the_routes_are_those_of_the_table(bridge: InProcessBridge) -> None:
    routes_shown = {sample.labels["route"] for sample in bridge.scrape()["oms_requests_active"].samples}
    assert routes_shown == {f"{method} {path}" for path, methods in bridge.table.items() for method in methods} | {
        "other"
    }


async def test_what_the_table_does_not_know_is_counted_together(bridge: InProcessBridge) -> None:
    await bridge.data.get("/v1/nowhere")
    await bridge.data.put("/v1/messages")
    found = {
        s.labels["status"]: s.value for s in bridge.scrape()["oms_requests"].samples if s.labels["route"] == "other"
    }
    assert found == {"404": 1.0, "405": 1.0}


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0004, "0.0005"), (0.0006, "0.001"), (0.3, "0.5"), (90.0, "+Inf")])
def test_an_observation_falls_into_its_bucket(seconds: float, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    monkeypatch.setattr("bridge.metrics.perf_counter", lambda: 1000.0)
    begun = observer.begin()
    monkeypatch.setattr("bridge.metrics.perf_counter", lambda: 1000.0 + seconds)
    observer.end(begun, 200)
    bridge = BridgeMetrics(Engine(connect("memory://"), SystemClock(), EngineOptions(store_host="here")))
    bridge._observers["GET /x"] = observer
    (family,) = [f for f in text_string_to_metric_families(bridge.exposition().decode()) if f.type == "histogram"]
    cumulated = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    bounds = sorted(cumulated, key=float)
    assert [cumulated[bound] for bound in bounds] == [float(float(bound) >= float(bucket)) for bound in bounds]
    rest = {s.name: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert rest["oms_request_duration_seconds_count"] == 1
    assert rest["oms_request_duration_seconds_sum"] == pytest.approx(seconds)


async def test_ready_says_what_readyz_says(bridge: InProcessBridge) -> None:
    assert (bridge.value("oms_ready"), (await bridge.management.get("/readyz")).status_code) == (1, 200)
    bridge.engine.not_ready_reason = "the broker is away"
    assert (bridge.value("oms_ready"), (await bridge.management.get("/readyz")).status_code) == (0, 503)
    bridge.engine.not_ready_reason = None
    bridge.engine.drain()
    assert (bridge.value("oms_ready"), (await bridge.management.get("/readyz")).status_code) == (0, 503)


async def test_status_says_why_the_bridge_is_not_ready(bridge: InProcessBridge) -> None:
    assert (await bridge.management.get("/status")).json()["notReadyReason"] is None
    bridge.engine.not_ready_reason = "the broker is away"
    assert (await bridge.management.get("/status")).json()["notReadyReason"] == "the broker is away"


async def test_a_group_that_the_backend_has_dropped_says_so(
    bridge: InProcessBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemorySubscription, "not_ready_reason", None, raising=False)  # as on a backend with members
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing"}
    assert (await bridge.data.get("/v1/messages", headers=pull)).status_code == 204
    assert (await bridge.management.get("/readyz")).text == "ready\n"
    assert (await bridge.management.get("/status")).json()["groups"][0]["notReadyReason"] is None
    monkeypatch.setattr(MemorySubscription, "not_ready_reason", "another bridge has joined.")
    ready = await bridge.management.get("/readyz")
    said = "ready\ngroup billing of orders is not ready: another bridge has joined.\n"
    assert (ready.status_code, ready.text) == (200, said)
    assert (await bridge.management.get("/status")).json()["groups"][0]["notReadyReason"] == (
        "another bridge has joined."
    )
    [(_, group)] = bridge.engine.groups
    group.last_used = -1
    refused = await bridge.data.get("/v1/messages", headers=pull)
    assert group.last_used > 0, "a group whose consumers are refused is not idle"
    assert (refused.status_code, refused.json()["code"]) == (503, "backend-unavailable")
    assert "another bridge has joined." in refused.json()["detail"]


async def test_an_internal_error_is_logged_with_its_route(
    bridge: InProcessBridge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge.engine, "produce", None)
    headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": "orders"}
    assert (await bridge.data.post("/v1/messages", headers=headers)).status_code == 500
    (record,) = caplog.records
    assert (record.message, vars(record)["route"]) == ("internal error", "POST /v1/messages")


async def test_the_loop_s_lag_is_measured(bridge: InProcessBridge) -> None:
    watching = asyncio.create_task(bridge.metrics.measure_loop_lag())
    await asyncio.sleep(0)
    time.sleep(0.7)  # noqa: ASYNC251 - this is what it shall notice
    await asyncio.sleep(0.01)
    watching.cancel()
    assert bridge.value("oms_loop_lag_seconds") > 0.1


async def test_the_management_port_serves_the_exposition(bridge: InProcessBridge) -> None:
    answer = await bridge.management.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert {f.name for f in text_string_to_metric_families(answer.text)} == set(bridge.scrape())
