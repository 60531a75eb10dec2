"""How a command runs, prints and fails: the event loop, one sentence for an error, text that is safe to print."""

import asyncio

# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py
import json
import os
import select
import stat
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import IO, Any, BinaryIO, Final, TypeVar

import click

from bridge.errors import BridgeError, CannotStart


class Output:
    """Writes to a binary stream, and flushes each time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._poll = _poll_if_writable_at_once(stream)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`, or raise.

        `click.echo` ignores a pipe that breaks in the middle under PYTHONUNBUFFERED.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) :]
        self._stream.flush()

    async def write_soon(self, data: bytes) -> None:
        """Write all of `data`, or raise; cancellation waits for the end.

        The connection must stay alive while a pager does not read: what might block is written in a thread, which
        takes 60 us.
        """
        rest = memoryview(data)
        while rest and self._poll is not None and self._poll.poll(0):
            self.write(rest[: select.PIPE_BUF])
            rest = rest[select.PIPE_BUF :]
        if not rest:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self.write, rest))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise


def _poll_if_writable_at_once(stream: BinaryIO) -> "select.poll | None":
    """Return a poll for a file, or for a pipe, which takes `PIPE_BUF` bytes whenever it is ready (POSIX `write`).

    None for a terminal or a socket, which may take less.
    """
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # replaced by a program, as tests do
        return None
    device = stat.S_ISCHR(mode) and not stream.isatty()  # /dev/null
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or device):
        return None
    ready = select.poll()
    ready.register(stream, select.POLLOUT)
    return ready


T = TypeVar("T")

FAILED: Final = 1
"""Exit status after an error."""
NO_MESSAGE: Final = 3
"""Exit status if there was no message."""


class CommandFailed(click.ClickException):
    """One sentence on standard error; with --json the problem document."""

    exit_code = FAILED

    def __init__(self, error: BaseException, *, as_json: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(error_as_json(self.error) if self.as_json else f"Error: {self.message}", file=file, err=True)


def run_async(work: Coroutine[Any, Any, T], *, as_json: bool) -> T:
    """Run the work on an event loop. An intended error becomes one sentence; a defect stays a traceback."""
    try:
        if find_spec("uvloop") is not None:
            import uvloop

            return uvloop.run(work)
        return asyncio.run(work)
    except Exception as error:
        from bridge.settings import SettingsError

        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # OSError: an address in use; RuntimeError: a server that is not installed; click handles a broken pipe
        intended = (SettingsError, CannotStart, BridgeError, OSError, RuntimeError)
        if isinstance(first, intended) and not isinstance(first, BrokenPipeError):
            raise CommandFailed(first, as_json=as_json) from None
        raise


def error_as_json(error: BaseException) -> str:
    """Return the error as one line of JSON."""
    from bridge.wire.problem import members

    return json.dumps(members(error) if isinstance(error, BridgeError) else {"detail": str(error)})


def printable(text: str) -> str:
    """Escape what could control a terminal: the text comes from others."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
