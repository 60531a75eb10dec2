"""Quota: messages per second and destination, as a token bucket of one second."""

from typing import Final

from bridge.errors import QuotaExceeded

_BUCKETS_KEPT: Final = 4096


class Quota:
    """Lets `rate` messages a second through for each destination. Pure: the time (mono, ms) is passed in."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._buckets: dict[str, tuple[float, int]] = {}

    def take(self, destination: str, mono: int) -> None:
        """Count one message. Raises `QuotaExceeded` with the seconds to wait."""
        tokens, stamp = self._buckets.get(destination, (float(self._rate), mono))
        tokens = min(float(self._rate), tokens + (mono - stamp) * self._rate / 1000)
        if tokens < 1:
            raise QuotaExceeded(f"{destination} takes at most {self._rate} messages a second.", retry_after=1)
        if destination not in self._buckets and len(self._buckets) >= _BUCKETS_KEPT:
            self._buckets = {d: b for d, b in self._buckets.items() if mono - b[1] < 1000}  # noqa: PLR2004 - full again
        self._buckets[destination] = (tokens - 1, mono)
