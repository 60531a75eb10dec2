"""What several commands take: text that can travel, and the options for settings and for a running bridge."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

Command = Callable[..., None]


class _Text(click.ParamType[str]):
    """Text that can travel: what a shell hands over need not be UTF-8."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or say that it is none."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("the argument is not UTF-8", param, ctx)
        return value


TEXT: Final = _Text()


def reads_settings(command: Command) -> Command:
    """Options of everything that reads the settings."""
    command = click.option("--backend", metavar="URL", help="memory:// unless set, or another adapter's.")(command)
    return click.option("--config", type=click.Path(path_type=Path), help="YAML file with settings.")(command)


def talks_to_bridge(command: Command) -> Command:
    """Options of everything that talks to a running bridge."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")(command)
    pem = click.Path(exists=True, dir_okay=False)
    command = click.option("--ca", type=pem, help="PEM file with the authority to trust under https.")(command)
    return click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The bridge.")(command)
