"""What happens to a mirror while it runs, one record each. Pure. Times are ms since 1970."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from bridge.mirror.manifest import Gap
from bridge.mirror.schema import Area

Phase = Literal["stage", "commit", "publish"]
"""Of a batch in the sink: its files are written, its manifest, and the files come to their places."""
PHASES: Final[tuple[Phase, ...]] = ("stage", "commit", "publish")


class Committed(NamedTuple):
    """The sink made a batch true. Not told of a batch that a crash had left and that was only published again."""

    key: str
    """Of its manifest."""
    batch: int
    rows: Mapping[Area, int]
    """By area; one without rows may be left out."""
    bytes: int
    """Of its files, as they lie on the disk."""
    files: int
    gaps: tuple[Gap, ...]
    milliseconds: Mapping[Phase, int]
    committed: int


class Started(NamedTuple):
    """Spark runs the query: for the first time in this process, or again."""

    run: str
    """Id of the run."""
    when: int


class Progressed(NamedTuple):
    """Spark ended a trigger, whether it held rows or not."""

    rows: int
    """That the source gave; the sink's count is what was mirrored."""
    milliseconds: int
    """From the trigger to the end of its batch."""
    lag: Mapping[str, int] | None
    """By log: offsets that the backend holds and the mirror does not yet. None: the source did not say."""
    when: int


class Idled(NamedTuple):
    """Nothing has come for a while; Spark tells it again and again."""

    when: int


class Ended(NamedTuple):
    """A run of the query is over; the job may start another."""

    run: str
    reason: str | None
    when: int


class OutageBegan(NamedTuple):
    """The backend cannot be reached; the mirror waits."""

    reason: str
    when: int


class OutageEnded(NamedTuple):
    """The backend is there again."""

    when: int


class Unmirrored(NamedTuple):
    """Destinations that cannot be mirrored: all of them, as they are now."""

    destinations: Mapping[str, str]
    """Why, by name."""


class Stopped(NamedTuple):
    """The job is over: the last event. `reason` None: it had done its work, or was asked to stop."""

    reason: str | None
    when: int


Event = Committed | Started | Progressed | Idled | Ended | OutageBegan | OutageEnded | Unmirrored | Stopped
