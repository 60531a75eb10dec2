"""The conformance suite of HTTP/2, https://github.com/summerwind/h2spec, against both servers."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.brokers.cache import Missing, installed
from tests.server.serving import BOTH, App, Kind, running

VERSION = "v2.6.0"
REFUSED = "the Go module proxy refuses h2spec (403 Forbidden)"

# Cases that fail, and why that is right.
KNOWN = {"3.5/2": "an invalid preface is a bad HTTP/1.1 request on a port that speaks both, and answered 400"}


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """The program, built once per machine.

    Without Go it cannot be built. Some Go module proxies refuse the module (403 Forbidden), and no machine behind
    such a proxy can change that: then the test is skipped everywhere. Any other failure to build it fails in CI. The
    cases that matter most run without it: see `h2_cases.py`.
    """
    try:
        return installed("h2spec", "github.com/summerwind/h2spec/cmd/h2spec", VERSION)
    except Missing as missing:
        if "403 Forbidden" in str(missing) or os.environ.get("CI") != "true":
            pytest.skip(REFUSED if "403 Forbidden" in str(missing) else f"No h2spec: {missing}")
        pytest.fail(f"No h2spec: {missing}")


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
