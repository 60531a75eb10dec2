"""The house has rooms: who may import whom, read from the syntax trees of `bridge/` and `adapters/`."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
OURS: Final = ("bridge", "adapters", "tests")

ALLOWED: Final = {
    "bridge.message": (),
    "bridge.errors": (),
    "bridge.wire": ("bridge.message", "bridge.errors", "bridge.wire"),
    "bridge.engine": ("bridge.message", "bridge.errors", "adapters.base", "bridge.engine"),
    "bridge.callbacks": (
        *("bridge.__version__", "bridge.message", "bridge.errors", "bridge.wire", "bridge.engine"),
        *("adapters.base", "bridge.callbacks"),
    ),
    "adapters": ("bridge.message", "bridge.errors", "adapters"),
}
"""A room, and everything of ours that it may import."""

GUARDED: Final = {
    "bridge.http": ("bridge.http", "bridge.process"),
    "pyspark": ("bridge.mirror",),
    "aiohttp": ("bridge.callbacks",),  # one way out, and it is guarded
}
"""A module, and the only rooms that may import it."""

NOT_THE_CODE_S: Final = ("tests",)


def inside(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def imports(source: str, module: str, *, package: bool = False) -> Iterator[str]:
    """Yield what a module imports, wherever the statement stands, as absolute dotted names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) - node.level + package]
                start = ".".join([*above, *([start] if start else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(name := node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"}:
                yield str(name.value)


def offences(source: str, module: str, *, package: bool = False) -> list[str]:
    """Return what a module imports and may not."""
    found = []
    for target in imports(source, module, package=package):
        for room, allowed in ALLOWED.items():
            if inside(module, room) and any(inside(target, ours) for ours in OURS):
                found += [] if any(inside(target, name) for name in allowed) else [target]
        for guarded, users in GUARDED.items():
            if inside(target, guarded) and not any(inside(module, user) for user in users):
                found.append(target)
        found += [target for name in NOT_THE_CODE_S if inside(target, name)]
    return sorted(set(found))


def modules() -> list[tuple[Path, str]]:
    found = []
    for path in sorted([*ROOT.glob("bridge/**/*.py"), *ROOT.glob("adapters/**/*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


MODULES: Final = modules()


@pytest.mark.parametrize(("path", "module"), MODULES, ids=[str(p.relative_to(ROOT)) for p, _ in MODULES])
def test_a_module_imports_only_what_its_room_may(path: Path, module: str) -> None:
    assert offences(path.read_text(), module, package=path.name == "__init__.py") == []


def test_there_is_something_to_look_at() -> None:
    seen = {module for _, module in MODULES}
    assert {"bridge.wire.headers", "bridge.engine.window", "bridge.http", "adapters.base", "adapters.memory"} <= seen


def test_no_file_is_called_utils() -> None:
    assert [path for path, _ in MODULES if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []


@pytest.mark.parametrize(
    ("module", "source", "offence"),
    [
        ("bridge.wire.headers", "import bridge.engine.window", "bridge.engine.window"),
        ("bridge.wire.headers", "from bridge import engine", "bridge.engine"),
        ("bridge.wire.headers", "from bridge.engine import window", "bridge.engine.window"),
        ("bridge.wire.headers", "from ..engine import window", "bridge.engine.window"),
        ("bridge.wire.headers", "from .. import settings", "bridge.settings"),
        ("bridge.wire.headers", "import bridge", "bridge"),
        ("bridge.wire.headers", "from bridge import *", "bridge.*"),
        ("bridge.wire.headers", "from adapters.base import Delivery", "adapters.base.Delivery"),
        ("bridge.wire.headers", "def f():\n    if x:\n        import bridge.http.door", "bridge.http.door"),
        ("bridge.wire.headers", "import_module('bridge.engine')", "bridge.engine"),
        ("bridge.wire.headers", "importlib.import_module('bridge.engine')", "bridge.engine"),
        ("bridge.engine.window", "from bridge.wire.headers import encode", "bridge.wire.headers.encode"),
        ("bridge.engine.window", "from adapters.memory import connect", "adapters.memory.connect"),
        ("bridge.engine.window", "from adapters import memory", "adapters.memory"),
        ("bridge.engine.window", "from bridge.messages import x", "bridge.messages.x"),
        ("bridge.message", "from bridge.errors import BridgeError", "bridge.errors.BridgeError"),
        ("adapters.kafka.adapter", "from bridge.engine.names import check_name", "bridge.engine.names.check_name"),
        ("adapters.kafka.adapter", "from bridge.settings import load", "bridge.settings.load"),
        ("bridge.cli", "import pyspark.sql", "pyspark.sql"),
        ("adapters.kafka.adapter", "import pyspark", "pyspark"),
        ("bridge.cli", "from bridge.http.app import data_app", "bridge.http.app.data_app"),
        ("bridge.server.hypercorn", "from bridge import http", "bridge.http"),
        ("bridge.cli", "from tests.launch import Bridge", "tests.launch.Bridge"),
    ],
)
def test_the_rules_can_be_broken_and_that_is_seen(module: str, source: str, offence: str) -> None:
    assert offences(source, module) == [offence]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bridge.wire.headers", "import json\nfrom bridge.wire.text import quote\nfrom bridge.message import Message"),
        ("bridge.wire.headers", "from .text import quote\nfrom . import trace\nfrom ..errors import BridgeError"),
        (
            "bridge.engine.window",
            "from adapters.base import Delivery\nfrom bridge.engine import names\nimport uuid_utils",
        ),
        (
            "adapters.kafka.adapter",
            "from adapters.base import Adapter\nfrom bridge.errors import NotStored\nimport kafka",
        ),
        ("bridge.mirror.job", "import pyspark.sql"),
        ("bridge.process", "from bridge.http.app import data_app\nfrom bridge.engine.engine import Engine"),
        ("bridge.http.door", "from bridge.http.guard import Guard\nfrom bridge.wire import problem"),
    ],
)
def test_what_the_rules_allow_is_no_offence(module: str, source: str) -> None:
    assert offences(source, module) == []


def test_a_package_s_relative_imports_start_at_itself() -> None:
    assert list(imports("from . import a\nfrom .b import c", "bridge.wire", package=True)) == [
        "bridge.wire.a",
        "bridge.wire.b.c",
    ]
