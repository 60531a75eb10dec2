"""The wall clock of adapters and of the adapter test kit."""

from time import time_ns


def wall() -> int:
    """Return now, ms since 1970: rounded down, so that nothing is early by a fraction."""
    return time_ns() // 1_000_000
