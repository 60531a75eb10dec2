"""What is known of a mirror that runs, folded from its events. Pure: no I/O, no clock.

Totals count from the start of the process. A `State` is never changed: every thread may look at the one it has.
"""

from collections.abc import Mapping
from heapq import nlargest
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, assert_never

from bridge.mirror.layout import AREAS
from bridge.mirror.manifest import Gap
from bridge.mirror.schema import Area
from bridge.mirror.watch.events import (
    Committed,
    Ended,
    Event,
    Idled,
    OutageBegan,
    OutageEnded,
    Progressed,
    Started,
    Stopped,
    Unmirrored,
)

Condition = Literal["starting", "running", "waiting", "stopped"]

SPEEDS: Final = 60
"""So many of the last speeds are kept: at a trigger every ten seconds, ten minutes."""
GAPS: Final = 100
"""So many of the last gaps are kept by name: a memory backend that restarts adds one a life, for ever."""


class State(NamedTuple):
    """A mirror, as it is now."""

    since: int
    """When the process started, ms since 1970; as every time here."""
    run: str | None = None
    """Id of the run of the query; None: there is none."""
    runs: int = 0
    seen: int = 0
    """When rows last came."""
    rows: Mapping[Area, int] = dict.fromkeys(AREAS, 0)
    bytes: int = 0
    files: int = 0
    batches: int = 0
    gaps: tuple[Gap, ...] = ()
    """The last `GAPS` of them, the newest last."""
    gap_count: int = 0
    last: Committed | None = None
    speeds: tuple[float, ...] = ()
    """Rows a second between one trigger's end and the next, the newest last."""
    mark: tuple[int, int] = (0, 0)
    """When the last trigger ended, and the total then."""
    trigger: int | None = None
    """How long the last trigger with rows took, ms."""
    lag: Mapping[str, int] | None = None
    waiting: OutageBegan | None = None
    unmirrored: Mapping[str, str] = MappingProxyType({})
    """Why, by name."""
    ended: Ended | None = None
    """How the last run ended, while there is no other."""
    stopped: Stopped | None = None

    @property
    def condition(self) -> Condition:
        """In one word."""
        if self.stopped is not None:
            return "stopped"
        if self.waiting is not None:
            return "waiting"
        return "starting" if self.run is None else "running"

    @property
    def reason(self) -> str | None:
        """Why it is not running; None: there is nothing to explain."""
        why = self.stopped or self.waiting or self.ended
        return why.reason if why is not None else None

    @property
    def total(self) -> int:
        """Rows, in all areas."""
        return sum(self.rows.values())

    @property
    def speed(self) -> float:
        """Rows a second, now."""
        return self.speeds[-1] if self.speeds and self.condition == "running" else 0.0

    @property
    def restarts(self) -> int:
        """How often the query was started again."""
        return max(0, self.runs - 1)

    @property
    def behind(self) -> int | None:
        """Offsets that wait in the backend; None: not known."""
        return None if self.lag is None else sum(self.lag.values())

    def worst(self, count: int) -> list[tuple[str, int]]:
        """Return the logs with the most lag, the worst first."""
        return nlargest(count, (self.lag or {}).items(), key=lambda item: item[1])


def after(state: State, event: Event) -> State:  # noqa: PLR0911 - one line a kind of event
    """Return the state after an event."""
    match event:
        case Committed():
            return _committed(state, event)
        case Started():
            return state._replace(
                run=event.run, runs=state.runs + 1, ended=None, seen=event.when, mark=(event.when, state.total)
            )
        case Progressed():
            return _progressed(state, event)
        case Idled():
            return _at_speed(state, event.when)
        case Ended():  # Spark tells of it late: the next run may have been started before
            return state._replace(run=None, ended=event) if event.run == state.run else state
        case OutageBegan():
            return state._replace(waiting=state.waiting._replace(reason=event.reason) if state.waiting else event)
        case OutageEnded():
            return state._replace(waiting=None)
        case Unmirrored():
            return state._replace(unmirrored=dict(sorted(event.destinations.items())))
        case Stopped():
            return state._replace(stopped=event, waiting=None)
    assert_never(event)


def _committed(state: State, batch: Committed) -> State:
    return state._replace(
        rows={area: state.rows[area] + batch.rows.get(area, 0) for area in AREAS},
        bytes=state.bytes + batch.bytes,
        files=state.files + batch.files,
        batches=state.batches + 1,
        gaps=(*state.gaps, *batch.gaps)[-GAPS:],
        gap_count=state.gap_count + len(batch.gaps),
        last=batch,
        seen=batch.committed if sum(batch.rows.values()) else state.seen,
    )


def _progressed(state: State, progress: Progressed) -> State:
    state = _at_speed(state, progress.when)._replace(lag=progress.lag)
    if not progress.rows:
        return state
    return state._replace(seen=progress.when, trigger=progress.milliseconds, waiting=None)


def _at_speed(state: State, now: int) -> State:
    # Not Spark's own rows per second: a sink that looked twice at 100 rows made it 200.
    begun, total = state.mark
    speed = (state.total - total) * 1000 / max(1, now - begun)
    return state._replace(speeds=(*state.speeds, speed)[-SPEEDS:], mark=(now, state.total))
