"""From an error of the mirror to one sentence, as the other commands say it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.cli.run_command import CommandFailed
from bridge.errors import BridgeError, CannotStart

_EXTRA: Final = frozenset({"pyspark", "pyarrow", "pandas", "numpy", "duckdb", "deltalake", "rich", "pygal"})


@contextmanager
def stated(*, as_json: bool = False) -> Iterator[None]:
    """Make one sentence of what is raised on purpose; a defect stays a traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        needs = f"The mirror needs {error.name}, which is not installed: pip install 'openmessaging-bridge[mirror]'."
        raise CommandFailed(CannotStart(needs), as_json=as_json) from None
    except (CannotStart, BridgeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandFailed(error, as_json=as_json) from None
