"""Compiles the modules that each message passes with mypyc if `OMS_COMPILE` is 1: a wheel for one platform.

Otherwise the package is plain Python. docs/decisions/0074-the-hot-path-is-compiled.md has the reasons.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

COMPILE = os.environ.get("OMS_COMPILE") == "1"
OPTIONS = ("--config-file=", "--ignore-missing-imports")
"""Of mypy. The build environment has none of the packages that the bridge imports; `make lint` checks types."""


def extensions() -> list[Extension]:
    """Return what is compiled: a file of C for each module.

    gcc takes 2.5 minutes for these; for one file of all of them it took eight, and the result was no faster.
    """
    from mypyc.build import mypycify  # noqa: PLC0415 - only a compiled build has it

    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    modules = project["tool"]["openmessaging-bridge"]["compiled"]
    files = [f"{module.replace('.', '/')}.py" for module in modules]
    return mypycify([*OPTIONS, *files], opt_level="2", debug_level="0", multi_file=True)


# pip runs this three times: for what the build requires, when mypy is not installed yet, for the metadata, to build.
setup(
    ext_modules=extensions() if COMPILE and not {"build_ext", "bdist_wheel"}.isdisjoint(sys.argv) else [],
    setup_requires=["mypy==2.4.1"] if COMPILE else [],
)
