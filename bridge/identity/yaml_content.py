"""Reads the YAML of the files of rules, tokens and revocations. Imported only if there are some."""

from typing import Any

import yaml

from bridge.identity.principals import FileError
from bridge.unique_names import UniqueNames, problem_of


class _Loader(UniqueNames, yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc] # chosen at run time
    """YAML whose scalars stay text: a token's name `on` and a time mean what they say. No deny is dropped."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute


def read_yaml(raw: bytes) -> object:
    """Return the content of a file, in which every value is a text. Raises `FileError`."""
    try:
        return yaml.load(raw, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        line, problem = problem_of(error)
        raise FileError(problem if line is None else f"line {line}: {problem}") from None
