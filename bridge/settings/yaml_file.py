"""Reads a settings file."""

from pathlib import Path
from typing import Any

import yaml

from bridge.settings.values import SettingsError, reason
from bridge.unique_names import UniqueNames, problem_of


class _Loader(UniqueNames, yaml.BaseLoader):
    """YAML whose scalars stay text: `on`, `1:30` and a date mean the same in the file and in a variable."""


def read_file(path: Path) -> dict[str, Any]:
    """Read a settings file: nested as the model is, every value a text. Raises `SettingsError`."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings file {path} cannot be read ({reason(error)}).") from None
    try:
        content = yaml.load(raw, _Loader)  # noqa: S506 - a BaseLoader builds nothing but text, lists and mappings
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        line, problem = problem_of(error)
        where = path if line is None else f"{path}, line {line}"
        raise SettingsError(f"The settings file {where}: {problem}.") from None
    if not content:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"The settings file {path} has no settings; write, for example, `listen: 127.0.0.1:8080`.")
    return content
