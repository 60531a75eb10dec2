"""Which package may import which: the tables of docs/architecture.md hold for all of `bridge/` and `adapters/`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.page import Page

ROOT: Final = Path(__file__).parents[2]
OURS: Final = ("bridge", "adapters", "tests")


def listed(cell: str) -> tuple[str, ...]:
    """Return the modules that a cell of the page names; those of `bridge` stand there without that prefix."""
    found = () if cell == "nothing" else cell.replace("`", "").split(", ")
    return tuple(name if name.startswith(OURS) else f"bridge.{name}" for name in found)


ALLOWED: Final = {
    package.strip("`"): (package.strip("`"), "bridge.__version__", *listed(modules))
    for package, _, modules in Page("architecture.md").table("Layers")
}
"""A package, and everything of this repository that it may import."""

RESTRICTED: Final = {
    module.strip("`"): (module.strip("`"), *listed(packages))
    for module, packages, _ in Page("architecture.md").table("Restricted imports")
}
"""A module, and the only packages that may import it."""


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


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


def row(module: str) -> str | None:
    """Return the package whose row holds for a module: the innermost."""
    return max((package for package in ALLOWED if inside(module, package)), key=len, default=None)


def offences(source: str, module: str, *, package: bool = False) -> list[str]:
    """Return what a module imports and may not."""
    found = set()
    allowed = ALLOWED.get(row(module) or "", ())
    for target in imports(source, module, package=package):
        if any(inside(target, ours) for ours in OURS) and not any(inside(target, name) for name in allowed):
            found.add(target)
        for restricted, users in RESTRICTED.items():
            if inside(target, restricted) and not any(inside(module, user) for user in users):
                found.add(target)
    return sorted(found)


def modules() -> list[tuple[Path, str]]:
    """Return every file of the code with the name of its module."""
    found = []
    for path in sorted([*ROOT.glob("bridge/**/*.py"), *ROOT.glob("adapters/**/*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


MODULES: Final = modules()


def test_every_module_imports_only_what_its_package_may() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {target}"
        for path, module in MODULES
        for target in offences(path.read_text("utf-8"), module, package=path.name == "__init__.py")
    ]
    assert found == [], "not allowed by the tables of docs/architecture.md"


def test_every_package_has_its_row_and_every_row_its_package() -> None:
    names = {module for _, module in MODULES}
    assert {module for module in names if row(module) is None} <= {"bridge"}, "add a row to docs/architecture.md"
    assert {package for package in ALLOWED if package not in names} == set(), "a row of docs/architecture.md is stale"
    known = {name for rule in (*ALLOWED.values(), *RESTRICTED.values()) for name in rule} - {"bridge.__version__"}
    assert {name for name in known - names if inside(name, "bridge") or inside(name, "adapters")} == set()


def test_the_modules_are_found() -> None:
    seen = {module for _, module in MODULES}
    assert len(seen) > 250
    assert {"bridge.wire.headers", "bridge.engine", "bridge.http", "adapters.base", "adapters.memory"} <= seen


def test_no_file_is_called_utils() -> None:
    assert [path for path, _ in MODULES if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []


def test_every_rule_notices_an_import_that_breaks_it(subtests: pytest.Subtests) -> None:
    for module, source, offence in (
        ("bridge.wire.headers", "import bridge.engine.prefetch_buffer", "bridge.engine.prefetch_buffer"),
        ("bridge.wire.headers", "from bridge import engine", "bridge.engine"),
        ("bridge.wire.headers", "from bridge.engine import prefetch_buffer", "bridge.engine.prefetch_buffer"),
        ("bridge.wire.headers", "from ..engine import prefetch_buffer", "bridge.engine.prefetch_buffer"),
        ("bridge.wire.headers", "from .. import settings", "bridge.settings"),
        ("bridge.wire.headers", "import bridge", "bridge"),
        ("bridge.wire.headers", "from bridge import *", "bridge.*"),
        ("bridge.wire.headers", "from adapters.base import Delivery", "adapters.base.Delivery"),
        (
            "bridge.wire.headers",
            "def f():\n    if x:\n        import bridge.http.asgi_endpoint",
            "bridge.http.asgi_endpoint",
        ),
        ("bridge.wire.headers", "import_module('bridge.engine')", "bridge.engine"),
        ("bridge.wire.headers", "importlib.import_module('bridge.engine')", "bridge.engine"),
        ("bridge.engine.prefetch_buffer", "from bridge.wire.headers import encode", "bridge.wire.headers.encode"),
        ("bridge.engine.prefetch_buffer", "from adapters.memory import connect", "adapters.memory.connect"),
        ("bridge.engine.prefetch_buffer", "from adapters import memory", "adapters.memory"),
        ("bridge.engine.prefetch_buffer", "from bridge.messages import x", "bridge.messages.x"),
        ("bridge.message", "from bridge.errors import BridgeError", "bridge.errors.BridgeError"),
        (
            "adapters.kafka.adapter",
            "from bridge.engine.destination_names import check_name",
            "bridge.engine.destination_names.check_name",
        ),
        ("adapters.kafka.adapter", "from bridge.settings import load", "bridge.settings.load"),
        ("bridge.cli", "import pyspark.sql", "pyspark.sql"),
        ("adapters.kafka.adapter", "import pyspark", "pyspark"),
        ("bridge.cli", "from bridge.http.data_port import data_app", "bridge.http.data_port.data_app"),
        ("bridge.server.hypercorn", "from bridge import http", "bridge.http"),
        ("bridge.cli", "import aiohappyeyeballs", "aiohappyeyeballs"),
        ("bridge.cli", "from tests.launch import Bridge", "tests.launch.Bridge"),
        ("bridge.cli", "from bridge.engine.engine import Engine", "bridge.engine.engine.Engine"),
        ("bridge.settings.load", "from bridge.http import data_port", "bridge.http.data_port"),
        ("bridge.logs", "from bridge.errors import NotStored", "bridge.errors.NotStored"),
        ("bridge.process", "from adapters.memory import connect", "adapters.memory.connect"),
        ("adapters.base", "from bridge.errors import NotStored", "bridge.errors.NotStored"),
        ("adapters.kafka.adapter", "from adapters.memory import connect", "adapters.memory.connect"),
        (
            "adapters.testing.kit",
            "from adapters.field_headers import BROKER_FIELD_PREFIX",
            "adapters.field_headers.BROKER_FIELD_PREFIX",
        ),
    ):
        with subtests.test(module=module, source=source):
            assert offences(source, module) == [offence]


def test_an_import_that_the_rules_allow_is_no_offence(subtests: pytest.Subtests) -> None:
    for module, source in (
        (
            "bridge.wire.headers",
            "import json\nfrom bridge.wire.header_text import quote\nfrom bridge.message import Message",
        ),
        (
            "bridge.wire.headers",
            "from .gzip_body import encode\nfrom . import multipart\nfrom ..errors import Draining",
        ),
        (
            "bridge.engine.prefetch_buffer",
            "from adapters.base import Delivery\nfrom bridge.engine import dedup\nimport uuid_utils",
        ),
        (
            "adapters.kafka.adapter",
            "from adapters.base import Adapter\nfrom bridge.errors import NotStored\nimport kafka",
        ),
        ("bridge.mirror.job", "import pyspark.sql"),
        ("bridge", "import json"),
        ("bridge.process", "from bridge.http.data_port import data_app\nfrom bridge.engine.engine import Engine"),
        (
            "bridge.http.asgi_endpoint",
            "from bridge.http.origin_policy import OriginPolicy\nfrom bridge.wire import headers",
        ),
        ("bridge.callbacks.sending", "import aiohappyeyeballs\nfrom bridge import __version__"),
        ("bridge.mirror.sources", "from adapters.kafka.options import Options\nfrom adapters.runs import Runs"),
    ):
        with subtests.test(module=module, source=source):
            assert offences(source, module) == []


def test_a_package_s_relative_imports_start_at_itself() -> None:
    assert list(imports("from . import a\nfrom .b import c", "bridge.wire", package=True)) == [
        "bridge.wire.a",
        "bridge.wire.b.c",
    ]


def test_a_bridge_in_memory_imports_nothing_that_an_idle_one_does_not_need() -> None:
    script = (
        "import sys; before = set(sys.modules); from bridge.cli.program import main; import bridge.process;"
        "from bridge.settings import load; bridge.parts_from_settings.create_adapter(load(None, {}, {}));"
        "off = ('aiohttp', 'bridge.client', 'bridge.tracing.', 'snappy', 'sqlite3', 'yaml',"
        " 'granian', 'h2', 'hypercorn', 'offapi');"  # of the two servers only the one that runs
        "assert not (found := [name for name in set(sys.modules) - before if name.startswith(off)]), found"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
