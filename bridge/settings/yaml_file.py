"""Reads a settings file."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bridge.settings.values import SettingsError, reason


class _Loader(yaml.BaseLoader):
    """YAML whose scalars stay text: `on`, `1:30` and a date mean the same in the file and in a variable."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Raise `_RepeatedKey` if a name occurs twice: PyYAML would silently drop the first of two `limits`."""
        seen = set()
        for key, _value in node.value:
            if key.value in seen:
                raise _RepeatedKey(problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _RepeatedKey(yaml.MarkedYAMLError):
    pass


def read_file(path: Path) -> dict[str, Any]:
    """Read a settings file: nested as the model is, every value a text. Raises `SettingsError`."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings file {path} cannot be read ({reason(error)}).") from None
    try:
        content = yaml.load(raw, _Loader)  # noqa: S506 - a BaseLoader builds nothing but text, lists and mappings
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = "this name occurs a second time" if isinstance(error, _RepeatedKey) else "this is not YAML"
        raise SettingsError(f"The settings file {path}{line}: {problem}.") from None
    if not content:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"The settings file {path} has no settings; write, for example, `listen: 127.0.0.1:8080`.")
    return content
