"""Options and errors that the commands of the mirror share."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from bridge.cli.command import CommandFailed
from bridge.errors import BridgeError, CannotStart

_OWN: Final = ("bridge", "adapters")
"""Packages that are always installed; others may be parts of the extra that are missing."""

Command = Callable[..., None]
Amount = TypeVar("Amount", int, timedelta)


class _Amount(click.ParamType[Amount]):
    """A number and its unit: `30d`, `256MB`."""

    def __init__(self, name: str, number: str, units: Mapping[str, Amount], example: str) -> None:
        self.name = name
        self._pattern = re.compile(f"({number})({'|'.join(units)})")
        self._units: Mapping[str, Amount] = units
        self._example = example

    def convert(self, value: str | Amount, param: click.Parameter | None, ctx: click.Context | None) -> Amount:
        """Return the amount, or say what one looks like."""
        if not isinstance(value, str):
            return value
        found = self._pattern.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not a {self.name}: write {self._example}", param, ctx)
        return int(found[1]) * self._units[found[2]]


_DAYS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}
DURATION: Final = _Amount("duration", r"\d{1,5}", _DAYS, "days or hours, such as 30d or 12h")
SIZE: Final = _Amount("size", r"[1-9]\d{0,5}", {"MB": 1 << 20, "GB": 1 << 30}, "256MB or 1GB")

out_option = click.option(
    "--out", required=True, metavar="PATH", help="Path or URL of the mirror: /srv/mirror, s3a://…"
)
after_option = click.option(
    *("--after", "minutes"),
    type=click.IntRange(0, 100_000_000),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Take only what was mirrored at least this long ago.",
)
bridge_option = click.option(
    "--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of a memory:// backend."
)


def backend_option(meaning: str) -> Callable[[Command], Command]:
    """Return the option of a command that may compare the mirror with its backend."""
    return click.option("--backend", envvar="OMS_BACKEND", metavar="URL", help=meaning)


def json_option(of: str) -> Callable[[Command], Command]:
    """Return the option that prints JSON; `of`: what each object is."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print JSON, one object {of}.")


class MirrorCommand(click.Command):
    """A command that prints an expected error as one sentence; a defect stays a traceback."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command. Raises `CommandFailed`."""
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] in _OWN:
                raise
            text = f"The mirror needs {error.name}, which is not installed: pip install 'openmessaging-bridge[mirror]'."
            raise CommandFailed(CannotStart(text), as_json=as_json) from None
        except BrokenPipeError:
            raise
        except (CannotStart, BridgeError, OSError) as error:
            raise CommandFailed(error, as_json=as_json) from None
