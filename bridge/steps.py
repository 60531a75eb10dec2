"""Long work in steps: a generator that yields after each step, so that other requests are answered in between. Pure.

A codec writes long work as such a generator, without clock and event loop. Its caller runs all steps at once,
or gives them to `bridge.slicer`.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each step, of a few milliseconds at most, and returns its result."""


def run_at_once(steps: Steps[T]) -> T:
    """Run all steps and return the result; raises what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result
