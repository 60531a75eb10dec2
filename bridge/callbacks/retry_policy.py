"""When a callback is tried again: the meaning of a response, the backoff, and the circuit breaker.

Pure: times and random numbers are arguments.
"""

from datetime import UTC, datetime
from email.utils import parsedate_tz
from enum import Enum
from typing import Final, NamedTuple

FIRST_BACKOFF: Final = 1_000
"""Longest backoff after the first failure, ms; it doubles with each failure."""
MAX_BACKOFF: Final = 600_000
"""Longest backoff between two deliveries of one message, ms."""
PAUSE_MIN: Final = 1_000
"""Shortest pause of a whole registration, ms: `retry-after: 0` or a date in the past must not cause a busy loop."""
PAUSE_MAX: Final = 86_400_000
"""Longest pause of a whole registration, ms."""
FAILURE_THRESHOLD: Final = 10
"""Failures in a row that open the circuit, with or without a response. An endpoint that answers every message with 404
must not turn the whole backlog into dead letters at full speed."""
MAX_COOLDOWN: Final = 300_000
"""Longest time between two probes, ms."""

_DOUBLINGS: Final = 20
_DIGITS_MAX: Final = 9
_LEAP_SECOND: Final = 60
_GONE: Final = 410
_SLOW_DOWN: Final = (429, 503)


class EndpointResponse(NamedTuple):
    """The endpoint's response."""

    status: int
    """200 to 599; redirects are not followed."""
    retry_after: str | None
    """The header as received: seconds or a date (RFC 9110 10.2.3)."""
    json: bytes | None = None
    """The body, if its content type is application/json; at most 64 KiB, the rest of a longer one is not read."""


class RequestFailed(Exception):
    """A POST that has no response. The text is one sentence for the log, without the URL's path and query."""


class RequestBlocked(RequestFailed):
    """The bridge did not send the request: the URL, an address or a header is not allowed."""


class NoResponse(RequestFailed):
    """Name, connection, TLS, protocol or time failed. The endpoint may or may not have received the message."""


class ResponseAction(Enum):
    """The bridge's reaction to a response."""

    ACKNOWLEDGE = "2xx"
    STOP = "410"
    PAUSE = "429 or 503 with retry-after"
    RETRY = "anything else"


class RetryDecision(NamedTuple):
    """The action after a response."""

    action: ResponseAction
    pause: int = 0
    """How long the registration pauses, ms."""


def backoff(failure_count: int, cap: int, jitter: float) -> int:
    """Return the pause after `failure_count` failures (from 1), ms.

    It lies between half of `FIRST_BACKOFF * 2 ** (failure_count - 1)` and all of it, at most `cap`. `jitter`, 0
    to 1, chooses the point between them, so that deliveries that failed together are not retried together.
    """
    longest = min(cap, FIRST_BACKOFF << min(failure_count - 1, _DOUBLINGS))
    return longest // 2 + int(jitter * (longest - longest // 2))


def classify_response(response: EndpointResponse, wall: int) -> RetryDecision:
    """Decide what a response at `wall`, ms since 1970, means.

    "2xx acknowledges, 410 stops, 429/503 honour retry-after, anything else retries".
    """
    status = response.status
    if status // 100 == 2:  # noqa: PLR2004 - the class of successes
        return RetryDecision(ResponseAction.ACKNOWLEDGE)
    if status == _GONE:
        return RetryDecision(ResponseAction.STOP)
    if status in _SLOW_DOWN and (pause := _parse_retry_after(response.retry_after, wall)) is not None:
        return RetryDecision(ResponseAction.PAUSE, min(max(pause, PAUSE_MIN), PAUSE_MAX))
    return RetryDecision(ResponseAction.RETRY)


def _parse_retry_after(text: str | None, wall: int) -> int | None:
    """Return milliseconds from seconds or an HTTP date (RFC 9110 10.2.3); None if the text is neither."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return int(text) * 1000 if len(text) <= _DIGITS_MAX else PAUSE_MAX
    try:
        return _parse_date(text) - wall
    except (ValueError, OverflowError, OSError):
        return None


def _parse_date(text: str) -> int:
    """Return the milliseconds since 1970 of an HTTP date (RFC 9110 5.6.7). Raises `ValueError`, `OverflowError`.

    A date without a time zone, such as that of asctime, is in GMT; so is one with the offset -0000.
    """
    if (fields := parsedate_tz(text)) is None:
        raise ValueError("not a date")
    year, month, day, hour, minute, second = fields[:6]
    leap = second == _LEAP_SECOND
    moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
    return (int(moment.timestamp()) + leap - (fields[9] or 0)) * 1000


class CircuitBreaker:
    """Closed: deliver. Open: wait until a time. Half open: one delivery probes, and closes or reopens the circuit.

    Times are mono, ms.
    """

    def __init__(self) -> None:
        self.until = 0
        """When the next probe may be sent, mono; 0 while the circuit is closed."""
        self._failures = 0
        self._openings = 0

    @property
    def closed(self) -> bool:
        """Whether deliveries are unrestricted. Otherwise at most one is sent at a time, and none before `until`."""
        return not self._openings

    def succeed(self) -> None:
        """Record a 2xx response and close the circuit. A late response counts as well: the endpoint is alive."""
        self._failures = self._openings = self.until = 0

    def fail(self, mono: int, jitter: float) -> None:
        """Record a failure. While the circuit is open, failures of deliveries that began earlier change nothing."""
        if self.closed:
            self._failures += 1
            if self._failures < FAILURE_THRESHOLD:
                return
        elif mono < self.until:
            return
        self._openings += 1
        self.until = mono + backoff(self._openings, MAX_COOLDOWN, jitter)
