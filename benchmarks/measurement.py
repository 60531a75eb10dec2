"""What one row of the table holds: rounds of a ceiling and a figure, and what becomes of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple, TypeVar

K = TypeVar("K")

BRIDGE: Final = "bridge"
BEFORE: Final = "revision before"


class Sample(NamedTuple):
    """One load: its value in the measurement's unit, and CPU seconds of the server per 1,000 messages."""

    value: float
    cpu: float | None = None


Samples = dict[str, list[Sample]]
"""Of each subject, one for each round."""


class Round(NamedTuple):
    """Both in turn, as close together as can be."""

    ceiling: Sample
    figure: Sample


class Target(NamedTuple):
    """What the median shall be: of the ratio, of the figure itself, or of the ratio of the CPU seconds."""

    of: str
    """`ratio`, `figure` or `CPU ratio`."""
    sign: str
    """`≥` or `≤`."""
    bound: float

    def reached(self, value: float) -> bool:
        """Whether a median is good enough."""
        return value >= self.bound if self.sign == "≥" else value <= self.bound


@dataclass
class Measurement:
    """One row of the table with all its rounds."""

    name: str
    unit: str
    against: str
    """What the ceiling is."""
    rounds: list[Round]
    target: Target | None = None
    by: str = ""
    """What made the load."""

    @property
    def ratios(self) -> list[float]:
        """Figure to ceiling, round by round: what slows the machine down for a while slows both."""
        return [r.figure.value / r.ceiling.value for r in self.rounds]

    @property
    def ratio(self) -> float:
        """The median of the ratios, which is not the ratio of the medians."""
        return median(self.ratios)

    @property
    def ceiling(self) -> float:
        """The median."""
        return median(r.ceiling.value for r in self.rounds)

    @property
    def figure(self) -> float:
        """The median."""
        return median(r.figure.value for r in self.rounds)

    @property
    def ceiling_cpu(self) -> float | None:
        """The median, CPU seconds per 1,000 messages; None if they were not measured."""
        return _median(r.ceiling.cpu for r in self.rounds)

    @property
    def figure_cpu(self) -> float | None:
        """The median, CPU seconds per 1,000 messages; None if they were not measured."""
        return _median(r.figure.cpu for r in self.rounds)

    @property
    def cpu_ratio(self) -> float | None:
        """The median of the ratios of CPU seconds; None if they were not measured."""
        return _median(r.figure.cpu / r.ceiling.cpu for r in self.rounds if r.figure.cpu and r.ceiling.cpu)

    @property
    def reached(self) -> bool | None:
        """Whether the target is; None without one."""
        if self.target is None:
            return None
        values = {"ratio": self.ratio, "figure": self.figure, "CPU ratio": self.cpu_ratio}
        return (value := values[self.target.of]) is not None and self.target.reached(value)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def beside(ceiling: list[Sample], figure: list[Sample]) -> list[Round]:
    """Pair the rounds of two subjects."""
    return [Round(*both) for both in zip(ceiling, figure, strict=True)]


def part(loads: Mapping[str, Sequence[Mapping[K, Sample]]], key: K) -> Samples:
    """Return one of the values that each load has measured at once."""
    return {name: [load[key] for load in rounds] for name, rounds in loads.items()}


def rows(
    name: str, unit: str, samples: Samples, targets: Mapping[str, Target] | None = None, by: str = ""
) -> Iterator[Measurement]:
    """Yield a row for each subject that the bridge is compared with. `targets` has the subjects' names."""
    for other, ceiling in samples.items():
        if other != BRIDGE:
            yield Measurement(name, unit, other, beside(ceiling, samples[BRIDGE]), (targets or {}).get(other), by)
