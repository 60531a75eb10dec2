import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from adapters.memory import connect
from bridge.callbacks.registry import Callbacks
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters
from bridge.engine.engine import Engine
from bridge.engine.policy import Policy
from bridge.http.app import DataApp, routes
from bridge.http.guard import Guard
from bridge.http.limits import Limits
from bridge.http.management import management_app
from bridge.telemetry import Observer, Telemetry

OPERATIONS_PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
VERSION = {"x-oms-version": "1.0.0"}


class House:
    """A bridge without its servers."""

    def __init__(self) -> None:
        self.engine = Engine(connect("memory://"), SystemClock(), Policy(store_host="here"))
        self.telemetry = Telemetry(self.engine)
        limits = Limits()
        self.table = routes(self.engine, Callbacks(self.engine), limits, 16)
        data = DataApp(self.table, Guard((), ()), limits, self.telemetry)
        self.data = _client(httpx.ASGITransport(data))
        self.management = _client(httpx.ASGITransport(management_app(self.engine, self.telemetry, "memory://")))

    def scrape(self) -> dict[str, Metric]:
        text = self.telemetry.exposition().decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str) -> float:
        (sample,) = [s for family in self.scrape().values() for s in family.samples if s.name == name]
        return float(sample.value)

    def series(self) -> set[str]:
        """Name every series, without the values."""
        return {line.rpartition(b" ")[0].decode() for line in _samples(self.telemetry.exposition())}


def _client(transport: httpx.ASGITransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def _samples(exposition: bytes) -> Iterator[bytes]:
    return (line for line in exposition.splitlines() if line and not line.startswith(b"#"))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    await house.engine.start()
    yield house
    await house.engine.close()


async def test_every_counter_of_the_engine_is_exposed(house: House) -> None:
    for number, name in enumerate(Counters.__slots__, 1):
        setattr(house.engine.counters, name, number)
    families = house.scrape()
    for number, name in enumerate(Counters.__slots__, 1):
        (sample,) = families[f"oms_{name}"].samples
        assert sample.value == number, name
        assert sample.name in {f"oms_{name}", f"oms_{name}_total"}
        assert sample.name.endswith("_total") is (families[f"oms_{name}"].type == "counter")
    assert house.telemetry.totals() == {name: n for n, name in enumerate(Counters.__slots__, 1)}


async def test_every_family_says_what_it_is(house: House) -> None:
    for name, family in house.scrape().items():
        assert family.documentation, name
        assert family.type in {"counter", "gauge", "histogram"}, name
        assert name.startswith(("oms_", "process_")), name


async def test_the_operations_page_lists_every_metric_and_no_other(house: House) -> None:
    listed = set(re.findall(r"^\| `((?:oms|process)_\w+)`", OPERATIONS_PAGE.read_text("utf-8"), re.MULTILINE))
    families = house.scrape()
    exposed = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert listed == exposed


async def test_what_happens_to_a_message_is_counted(house: House) -> None:
    await house.data.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": "orders"}, content=b"x")
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-ack": "true"}
    first = await house.data.get("/v1/messages", headers=pull)
    assert (house.value("oms_leases"), house.value("oms_groups")) == (1, 1)
    await house.data.post("/v1/nack", headers=VERSION | {"x-oms-receipt": first.headers["x-oms-receipt"]})
    second = await house.data.get("/v1/messages", headers=pull)
    await house.data.post("/v1/ack", headers=VERSION | {"x-oms-receipt": second.headers["x-oms-receipt"]})
    counted = {name: house.value(f"oms_{name}_total") for name in ("produced", "delivered", "redelivered", "nacked")}
    assert counted == {"produced": 1, "delivered": 2, "redelivered": 1, "nacked": 1}
    assert house.value("oms_settled_total") == 1
    assert house.value("oms_leases") == 0


async def test_requests_are_counted_by_route_and_status(house: House) -> None:
    for _ in range(3):
        await house.data.get("/v1/capabilities")
    await house.data.get("/v1/messages")
    counted = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in house.scrape()["oms_requests"].samples
    }
    assert counted == {("GET /v1/capabilities", "200"): 3, ("GET /v1/messages", "400"): 1}


async def test_a_request_under_way_is_active(house: House) -> None:
    pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "billing", "x-oms-waitmills": "10000"}
    waiting = asyncio.create_task(house.data.get("/v1/messages", headers=pull))
    await asyncio.sleep(0.01)
    active = {s.labels["route"]: s.value for s in house.scrape()["oms_requests_active"].samples}
    assert {route for route, number in active.items() if number} == {"GET /v1/messages"}
    assert house.value("oms_waiting_pulls") == 1
    house.engine.drain()
    await waiting
    assert not any(sample.value for sample in house.scrape()["oms_requests_active"].samples)
    assert house.value("oms_waiting_pulls") == 0


async def test_no_input_adds_a_series(house: House) -> None:
    async def ask(number: int) -> None:
        name = f"d{number}"
        await house.data.post("/v1/messages", headers=VERSION | {"x-oms-h-destination": name}, content=b"x")
        await house.data.get("/v1/messages", headers=VERSION | {"x-oms-source": name, "x-oms-consumerid": name})
        await house.data.get(f"/v1/{name}?{name}={name}", headers={f"x-oms-{name}": name})
        await house.data.request(f"VERB{number}", "/v1/messages")
        await house.data.get("/v1/messages", headers={"x-oms-consumerid": name})

    await ask(0)
    before = house.series()
    for number in range(1, 500):
        await ask(number)
    assert house.value("oms_produced_total") == 500
    assert house.series() == before
    assert not any("d499" in series for series in before)


async def test_the_routes_are_those_of_the_table(house: House) -> None:
    routes_shown = {sample.labels["route"] for sample in house.scrape()["oms_requests_active"].samples}
    assert routes_shown == {f"{method} {path}" for path, methods in house.table.items() for method in methods} | {
        "other"
    }


async def test_what_the_table_does_not_know_is_counted_together(house: House) -> None:
    await house.data.get("/v1/nowhere")
    await house.data.put("/v1/messages")
    found = {
        s.labels["status"]: s.value for s in house.scrape()["oms_requests"].samples if s.labels["route"] == "other"
    }
    assert found == {"404": 1.0, "405": 1.0}


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0004, "0.0005"), (0.0006, "0.001"), (0.3, "0.5"), (90.0, "+Inf")])
def test_an_observation_falls_into_its_bucket(seconds: float, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    monkeypatch.setattr("bridge.telemetry.perf_counter", lambda: 1000.0)
    begun = observer.begin()
    monkeypatch.setattr("bridge.telemetry.perf_counter", lambda: 1000.0 + seconds)
    observer.end(begun, 200)
    house = Telemetry(Engine(connect("memory://"), SystemClock(), Policy(store_host="here")))
    house._observers["GET /x"] = observer
    (family,) = [f for f in text_string_to_metric_families(house.exposition().decode()) if f.type == "histogram"]
    cumulated = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    bounds = sorted(cumulated, key=float)
    assert [cumulated[bound] for bound in bounds] == [float(float(bound) >= float(bucket)) for bound in bounds]
    rest = {s.name: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert rest["oms_request_seconds_count"] == 1
    assert rest["oms_request_seconds_sum"] == pytest.approx(seconds)


async def test_ready_says_what_readyz_says(house: House) -> None:
    assert (house.value("oms_ready"), (await house.management.get("/readyz")).status_code) == (1, 200)
    house.engine.trouble = "the broker is away"
    assert (house.value("oms_ready"), (await house.management.get("/readyz")).status_code) == (0, 503)
    house.engine.trouble = None
    house.engine.drain()
    assert (house.value("oms_ready"), (await house.management.get("/readyz")).status_code) == (0, 503)


async def test_the_loop_s_lag_is_measured(house: House) -> None:
    watching = asyncio.create_task(house.telemetry.watch_loop())
    await asyncio.sleep(0)
    time.sleep(0.7)  # noqa: ASYNC251 - this is what it shall notice
    await asyncio.sleep(0.01)
    watching.cancel()
    assert house.value("oms_loop_lag_seconds") > 0.1


async def test_the_management_port_serves_the_exposition(house: House) -> None:
    answer = await house.management.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert {f.name for f in text_string_to_metric_families(answer.text)} == set(house.scrape())
