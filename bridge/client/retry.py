"""When to try again, and whether to: pure."""

from typing import Final

from bridge.errors import BridgeError, NotStored, OutcomeUnknown

FIRST: Final = 0.1
LONGEST: Final = 10.0
_DOUBLINGS: Final = 7
"""As many as lead from the first to the longest."""


def is_passing(error: BridgeError) -> bool:
    """Whether the same request may succeed later: 503, 504, a broken connection. Never a 4xx."""
    return isinstance(error, (NotStored, OutcomeUnknown))


def pause(failures: int, draw: float, asked: int | None) -> float:
    """Return the seconds to wait after `failures` failures in a row, by a random number from 0 to 1.

    Exponential with "full jitter", so that the clients of a bridge that restarts do not come back as one; on top of
    what the bridge itself asked for in `retry-after`.
    """
    return (asked or 0) + draw * min(LONGEST, FIRST * (1 << min(failures - 1, _DOUBLINGS)))
