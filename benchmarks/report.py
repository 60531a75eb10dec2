"""The table, for a terminal and as Markdown: the same cells."""

from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Measurement
from benchmarks.results import Run

COLUMNS: Final = (
    *("measured", "unit", "against", "ceiling", "bridge", "ratio", "least to most"),
    *("CPU s/1,000: ceiling", "bridge", "target", "reached"),
)
_TEXT: Final = (0, 1, 2)


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
    """Return the table as Markdown."""
    rows = [COLUMNS, tuple("---" if index in _TEXT else "--:" for index in range(len(COLUMNS)))]
    rows += [cells(measurement) for measurement in run.measurements]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{_caption(run)}"


def line(measurement: Measurement) -> str:
    """Return one measurement as it is shown while others are still to come."""
    name, unit, against, ceiling, figure, ratio, spread, *_, target, reached = cells(measurement)
    return f"{name}: {figure} {unit}, {against} {ceiling}, ratio {ratio} ({spread}) {target} {reached}".rstrip()


def cells(measurement: Measurement) -> tuple[str, ...]:
    """Return the texts of one row."""
    ratios = measurement.ratios
    ceiling_cpu, cpu = measurement.cpu or (None, None)
    target = measurement.target
    return (
        measurement.name,
        measurement.unit,
        measurement.against,
        _number(measurement.ceiling),
        _number(measurement.figure),
        f"{measurement.ratio:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        "" if ceiling_cpu is None else f"{ceiling_cpu:.3f}",
        "" if cpu is None else f"{cpu:.3f}",
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
    return f"{run.begun}, {run.seconds:.0f} s, revision {run.revision}, {run.plan['name']} run; {machine}; {versions}"
