"""The README's conversation is what a person sees: its very lines are run and their output compared."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.launch import Bridge

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8080"
CHANGES = re.compile(
    r"^(date|x-oms-receipt|x-oms-leaseuntil|x-oms-h-(messageid|storehost|storetimestamp|borntimestamp|bornhost)): (.+)$"
)


class Step(NamedTuple):
    command: str
    output: str


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with Bridge(tmp_path) as running:
        yield running


def test_the_readme_shows_both_commands_before_anything_else() -> None:
    first, second = re.findall(r"^\$ (\S+ \S+)", (ROOT / "README.md").read_text(), re.MULTILINE)[:2]
    assert (first, second) == ("make serve", "make test")


def test_the_curl_conversation_prints_what_the_readme_shows(bridge: Bridge) -> None:
    steps = conversation((ROOT / "README.md").read_text())
    assert [step.command.split("/v1/")[1].split("'")[0].split()[0].split("?")[0] for step in steps] == [
        "messages",
        "messages",
        "ack",
    ]
    seen: dict[str, str] = {}
    for step in steps:
        command = step.command.replace(ADDRESS, bridge.url)
        for pasted, real in seen.items():
            command = command.replace(pasted, real)
        printed = subprocess.run(command, shell=True, capture_output=True, text=True, check=True, timeout=30).stdout
        assert_same(step.output, printed.replace("\r\n", "\n"), seen)


def conversation(text: str) -> list[Step]:
    steps = []
    for block in re.findall(r"```console\n(\$ curl .*?)```", text, re.DOTALL):
        lines = block.split("\n")
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        steps.append(Step("\n".join(lines[: end + 1])[2:], "\n".join(lines[end + 1 :])))
    return steps


def assert_same(pasted: str, printed: str, seen: dict[str, str]) -> None:
    """Same lines in the same order; where a line holds a time or an id, the same name with some value."""
    expected, found = pasted.rstrip("\n").split("\n"), printed.rstrip("\n").split("\n")
    assert [CHANGES.sub(r"\1", line) for line in expected] == [CHANGES.sub(r"\1", line) for line in found]
    for old, new in zip(expected, found, strict=True):
        if (a := CHANGES.match(old)) and (b := CHANGES.match(new)):
            seen[a[3]] = b[3]
