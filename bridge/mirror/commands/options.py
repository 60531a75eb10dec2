"""Options and errors that the commands of the mirror share."""

import re
from datetime import timedelta
from typing import Any, Final

import click

from bridge.cli.run_command import CommandFailed
from bridge.errors import BridgeError, CannotStart

_DURATIONS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_SIZES: Final = {"MB": 1 << 20, "GB": 1 << 30}
_EXTRA: Final = frozenset({"pyspark", "pyarrow", "pandas", "numpy", "duckdb", "deltalake", "rich", "pygal"})


class _Duration(click.ParamType[timedelta]):
    """`30d` or `12h`."""

    name = "duration"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration, or say what one looks like."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,5})([dh])", value)
        if found is None:
            self.fail(f"{value!r} is not a duration: write days or hours, such as 30d or 12h", param, ctx)
        return int(found[1]) * _DURATIONS[found[2]]


class _Size(click.ParamType[int]):
    """`256MB` or `1GB`."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes, or say what a size looks like."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([1-9]\d{0,5})(MB|GB)", value)
        if found is None:
            self.fail(f"{value!r} is not a size: write 256MB or 1GB", param, ctx)
        return int(found[1]) * _SIZES[found[2]]


DURATION: Final = _Duration()
SIZE: Final = _Size()

out_option = click.option("--out", required=True, metavar="PATH", help="Path or URL of the mirror.")
after_option = click.option(
    *("--after", "minutes"),
    type=click.IntRange(0, 100_000_000),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Take only hours that ended at least this long ago.",
)
bridge_option = click.option(
    "--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of a memory:// backend."
)


class MirrorCommand(click.Command):
    """A command that prints an expected error as one sentence; a defect stays a traceback."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command. Raises `CommandFailed`."""
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            text = f"The mirror needs {error.name}, which is not installed: pip install 'openmessaging-bridge[mirror]'."
            raise CommandFailed(CannotStart(text), as_json=as_json) from None
        except BrokenPipeError:
            raise
        except (CannotStart, BridgeError, OSError) as error:
            raise CommandFailed(error, as_json=as_json) from None
