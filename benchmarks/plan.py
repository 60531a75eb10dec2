"""How long and how deep a run measures."""

from typing import Final, NamedTuple

from benchmarks.revision import Revision

SERVERS: Final = ("hypercorn", "granian")


class Plan(NamedTuple):
    """The sizes of one run."""

    name: str
    rounds: int
    """Of all subjects in turn; the median of their ratios counts."""
    seconds: float
    """About how long one load of the bare application takes."""
    steady: float
    """Seconds of one load at a steady rate."""
    streams: tuple[int, ...]
    backlog: int
    """Waiting messages of the deep backlog."""
    waiting: int
    """Pulls that wait while others work; a multiple of 100."""
    steps: int
    """Messages of one load where CPU time is measured."""
    before: Revision | None = None
    """Another revision of the bridge, measured in turn with this one."""


FULL: Final = Plan("full", 5, 0.3, 1.0, (1, 16, 64), 1_000_000, 10_000, 2000)
QUICK: Final = Plan("quick", 3, 0.15, 0.5, (16, 64), 50_000, 1_000, 500)
