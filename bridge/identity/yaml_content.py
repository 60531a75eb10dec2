"""Reads the YAML of the files of rules, tokens and revocations. Imported only if there are some."""

from typing import Any

import yaml

from bridge.identity.principals import FileError


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc] # chosen at run time
    """YAML whose scalars stay text: a token's name `on` and a time mean what they say."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise `FileError` if a name occurs twice: PyYAML would drop the first, perhaps a deny."""
        seen = set()
        for key, _value in node.value:
            if key.value in seen:
                raise FileError(f"line {key.start_mark.line + 1}: this name occurs a second time")
            seen.add(key.value)
        built: dict[Any, Any] = super().construct_mapping(node, deep)
        return built


def read_yaml(raw: bytes) -> object:
    """Return the content of a file, in which every value is a text. Raises `FileError`."""
    try:
        return yaml.load(raw, _Loader)  # noqa: S506 - a SafeLoader
    except FileError:
        raise
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise FileError(f"{line}this is not YAML") from None
