"""The table, for a terminal and as Markdown: the same cells."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Measurement
from benchmarks.results import Run

COLUMNS: Final = (
    *("measured", "unit", "against", "ceiling", "bridge", "ratio", "least to most"),
    *("CPU s/1,000: ceiling", "bridge", "ratio", "target", "reached"),
)
_TEXT: Final = (0, 1, 2)
ALSO: Final = (
    "produce to push, ",
    "produce at ",
    "push + ack, multipart, 1 KiB, 1 stream",
    "client ",
    "oms-bridge push",
)
"""How names begin of cases without a target that docs/performance.md shows."""
VARIANTS: Final = (
    {"p50": "p50", "p99": "p99", "p99.9": "p99.9"},
    {"hypercorn": "Hypercorn", "granian": "Granian"},
    {"kafka-python": "kafka-python", "confluent": "librdkafka"},
)
"""What a name says, between commas, of the percentile, the server or the client library: a table with a column each."""


def show(run: Run) -> None:
    """Print the table on standard output; wider than the terminal, it is cut nowhere but folded."""
    console = Console(width=None if Console().is_terminal else 190)
    table = Table(title="oms-bridge beside its ceilings", caption=_caption(run), title_justify="left")
    for index, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if index in _TEXT else "right", overflow="fold")
    for measurement in run.measurements:
        colour = {None: "", True: "green", False: "red"}[measurement.reached]
        table.add_row(*cells(measurement), style=colour)
    console.print(table)


def markdown(run: Run) -> str:
    """Return the figures of docs/performance.md as tables: cases with a target and some others, a column per variant.

    Before them stand date, revision and machine.
    """
    cases: dict[int, dict[tuple[str, str], dict[str, Measurement]]] = {}
    for each in run.measurements:
        table, variant, name = _variant(each.name)
        cases.setdefault(table, {}).setdefault((name, f"{each.unit}, {each.against}"), {})[variant] = each
    tables = []
    for table, found in sorted(cases.items()):
        columns = VARIANTS[table] if table < len(VARIANTS) else {"": "bridge / ceiling (ratio)"}
        rows = [("measured", "unit, against", *columns.values())]
        for case, variants in found.items():
            if case[0].startswith(ALSO) or any(each.target for each in variants.values()):
                rows.append((*case, *(_short(variants[name]) if name in variants else "" for name in columns)))
        tables.append(_table(rows))
    return "\n\n".join([_caption(run), *tables])


def _variant(name: str) -> tuple[int, str, str]:
    """Return the table of a name, its column, and the name without it."""
    parts = name.split(", ")
    for table, columns in enumerate(VARIANTS):
        for part in parts:
            if part in columns:
                return table, part, ", ".join(each for each in parts if each != part)
    return len(VARIANTS), "", name


def _short(measurement: Measurement) -> str:
    """Return bridge, ceiling, ratio, the ratio of CPU and the target; without a unit the target is one of a ratio."""
    text = f"{_number(measurement.figure)} / {_number(measurement.ceiling)} ({measurement.ratio:.2f})"
    if measurement.cpu_ratio is not None:
        text += f", CPU {measurement.cpu_ratio:.2f}"
    if target := measurement.target:
        what = f" {measurement.unit.split('/')[0]}" if target.of == "figure" else ""
        of = "CPU " if target.of == "CPU ratio" else ""
        shown = f"{'✔' if measurement.reached else '✘'} {of}{target.sign} {target.bound:,g}{what}"
        text += " " + shown.replace(" ", "\u00a0")  # a browser shall not break it
    return text


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *rest = rows
    lines = [head, tuple("---" if index < 2 else "--:" for index in range(len(head))), *rest]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def line(measurement: Measurement) -> str:
    """Return one measurement as it is shown while others are still to come."""
    name, unit, against, ceiling, figure, ratio, spread, *_, target, reached = cells(measurement)
    cpu = f"{measurement.cpu_ratio:.2f}" if measurement.cpu_ratio is not None else "unknown"
    return (
        f"{name}: {figure} {unit}, {against} {ceiling}, ratio {ratio} ({spread}), CPU {cpu} {target} {reached}".rstrip()
    )


def cells(measurement: Measurement) -> tuple[str, ...]:
    """Return the texts of one row."""
    ratios = measurement.ratios
    effort = (measurement.ceiling_cpu, measurement.figure_cpu, measurement.cpu_ratio)
    target = measurement.target
    return (
        measurement.name,
        measurement.unit,
        measurement.against,
        _number(measurement.ceiling),
        _number(measurement.figure),
        f"{measurement.ratio:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        *("" if value is None else f"{value:.3f}" for value in effort),
        "" if target is None else f"{target.of} {target.sign} {target.bound:,g}",
        {None: "", True: "yes", False: "no"}[measurement.reached],
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _caption(run: Run) -> str:
    machine = "{cpu}, {cores} cores, {memory_gib} GiB, {system}, load average {load_before:.1f} before".format(
        **run.machine
    )
    versions = ", ".join(f"{name} {text}" for name, text in run.versions.items())
    revisions = f"revision {run.revision}" + (f" beside {before}" if (before := run.plan.get("before")) else "")
    return f"{run.begun}, {run.seconds:.0f} s, {revisions}, {run.plan['name']} run; {machine}; {versions}"
