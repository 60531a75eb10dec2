"""promtool: the one on the PATH, else that of Debian's package, unpacked into the cache once per machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brokers import packages
from tests.brokers.cache import Missing, program


def check(what: str, given: bytes | Path) -> None:
    """Fail with promtool's words unless it accepts `given`: `metrics` in text format, or a file of `rules`.

    Without promtool, the test fails in CI and is skipped elsewhere.
    """
    try:
        promtool = _promtool()
    except Missing as missing:
        advice = f"No promtool: {missing}. Install it: apt-get install prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(advice)
        pytest.skip(advice)
    file, text = ([given], b"") if isinstance(given, Path) else ([], given)
    done = subprocess.run([promtool, "check", what, *file], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, ""), done.stdout.decode()


def _promtool() -> str:
    return shutil.which("promtool") or str(program(f"promtool-{packages.codename()}", _fetch))


def _fetch(folder: Path) -> Path:
    archives = packages.fetched(folder / "apt", "prometheus")
    [archive] = (each for each in archives if each.name.startswith("prometheus_"))
    subprocess.run(["dpkg-deb", "--extract", archive, folder / "root"], check=True)
    return folder / "root/usr/bin/promtool"
