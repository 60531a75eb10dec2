"""The YAML file: read it strictly, and never quote it, for it may hold a password."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bridge.settings.values import SettingsError, reason


class _Loader(yaml.BaseLoader):
    """YAML whose scalars stay text, so that a file and a variable mean the same and `on`, `1:30` or a date no trap."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a name that stands twice: PyYAML alone drops the first of two `limits` without a word."""
        seen = set()
        for key, _value in node.value:
            if key.value in seen:
                raise _Repeated(problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Repeated(yaml.MarkedYAMLError):
    pass


def read_file(path: Path) -> dict[str, Any]:
    """Read the settings of a file, nested as the model is, every value a text. Raises `SettingsError`."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings file {path} cannot be read ({reason(error)}).") from None
    try:
        content = yaml.load(raw, _Loader)  # noqa: S506 - a BaseLoader builds nothing but text, lists and mappings
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        what = "the name stands there a second time" if isinstance(error, _Repeated) else "this is not YAML"
        raise SettingsError(f"The settings file {path}{line}: {what}.") from None
    if not content:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"The settings file {path} holds no settings; `listen: 127.0.0.1:8080` would be one.")
    return content
