"""The wall clock as adapters read it."""

from time import time_ns


def wall() -> int:
    """Now, in whole milliseconds since 1970: rounded down, so that nothing is early by a fraction."""
    return time_ns() // 1_000_000
