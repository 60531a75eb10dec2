"""How many HTTP/2 frames a client may send that advance no request. Pure: no I/O."""

from time import monotonic
from typing import Final

from hyperframe.frame import DataFrame, Frame, HeadersFrame, SettingsFrame

SMALL_DATA: Final = 16
"""Bytes of a DATA frame below which it counts as empty: handling it costs more than its bytes are worth."""

SETTINGS_COST: Final = 10
"""A SETTINGS frame counts as so many frames: it changes the window of each open stream."""

FRAME_BURST: Final = 1000
"""Counted frames that a client may send at once. A frame costs about 10 us."""

FRAME_RATE: Final = 100
"""Counted frames that a client may send per second after that."""

FRAMES_SAVED: Final = 10_000
"""Counted frames that a client may have earned and not used: its answers to DATA arrive later than the DATA."""

EARNED_BY_REQUEST: Final = 4
"""Counted frames that each request allows in addition, such as PRIORITY."""

EARNED_BY_DATA: Final = 3
"""Counted frames that each DATA frame of a response allows in addition: a WINDOW_UPDATE for the stream and one for the
connection, and a PING that measures the bandwidth."""


def cost(frame: Frame) -> int:
    """Return how many frames `frame` counts as: 0 for a header block, and for DATA that holds bytes or ends a body.

    Everything else has a cost: SETTINGS, PING, WINDOW_UPDATE, PRIORITY, RST_STREAM, unknown types, and DATA of fewer
    than `SMALL_DATA` bytes, padding not counted.
    """
    if isinstance(frame, HeadersFrame):
        return 0
    if isinstance(frame, DataFrame):
        return int(len(frame.data) < SMALL_DATA and "END_STREAM" not in frame.flags)
    return SETTINGS_COST if isinstance(frame, SettingsFrame) else 1


class TokenBucket:
    """`burst` tokens at first, `rate` new ones per second up to `burst`, and earned ones up to `saved`."""

    def __init__(self, burst: int, rate: float, saved: int = 0) -> None:
        self._burst, self._rate, self._saved = burst, rate, saved
        self._tokens: float = burst
        self._updated = monotonic()

    def earn(self, tokens: int) -> None:
        """Add tokens."""
        self._tokens = max(self._tokens, min(self._saved, self._tokens + tokens))

    def take(self, tokens: int = 1) -> bool:
        """Take `tokens`; False, and nothing is taken, if there are fewer."""
        now = monotonic()
        if self._tokens < self._burst:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True


def frames() -> TokenBucket:
    """Return the budget of one connection."""
    return TokenBucket(FRAME_BURST, FRAME_RATE, FRAMES_SAVED)
