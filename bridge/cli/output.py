"""How a command says what went wrong, and how it prints what others wrote."""

import json
from typing import IO, Any, Final

import click

from bridge.errors import BridgeError

FAILED: Final = 1
NOTHING: Final = 3
"""No message came."""


class Failure(click.ClickException):
    """One sentence on standard error; under --json the problem document."""

    exit_code = FAILED

    def __init__(self, error: BaseException, *, as_json: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(document(self.error) if self.as_json else f"Error: {self.message}", file=file, err=True)


def document(error: BaseException) -> str:
    """Return the error as a line of JSON."""
    from bridge.wire.problem import members  # noqa: PLC0415 - see bridge/cli/__init__.py

    return json.dumps(members(error) if isinstance(error, BridgeError) else {"detail": str(error)})


def printable(text: str) -> str:
    """Keep a terminal safe: what others wrote may hold escape sequences."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
