"""The page of clients in other languages: each program is run as it stands there, and one more, against a bridge."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.docs.page import Page
from tests.launch import Bridge

PAGE: Final = Page("other-clients.md")
PATIENCE: Final = 600.0
"""Seconds until a program is given up, its compiler included: a guard, not a measurement."""
_CARGO: Final = '[package]\nname = "orders"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nureq = "3"\n'
_PROJECT: Final = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><OutputType>Exe</OutputType>
<TargetFramework>net8.0</TargetFramework><RollForward>Major</RollForward><ImplicitUsings>enable</ImplicitUsings>
<Nullable>enable</Nullable></PropertyGroup></Project>"""

Prepare = Callable[[Path], list[str]]


def file(name: str, *command: str) -> Prepare:
    """Return what writes the program into a file of that name, and how to run it."""

    def prepare(folder: Path) -> list[str]:
        (folder / "program").rename(folder / name)
        return [*command, name]

    return prepare


def cargo(folder: Path) -> list[str]:
    (folder / "src").mkdir()
    (folder / "program").rename(folder / "src" / "main.rs")
    (folder / "Cargo.toml").write_text(_CARGO)
    return ["cargo", "run", "--quiet"]


def dotnet(folder: Path) -> list[str]:
    (folder / "program").rename(folder / "Program.cs")
    (folder / "orders.csproj").write_text(_PROJECT)
    return ["dotnet", "run"]


RUN: Final[dict[str, Prepare]] = {
    "curl": file("orders.sh", "sh", "-e"),
    "Python: requests": file("orders.py", sys.executable),
    "Python: httpx, HTTP/2": file("orders.py", sys.executable),
    "Node: fetch": file("orders.mjs", "node"),
    "Java 17": file("Orders.java", "java"),
    "Go": file("orders.go", "go", "run"),
    "Rust": cargo,
    "C#": dotnet,
}
NODE_HTTP2: Final = Path(__file__).with_name("node_http2.mjs")
QUICK: Final = ("curl", "Python: requests", "Python: httpx, HTTP/2")
"""What `make test` runs: the others need a toolchain, and a compiler takes a while."""


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with Bridge(tmp_path / "bridge") as bridge:
        yield bridge


def programs() -> dict[str, str]:
    """Return the programs of the page by their headings."""
    block = r"^## ([^\n]+)\n\n(?:[^\n`]+`[^\n]*\n\n)?```\w+\n(.*?)^```$"
    return dict(re.findall(block, PAGE.text, re.MULTILINE | re.DOTALL))


def test_the_page_has_a_program_for_each_heading() -> None:
    assert set(programs()) == set(re.findall(r"^## (.+)$", PAGE.text, re.MULTILINE)) == set(RUN)


@pytest.mark.parametrize(
    "heading", [pytest.param(each, marks=() if each in QUICK else pytest.mark.extended) for each in RUN]
)
def test_a_program_produces_acknowledges_and_is_pushed_to(heading: str, bridge: Bridge, tmp_path: Path) -> None:
    runs(programs()[heading], heading, bridge, tmp_path)


@pytest.mark.extended
def test_node_speaks_http2(bridge: Bridge, tmp_path: Path) -> None:
    runs(NODE_HTTP2.read_text(), "Node: fetch", bridge, tmp_path)


def runs(text: str, heading: str, bridge: Bridge, tmp_path: Path) -> None:
    """Run a program as the one of that heading is run: it does what the page promises."""
    assert text.count("http://127.0.0.1:8080") == text.count("127.0.0.1:8080") >= 1
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "program").write_text(text.replace("http://127.0.0.1:8080", bridge.url))
    command = RUN[heading](folder)
    path = f"{os.environ['PATH']}:/usr/local/go/bin:{Path.home()}/.cargo/bin"
    program = shutil.which(command[0], path=path)
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" and heading != "C#" else pytest.skip)(
            "the toolchain is not installed"
        )
    environ = os.environ | {"PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        [program, *command[1:]], cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pulled, pushed, end = done.stdout.strip().replace("}{", "}\n{").splitlines()[-3:]
    assert pulled.replace(" ", "") == '{"order":4711}'
    assert '"messageKey":"customer-12"' in pushed
    assert end == '{"end":"maxmessages"}'
    metrics = httpx.get(f"{bridge.management}/metrics", trust_env=False, timeout=PATIENCE).text
    assert "\noms_settled_total 2.0\n" in metrics
    assert "\noms_leases 0.0\n" in metrics


def test_the_stream_of_curl_gets_a_result_for_each_line(bridge: Bridge) -> None:
    [command] = re.findall(r"^### Many messages\n.*?```sh\n(.*?)^```$", PAGE.text, re.MULTILINE | re.DOTALL)
    environ = os.environ | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    script = command.replace("http://127.0.0.1:8080", bridge.url)
    done = subprocess.run(
        ["sh", "-ec", script], env=environ, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert re.findall(r'^{"status": (200)|^{"end":"(\w+)"}', done.stdout, re.MULTILINE) == [
        *(("200", ""), ("200", ""), ("", "complete"))
    ]
