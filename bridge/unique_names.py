"""YAML in which each name of a mapping occurs once: PyYAML would silently drop the first of two."""

from collections.abc import Hashable
from typing import Any

import yaml


class RepeatedName(yaml.MarkedYAMLError):
    """A name occurs a second time; `problem_mark` says where."""


class UniqueNames:
    """Goes before a loader of PyYAML among the bases of a class."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Raise `RepeatedName` if a name occurs twice."""
        seen = set()
        for key, _value in node.value:
            if key.value in seen:
                raise RepeatedName(problem_mark=key.start_mark)
            seen.add(key.value)
        built: dict[Hashable, Any] = super().construct_mapping(node, deep)  # type: ignore[misc] # of the loader
        return built


def problem_of(error: Exception) -> tuple[int | None, str]:
    """Return the line, counted from 1, and what is wrong there, for an error of a loader; None: no line is known."""
    mark = getattr(error, "problem_mark", None)
    problem = "this name occurs a second time" if isinstance(error, RepeatedName) else "this is not YAML"
    return None if mark is None else mark.line + 1, problem
