"""When a message is tried again, and what an answer means for it. Pure: the chance and the time come in."""

from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final, NamedTuple

from bridge.callbacks.answer import Answer

FIRST: Final = 1_000
"""Longest pause after the first failure, ms; it doubles with each."""
CAP: Final = 600_000
"""Longest pause between two deliveries of one message, ms."""
PAUSE_MIN: Final = 1_000
"""Shortest pause of a whole registration, ms: `retry-after: 0` and a date gone by must not become a busy loop."""
PAUSE_MAX: Final = 86_400_000

_DOUBLINGS: Final = 20
_DIGITS_MAX: Final = 9
_GONE: Final = 410
_SLOW_DOWN: Final = (429, 503)


class Verdict(Enum):
    """What to do with a message after its endpoint has answered."""

    ACKNOWLEDGE = "2xx"
    STOP = "410"
    PAUSE = "429 or 503 with retry-after"
    RETRY = "anything else"


class Ruling(NamedTuple):
    """A verdict, and how long the registration pauses, ms."""

    verdict: Verdict
    pause: int = 0


def backoff(step: int, cap: int, chance: float) -> int:
    """Return the pause after the `step`-th failure (from 1), ms: from half of `FIRST * 2 ** (step - 1)` to all of it.

    `chance`, 0 to 1, says where: what failed together must not come back together.
    """
    longest = min(cap, FIRST << min(step - 1, _DOUBLINGS))
    return longest // 2 + int(chance * (longest - longest // 2))


def judge(answer: Answer, wall: int) -> Ruling:
    """Read an answer at `wall`, ms since 1970.

    "2xx acknowledges, 410 stops, 429/503 honour retry-after, anything else retries".
    """
    status = answer.status
    if status // 100 == 2:  # noqa: PLR2004 - the class of successes
        return Ruling(Verdict.ACKNOWLEDGE)
    if status == _GONE:
        return Ruling(Verdict.STOP)
    if status in _SLOW_DOWN and (pause := _read_retry_after(answer.retry_after, wall)) is not None:
        return Ruling(Verdict.PAUSE, min(max(pause, PAUSE_MIN), PAUSE_MAX))
    return Ruling(Verdict.RETRY)


def _read_retry_after(text: str | None, wall: int) -> int | None:
    """Return milliseconds from seconds or an HTTP date (RFC 9110 10.2.3); None when it is neither."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return int(text) * 1000 if len(text) <= _DIGITS_MAX else PAUSE_MAX
    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000) - wall
    except (ValueError, OverflowError, OSError):
        return None
