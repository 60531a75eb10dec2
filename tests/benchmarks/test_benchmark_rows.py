"""What the benchmark makes of its rounds: rows, targets, the table in docs/performance.md and the file of results."""

from pathlib import Path

import pytest

from benchmarks import report, results
from benchmarks.load import generator
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Round, Sample, Target, part, rows

BARE = "bare application"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> results.Run:
    generator.cache_clear()
    monkeypatch.setattr("shutil.which", lambda _: "echo")  # h2load need not be installed
    machine = {"cpu": "x", "cores": 2, "memory_gib": 4, "system": "Linux", "load_before": 0.0}
    return results.Run("2026-01-01T00:00:00+00:00", "abc", machine, {}, {"name": "full", "before": "def"})


def test_the_bridge_is_compared_with_each_other_subject() -> None:
    samples = {BARE: [Sample(10)] * 3, BEFORE: [Sample(2)] * 3, BRIDGE: [Sample(4)] * 3}
    found = list(rows("produce", "requests/s", samples, {BEFORE: Target("ratio", "≥", 1.8)}))
    assert [(row.against, row.ratio, row.reached) for row in found] == [(BARE, 0.4, None), (BEFORE, 2, True)]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    figures = [
        Round(Sample(1, 0.1), Sample(1, 0.2)),
        Round(Sample(9, 0.1), Sample(3, 0.5)),
        Round(Sample(1), Sample(5)),
    ]
    row = Measurement("a", "b", "c", figures)
    assert (row.ratio, row.ceiling, row.figure) == (1, 1, 3)
    assert row.cpu_ratio == pytest.approx(3.5)
    assert (row.ceiling_cpu, row.figure_cpu) == (0.1, 0.35)


@pytest.mark.parametrize(("of", "value"), [("ratio", 4), ("figure", 40), ("CPU ratio", 0.5)])
def test_a_target_is_one_of_ratio_figure_or_cpu(of: str, value: float) -> None:
    rounds = [Round(Sample(10, 0.2), Sample(40, 0.1))]
    assert Measurement("a", "b", "c", rounds, Target(of, "≤", value)).reached is True
    assert Measurement("a", "b", "c", rounds, Target(of, "≤", value - 0.1)).reached is False
    assert Measurement("a", "b", "c", rounds, Target(of, "≥", value + 0.1)).reached is False


def test_a_target_of_cpu_is_missed_if_it_was_not_measured() -> None:
    assert Measurement("a", "b", "c", [Round(Sample(1), Sample(1))], Target("CPU ratio", "≤", 3)).reached is False


def test_a_load_that_measures_several_values_is_taken_apart() -> None:
    loads = {BRIDGE: [{50: Sample(1), 99: Sample(2)}, {50: Sample(3), 99: Sample(4)}]}
    assert part(loads, 99) == {BRIDGE: [Sample(2), Sample(4)]}


def test_percentiles_servers_and_clients_are_columns(run: results.Run) -> None:
    def add(name: str, target: Target | None = None) -> None:
        run.measurements.append(Measurement(name, "ms", BARE, [Round(Sample(1, 1), Sample(2, 3))], target))

    add("produce at 8,000/s (50% of the highest rate), granian, p50")
    add("produce at 8,000/s (50% of the highest rate), granian, p99", Target("figure", "≤", 5))
    add("produce at 8,000/s (50% of the highest rate), granian, p99.9")
    add("pull, granian, 64 at once", Target("CPU ratio", "≤", 2))
    add("pull, hypercorn, 64 at once")
    add("pull, granian, 1 at once")
    add("idle memory", Target("figure", "≤", 60))
    plain = "2.0 / 1.0 (2.00), CPU 3.00"
    caption, percentiles, servers, others = report.markdown(run).replace("\u00a0", " ").split("\n\n")
    assert percentiles.splitlines()[0] == "| measured | unit, against | p50 | p99 | p99.9 |"
    rate = "produce at 8,000/s (50% of the highest rate), granian"
    assert percentiles.splitlines()[2:] == [f"| {rate} | ms, {BARE} | {plain} | {plain} ✔ ≤ 5 ms | {plain} |"]
    assert servers.splitlines()[0] == "| measured | unit, against | Hypercorn | Granian |"
    assert servers.splitlines()[2:] == [f"| pull, 64 at once | ms, {BARE} | {plain} | {plain} ✘ CPU ≤ 2 |"]
    assert others.splitlines()[2:] == [f"| idle memory | ms, {BARE} | {plain} ✔ ≤ 60 ms |"]
    assert "revision abc beside def, full run" in caption


def test_a_file_of_results_is_read_back(run: results.Run, tmp_path: Path) -> None:
    run.measurements.append(Measurement("a", "b", "c", [Round(Sample(1, 2), Sample(3))], Target("ratio", "≥", 1), "d"))
    results.write(run, tmp_path / "run.json")
    assert results.read(tmp_path / "run.json") == run
