"""The two clocks: wall time for what the message says, monotonic time for what the bridge measures."""

import time
from typing import Protocol


class Clock(Protocol):
    """Both in whole milliseconds."""

    def wall(self) -> int:
        """Milliseconds since 1970 UTC: delays and expiry, which other hosts wrote."""
        ...

    def mono(self) -> int:
        """Milliseconds since some moment, never jumping: leases and redelivery pauses."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def mono(self) -> int:
        """Milliseconds of `CLOCK_MONOTONIC`."""
        return time.monotonic_ns() // 1_000_000
