"""Where a group reads."""

from typing import NamedTuple


class Source(NamedTuple):
    """Where a group reads one partition."""

    partition: int
    queue: str
    history: str | None = None
    """A queue with what the destination's log held when the group came late: it is read first."""
    shared: bool = False
    """A queue that existed already and may have other consumers: the bridge changes nothing about it."""
