"""Dashboard and alerts ask for metrics that there are, in expressions that Prometheus can read."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import parse

from adapters.memory import connect
from bridge.engine.clock import SystemClock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.push_consumer import ConsumerOptions
from bridge.metrics import BridgeMetrics
from bridge.mirror.monitoring.server import registry
from bridge.mirror.monitoring.status import Committed, Status
from tests.helm import promtool
from tests.helm.charts import CHART, case, one

DOCS = CHART.parents[1] / "docs"
DASHBOARDS: dict[str, dict[str, Any]] = {
    "openmessaging-bridge": json.loads((CHART / "files" / "dashboard.json").read_text()),
    "openmessaging-bridge-mirror": json.loads((CHART / "files" / "dashboard-mirror.json").read_text()),
}
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for board in DASHBOARDS.values() for panel in board["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*", "$pod": ".*"}
EXPRESSIONS = [*QUERIES, *((rule["alert"], rule["expr"]) for rule in ALERTS)]


def series(exposition: bytes) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the labels of every series."""
    for family in text_string_to_metric_families(exposition.decode()):
        for sample in family.samples:
            yield sample.name, frozenset(sample.labels)


def exposed() -> dict[str, set[str]]:
    """Return all that a bridge and a mirror expose, with the labels; of brokers, what their pages list."""
    found: dict[str, set[str]] = {}
    for name, labels in (*series(bridge()), *series(mirror())):
        found.setdefault(name, set()).update(labels)
    for page in ("kafka.md", "rabbitmq.md"):
        listed = re.findall(r"^\| `(oms_backend_\w+)` \|", (DOCS / page).read_text("utf-8"), re.MULTILINE)
        assert listed, page
        found |= {name: set() for name in listed}
    return found


def bridge() -> bytes:
    return asyncio.run(_exposition())


async def _exposition() -> bytes:
    engine = Engine(connect("memory://"), SystemClock(), EngineOptions(store_host="here"))
    await engine.start()
    consumer = await engine.consume(SubscriptionKey("orders", "app"), ConsumerOptions(1000, ack=True, credit=1))
    metrics = BridgeMetrics(engine)
    metrics.refusals["forbidden"] += 1
    observer = metrics.observer("POST /v1/messages")
    observer.end(observer.begin(), 200)
    await metrics.count_unsettled()
    exposition = metrics.exposition()
    consumer.close()
    await engine.close()
    return exposition


def mirror() -> bytes:
    batch = Committed("q/1", 1, {"data": 1}, 1, 1, (), {"stage": 1, "commit": 1}, 1)
    now = datetime(2026, 11, 22, tzinfo=UTC)
    status = Status("memory://", "/srv/mirror", now)
    status.committed(batch)
    status.triggered(1, 1, {"orders/0": 1}, now)
    metrics, seconds = registry(status)
    seconds.labels("stage").observe(1)
    return generate_latest(metrics)


EXPOSED = exposed()


def filled(expression: str) -> str:
    """Return an expression as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:oms|process)_\w+", expression))


def test_there_are_expressions() -> None:
    assert len(QUERIES) > 40
    assert len(ALERTS) > 10


def test_every_metric_is_there(subtests: pytest.Subtests) -> None:
    for what, expression in EXPRESSIONS:
        with subtests.test(what, expression=expression):
            assert metrics_of(expression)
            assert metrics_of(expression) - set(EXPOSED) == set()


def test_prometheus_can_read_every_expression(subtests: pytest.Subtests) -> None:
    for what, expression in EXPRESSIONS:
        with subtests.test(what, expression=expression):
            assert parse(filled(expression)) is not None


def test_promtool_has_no_complaint_about_metrics_and_alerts() -> None:
    promtool.check("metrics", bridge())
    promtool.check("metrics", mirror())
    promtool.check("rules", CHART / "files" / "alerts.yaml")


def test_counters_are_asked_for_their_rate_and_gauges_are_not(subtests: pytest.Subtests) -> None:
    grown = {"oms_mirror_gaps_total", "oms_mirror_restarts_total"}  # of these the sum since the start is of interest
    for what, expression in EXPRESSIONS:
        with subtests.test(what, expression=expression):
            rated = set(re.findall(r"(?:rate|increase)\((\w+)", expression))
            counters = {
                name for name in metrics_of(expression) if name.endswith(("_total", "_bucket", "_sum", "_count"))
            }
            assert counters - rated - grown == set()
            assert rated - counters == set()


def test_every_label_is_there(subtests: pytest.Subtests) -> None:
    added = {"namespace", "pod", "le"}  # by the ServiceMonitor; by the histogram
    for what, expression in EXPRESSIONS:
        with subtests.test(what, expression=expression):
            grouped = {
                label.strip()
                for part in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression)
                for label in part.split(",")
            }
            matched = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression))
            known = set().union(*(EXPOSED[name] for name in metrics_of(expression) & set(EXPOSED)))
            assert (grouped | matched) - known - added == set()


def test_a_bad_expression_and_an_unknown_metric_are_noticed() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        parse("sum by (pod (rate(oms_produced_total[5m]))")
    assert not metrics_of("oms_made_up_total") <= set(EXPOSED)


@pytest.mark.parametrize("board", DASHBOARDS)
def test_panels_do_not_lie_on_each_other(board: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARDS[board]["panels"]:
        place: Mapping[str, int] = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                assert x < 24
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in DASHBOARDS[board]["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.usefixtures("helm")
def test_the_manifests_carry_the_files_as_they_are() -> None:
    dashboard = one(case("everything"), "ConfigMap", "-dashboard")
    assert {name: json.loads(text) for name, text in dashboard["data"].items()} == {
        f"{board['uid']}.json": board for board in DASHBOARDS.values()
    }
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    rules = one(case("everything"), "PrometheusRule")
    assert [rule for group in rules["spec"]["groups"] for rule in group["rules"]] == ALERTS


def test_every_alert_says_what_it_is_about() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_what_a_page_calls_worth_an_alert_has_one(subtests: pytest.Subtests) -> None:
    for page in ("operations.md", "mirror-status.md"):
        with subtests.test(page=page):
            section = (DOCS / page).read_text("utf-8").partition("Worth an alert")[2].partition("\n## ")[0]
            worth = {name for line in section.splitlines() if line.startswith("| `") for name in metrics_of(line)}
            assert len(worth) > 5
            assert worth - {name for rule in ALERTS for name in metrics_of(rule["expr"])} == set()


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(("name", "components"), [("everything", {"gateway", "mirror"}), ("mirror-run", {"mirror"})])
def test_every_monitor_finds_its_service(name: str, components: set[str]) -> None:
    monitors = [m for m in case(name) if m["kind"] == "ServiceMonitor"]
    assert {m["metadata"]["labels"]["app.kubernetes.io/component"] for m in monitors} == components
    services = [m for m in case(name) if m["kind"] == "Service"]
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = (s for s in services if wanted.items() <= s["metadata"]["labels"].items())
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]


def test_a_dashboard_names_no_data_source() -> None:
    for name, board in DASHBOARDS.items():
        assert board["uid"] == name
        assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(board))) == {"${datasource}", name}


def test_each_dashboard_chooses_among_pods_that_it_shows() -> None:
    for name, metric in (("openmessaging-bridge", "oms_ready"), ("openmessaging-bridge-mirror", "oms_mirror_up")):
        _, *variables = DASHBOARDS[name]["templating"]["list"]
        assert variables
        assert {found for each in variables for found in metrics_of(each["query"]["query"])} == {metric}


def test_the_mirrors_dashboard_shows_all_that_a_mirror_reports() -> None:
    shown = {
        name
        for panel in DASHBOARDS["openmessaging-bridge-mirror"]["panels"]
        for target in panel.get("targets", ())
        for name in metrics_of(target["expr"])
    }
    assert {name for name, _ in series(mirror()) if name.startswith("oms_")} - shown == set()
