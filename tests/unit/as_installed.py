"""`oms-bridge` as it runs if only some of its extras are installed: `as_installed.py kafka,mirror check --backend …`.

Every other distribution cannot be found. `none` is the bridge alone.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement


def installed_with(extras: tuple[str, ...]) -> set[str]:
    """Return the normalized names of the distributions that pip would install."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [("openmessaging-bridge", extras)]
    while waiting:
        name, wanted = waiting.pop()
        if (normalized(name), wanted) in seen:
            continue
        seen.add((normalized(name), wanted))
        try:
            requirements = [*map(Requirement, distribution(name).requires or [])]
        except PackageNotFoundError:  # of another platform
            continue
        waiting += [
            (each.name, tuple(each.extras))
            for each in requirements
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
        ]
    return {name for name, _ in seen}


def normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def hide_all_but(names: set[str]) -> None:
    """Let no import find a module of another distribution."""
    owners = packages_distributions()
    find: Any = PathFinder.find_spec

    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        owning = owners.get(name.partition(".")[0], [])
        if owning and names.isdisjoint(map(normalized, owning)):
            return None
        spec: ModuleSpec | None = find(name, path, target)
        return spec

    PathFinder.find_spec = find_spec  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    hide_all_but(installed_with(tuple(sys.argv.pop(1).split(","))))
    from bridge.cli.program import main

    main()
