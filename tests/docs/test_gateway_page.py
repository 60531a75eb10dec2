"""The page about gateways: its files and commands work as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest

from bridge.identity.rules import Operation, Rules
from bridge.identity.yaml_content import read_yaml
from bridge.settings import load
from tests.docs.commands import commands
from tests.docs.page import Page
from tests.launch import Bridge

PAGE: Final = Page("gateway.md")
GUARD: Final = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("server", ["hypercorn", "granian"])
def test_the_recipe_works(tmp_path: Path, server: str) -> None:
    for block in blocks("yaml"):
        if name := re.match(r"# (\S+\.yaml)\n", block):
            (tmp_path / name[1]).write_text(block)
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    local = [each.text for each in commands("docs/gateway.md") if each.needs is None]
    before, after = local[: (at := [" serve" in each for each in local].index(True))], local[at + 1 :]
    said = [run(command) for command in before]
    assert said[-3:] == [
        "allowed: shop produce on orders: rule 1: allow produce, transact to shop on orders, orders-*\n",
        (
            "allowed: anna consume on orders, group billing: rule 2: allow callback, consume to group finance on orders"
            " in consumer groups billing\n"
        ),
        "denied: ops consume on salaries, group audit: rule 4: deny consume to ops on salaries\n",
    ]
    settings = {f"OMS_AUTH__{name.upper()}": str(tmp_path / f"{name}.yaml") for name in ("rules", "tokens")}
    with Bridge(tmp_path / "run", server=server, settings=settings) as bridge:
        environ["OMS_URL"] = bridge.url
        for command in after:
            if command.startswith("export "):
                variable, _, value = command.removeprefix("export ").partition("=")
                environ[variable] = value
                continue
            said.append(run(command.replace("http://localhost:8080", bridge.url)))
        assert '{"id": 7}' in said[-1]
        refused = httpx.get(f"{bridge.url}/v1/messages?version=1.0.0&source=salaries&consumerid=a", timeout=GUARD)
        assert refused.status_code == 401


def test_its_rules_and_settings_can_be_read(tmp_path: Path) -> None:
    (rules,) = (block for block in blocks("yaml") if block.startswith("# rules.yaml"))
    assert list(Rules.parse(read_yaml(rules.encode())).warnings()) == []
    (tmp_path / "any").write_text("x")
    found = 0
    for block in blocks("yaml"):
        if "issuers:" not in block:
            continue
        found += 1
        config = tmp_path / "bridge.yaml"
        config.write_text(re.sub(r": /etc/\S+", f": {tmp_path / 'any'}", block))
        assert load(config, {}, {}).auth is not None
    assert found == 2


def test_the_pages_operations_are_those_of_the_code() -> None:
    assert {row[0].strip("`") for row in PAGE.table("Rules")} == set(Operation)
