"""From an error of the mirror to one sentence, as the other commands say it."""

from collections.abc import Iterator
from contextlib import contextmanager

from bridge.cli.output import Failure
from bridge.errors import BridgeError, CannotStart


@contextmanager
def stated(*, as_json: bool = False) -> Iterator[None]:
    """Make one sentence of what is raised on purpose; a defect stays a traceback."""
    try:
        yield
    except (CannotStart, BridgeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise Failure(error, as_json=as_json) from None
