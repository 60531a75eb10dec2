"""The live display on a terminal. What is logged meanwhile stands above it."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from adapters.clock import wall
from bridge.mirror.watch.picture import picture
from bridge.mirror.watch.state import State
from bridge.mirror.watch.status import About
from bridge.mirror.watch.words import ASCII, UNICODE, Glyphs

_LEAST: Final = 40
"""Cells; what a smaller terminal has no room for is cut off."""
_A_SECOND: Final = 2
"""Pictures."""


def terminal() -> Console | None:
    """Return standard error if somebody looks at it, and it can move its cursor."""
    console = Console(stderr=True)
    # is_terminal alone believes FORCE_COLOR, which many CI services set
    return console if sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal else None


def glyphs(encoding: str | None) -> Glyphs:
    """Return what a stream of that encoding can show."""
    return UNICODE if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


@contextmanager
def display(console: Console, state: Callable[[], State], about: About) -> Iterator[None]:
    """Show the state while the block runs; the last picture stays."""
    chosen = glyphs(console.encoding)

    def drawn() -> Text:
        return picture(state(), about, wall(), max(_LEAST, console.width), chosen)

    with (
        Live(get_renderable=drawn, console=console, refresh_per_second=_A_SECOND, vertical_overflow="crop"),
        _logs_above(console),
    ):
        yield


class _Above:
    """A stream that writes above the display: what a log writes by itself would be painted over."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        self._console.print(Text(text), end="", soft_wrap=True)

    def flush(self) -> None:
        """Nothing is kept."""


@contextmanager
def _logs_above(console: Console) -> Iterator[None]:
    root = logging.getLogger()
    handlers = [
        (handler, handler.stream)
        for handler in root.handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream in {sys.__stderr__, console.file}
    ]
    for handler, _ in handlers:
        handler.setStream(_Above(console))
    try:
        yield
    finally:
        for handler, stream in handlers:
            handler.setStream(stream)
