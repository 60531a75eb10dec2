"""What one row of the table holds: rounds of a ceiling and a figure, and what becomes of them."""

from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


class Sample(NamedTuple):
    """One load: its value in the measurement's unit, and CPU seconds of the server per 1,000 messages."""

    value: float
    cpu: float | None = None


class Round(NamedTuple):
    """Both in turn, as close together as can be."""

    ceiling: Sample
    figure: Sample


class Target(NamedTuple):
    """What the median shall be: of the ratio, or of the figure itself."""

    of: str
    """`ratio` or `figure`."""
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
    def cpu(self) -> tuple[float, float] | None:
        """Medians of ceiling and figure, CPU seconds per 1,000 messages."""
        both = [(r.ceiling.cpu, r.figure.cpu) for r in self.rounds if r.ceiling.cpu is not None]
        return (median(c or 0 for c, _ in both), median(f or 0 for _, f in both)) if both else None

    @property
    def reached(self) -> bool | None:
        """Whether the target is; None without one."""
        if self.target is None:
            return None
        return self.target.reached(self.ratio if self.target.of == "ratio" else self.figure)
