import re

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bridge.mirror.watch.events import OutageBegan, Stopped, Unmirrored
from bridge.mirror.watch.metrics import Metrics
from bridge.mirror.watch.state import State
from tests.docs.page import Page
from tests.unit.mirror.watched import BEGIN, batch, busy, told

PAGE = Page("mirror-status.md")


def scraped(state: State, *seen: int) -> dict[str, Metric]:
    metrics = Metrics(lambda: state)
    for number in seen:
        metrics.saw(batch(number, {}))
    return {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}


def value(state: State, name: str, **labels: str) -> float | None:
    samples = [sample for family in scraped(state).values() for sample in family.samples]
    return next((s.value for s in samples if s.name == name and s.labels == labels), None)


def test_totals() -> None:
    state = busy()
    assert value(state, "oms_mirror_rows_total", area="data") == 678_975
    assert value(state, "oms_mirror_rows_total", area="dead-letters") == 30
    assert value(state, "oms_mirror_rows_total", area="quarantine") == 1
    assert value(state, "oms_mirror_bytes_total") == 3_500_000
    assert value(state, "oms_mirror_files_total") == 40
    assert value(state, "oms_mirror_batches_total") == 10
    assert value(state, "oms_mirror_gaps_total") == 1
    assert value(state, "oms_mirror_restarts_total") == 0


def test_what_is_now() -> None:
    state = told([Unmirrored({"a": "x", "b": "x"})], busy())
    assert value(state, "oms_mirror_lag_rows") == 148_000
    assert value(state, "oms_mirror_lag_rows_max") == 30_000
    assert value(state, "oms_mirror_lag_logs") == 9
    assert value(state, "oms_mirror_unmirrored_destinations") == 2
    assert value(state, "oms_mirror_last_commit_timestamp_seconds") == (BEGIN + 100_000) / 1000
    assert round(value(state, "oms_mirror_rows_per_second") or 0) == 12_345


def test_up_only_while_it_runs_and_its_backend_is_there() -> None:
    assert value(told([]), "oms_mirror_up") == 0
    assert value(busy(), "oms_mirror_up") == 1
    assert value(told([OutageBegan("gone", BEGIN)], busy()), "oms_mirror_up") == 0
    assert value(told([Stopped(None, BEGIN)], busy()), "oms_mirror_up") == 0


def test_what_is_not_known_is_absent_and_no_zero() -> None:
    shown = scraped(told([]))
    unknown = ("lag_rows", "lag_rows_max", "lag_logs", "last_commit_timestamp_seconds")
    assert "oms_mirror_rows" in shown
    assert not {f"oms_mirror_{name}" for name in unknown} & set(shown)
    assert value(told([])._replace(lag={}), "oms_mirror_lag_rows_max") == 0


def test_the_time_of_each_phase() -> None:
    samples = scraped(busy(), 1, 2)["oms_mirror_batch_seconds"].samples
    found = {(s.name, s.labels["phase"], s.labels.get("le")): s.value for s in samples}
    assert found["oms_mirror_batch_seconds_count", "stage", None] == 2
    assert found["oms_mirror_batch_seconds_sum", "publish", None] == 0.48
    assert found["oms_mirror_batch_seconds_bucket", "stage", "1.0"] == 0
    assert found["oms_mirror_batch_seconds_bucket", "stage", "2.5"] == 2


def test_no_log_and_no_destination_is_a_label() -> None:
    few, many = (
        busy(),
        busy()._replace(lag={f"log {n}": 1 for n in range(1000)}, unmirrored={f"d{n}": "x" for n in range(1000)}),
    )
    labels = [
        {(s.name, *s.labels.items()) for family in scraped(state, 1).values() for s in family.samples}
        for state in (few, many)
    ]
    assert labels[0] == labels[1]


def test_the_page_lists_every_metric_and_no_other() -> None:
    listed = re.findall(r"^\| `((?:oms|process)_\w+)` \| (\w+) \|", PAGE.section("Metrics"), re.MULTILINE)
    kinds = {"counter": "_total"}
    assert sorted(listed) == sorted(
        (family.name + kinds.get(family.type, ""), family.type) for family in scraped(busy(), 1).values()
    )


def test_alerts_name_metrics_that_there_are() -> None:
    named = set(re.findall(r"oms_mirror_\w+", PAGE.section("Metrics").partition("Worth an alert")[2]))
    samples = {s.name for family in scraped(busy(), 1).values() for s in family.samples}
    assert named
    assert named <= samples
