"""Every program of the page about readers is run as it stands, on disk and on S3, and counts the same."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from bridge.cli.program import main
from bridge.message import Message
from bridge.mirror.table import NAMES, Table
from tests.docs.commands import ROOT, commands
from tests.docs.page import Page
from tests.mirror.made import Bad, Batch, make_mirror, message, some
from tests.mirror.s3 import bucket

PAGE: Final = Page("mirror-readers.md")
GUARD: Final = 600
PARQUET: Final = "Plain Parquet"
PROGRAMS: Final = {
    f"{section} {number}": program
    for section in ("DuckDB", "Polars", PARQUET)
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", PAGE.section(section), re.DOTALL), 1)
}
OFF_S3: Final = {f"{PARQUET} 3", f"{PARQUET} 4"}
"""DuckDB needs an extension for it; the page names both as tried on disk only."""
_SUBMIT_OPTIONS: Final = "-XX:TieredStopAtLevel=1"


class Mirror(NamedTuple):
    """Where the programs find the mirror."""

    out: str
    environ: Mapping[str, str]


@pytest.fixture(params=["disk", "S3"])
def mirror(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Three orders of two customers, among other messages, exported too."""
    bodies = [b'{"customer": "customer-%d", "total": 2.5}' % (number % 2) for number in range(3)]
    orders: dict[tuple[str, int], Message | Bad] = {
        ("orders/0", n): message(n, body=body, content_type="application/json") for n, body in enumerate(bodies)
    }
    batches = [Batch(orders | some(2, "audit"))]
    if request.param == "disk":
        make_mirror(tmp_path / "mirror", batches)
        yield _exported(Mirror(str(tmp_path / "mirror"), {}))
        return
    with bucket(tmp_path / "s3") as lake:
        environ = lake.environ | {"AWS_ALLOW_HTTP": "true"}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        make_mirror(lake.out, batches)
        yield _exported(Mirror(lake.out, environ))


def _exported(mirror: Mirror) -> Mirror:
    assert CliRunner().invoke(main, ["mirror", "export", "--out", mirror.out]).exit_code == 0
    return mirror


def run(command: list[str], mirror: Mirror, folder: Path) -> str:
    """Run a command where its program finds the mirror. Return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, **mirror.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": _SUBMIT_OPTIONS}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


def check(printed: str) -> None:
    """Fail unless it is the orders of both customers."""
    assert re.search(r"customer-0\W+2\b", printed), printed
    assert re.search(r"customer-1\W+1\b", printed), printed


@pytest.mark.extended
def test_every_program_of_python_counts_the_orders(mirror: Mirror, tmp_path: Path, subtests: pytest.Subtests) -> None:
    assert len(PROGRAMS) == 6
    for name, program in PROGRAMS.items():
        if mirror.environ and name in OFF_S3:
            continue
        with subtests.test(name):
            assert "/srv/mirror" in program
            place = program.replace("/srv/mirror", mirror.out.replace("s3a:", "s3:"))
            check(run([sys.executable, "-c", place], mirror, tmp_path))


@pytest.mark.extended
def test_spark_counts_the_orders(mirror: Mirror, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.section("Spark"), re.DOTALL)
    (tmp_path / "orders.py").write_text(program.replace("/srv/mirror", mirror.out))
    local, on_s3 = (command.text for command in commands("docs/mirror-readers.md") if "spark-submit" in command.text)
    check(run(["bash", "-ec", on_s3 if mirror.environ else local], mirror, tmp_path))


def test_the_tables_need_no_feature_of_readers(tmp_path: Path) -> None:
    """Trino's connector and others read version 1 of the protocol; upkeep and added columns keep it."""
    make_mirror(tmp_path, [Batch(some(3)), Batch(some(3, first=3))])
    for command in (["compact"], ["prune", "--where", "message_id = 'orders-1'"]):
        assert CliRunner().invoke(main, ["mirror", *command, "--out", str(tmp_path)]).exit_code == 0
    for name in NAMES:
        protocol = DeltaTable(Table.require(str(tmp_path), name).delta.table_uri).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert not protocol.reader_features
        assert not protocol.writer_features
