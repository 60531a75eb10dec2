"""The conformance suite of HTTP/2, https://github.com/summerwind/h2spec, against both servers."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.serving import BOTH, App, Kind, running

VERSION = "v2.6.0"
CACHE = Path.home() / ".cache" / "openmessaging-bridge" / "bin"
GO = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")

# Cases that fail, and why that is right.
KNOWN = {"3.5/2": "an invalid preface is a bad HTTP/1.1 request on a port that speaks both, and answered 400"}


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """The program, built once per machine.

    Without Go there is none. Some Go module proxies refuse the module (403 Forbidden); that no machine behind them can
    mend, so it is a skip that says so. Any other failure to build it fails CI.
    """
    program = CACHE / "h2spec"
    if program.exists():
        return program
    if GO is None:
        pytest.skip("h2spec is built with Go, which is not installed")
    module = f"github.com/summerwind/h2spec/cmd/h2spec@{VERSION}"
    environment = {**os.environ, "GOBIN": str(CACHE)}
    built = subprocess.run([GO, "install", module], env=environment, capture_output=True, text=True, check=False)
    refused = "403 Forbidden" in built.stderr
    if built.returncode and not refused and os.environ.get("CI") == "true":
        pytest.fail(f"go install {module}: {built.stderr}")
    if built.returncode:
        pytest.skip(f"h2spec cannot be built here: {built.stderr.strip()[:200]}")
    return program


@BOTH
async def test_h2spec(kind: Kind, h2spec: Path) -> None:
    async with running(kind, App()) as server:
        process = await asyncio.create_subprocess_exec(
            h2spec, "-h", "127.0.0.1", "-p", str(server.port), "-P", "/size", "-S", "-o", "3", stdout=subprocess.PIPE
        )
        output = (await process.communicate())[0].decode()
    assert re.search(r"14\d tests, \d+ passed", output), output
    report = output.partition("Failures:")[2]
    assert _failures(report) == set(KNOWN), report


def _failures(report: str) -> set[str]:
    """Return the failed cases as section/number."""
    failed, section = set(), ""
    for line in re.sub(r"\x1b\[\d*m", "", report).splitlines():
        if heading := re.match(r"\s+([\d.]+)\. \D", line):
            section = heading[1]
        elif case := re.match(r"\s+\S\s*(\d+):", line):
            failed.add(f"{section}/{case[1]}")
    return failed
