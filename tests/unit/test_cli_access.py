"""`oms-bridge token` and `check --as`."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bridge.cli.program import main
from bridge.identity.principals import StaticTokens

RULES = """
rules:
- {principals: [shop], allow: [produce], destinations: ["orders*"]}
- {groups: [interns], deny: [produce], destinations: [orders]}
- {principals: [shop], allow: [produce], destinations: [orders]}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "tokens.yaml").write_text("tokens: []")
    path = tmp_path / "bridge.yaml"
    path.write_text(f"auth: {{rules: {tmp_path / 'rules.yaml'}, tokens: {tmp_path / 'tokens.yaml'}}}")
    return str(path)


def oms(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_a_token_is_shown_once_and_its_entry_can_be_read() -> None:
    done = oms("token", "--principal", "shop", "--group", "a", "--group", "b", "--days", "7")
    assert done.exit_code == 0
    token, other = done.stdout.strip(), oms("token", "--principal", "shop").stdout.strip()
    assert token != other
    found = StaticTokens.parse({"tokens": yaml.load(done.stderr, yaml.BaseLoader)}).find(token)  # noqa: S506 - a list
    assert found is not None
    assert (found.principal, found.groups, found.expires is None) == ("shop", ("a", "b"), False)
    assert token not in done.stderr
    for wrong in ("k8s:shop", "", "a b"):
        assert oms("token", "--principal", wrong).exit_code == 2


def test_the_rule_that_decides_is_named(config: str) -> None:
    allowed = oms("check", "--config", config, "--as", "shop", "produce", "orders")
    assert (allowed.exit_code, allowed.stdout) == (
        0,
        "allowed: shop produce on orders: rule 1: allow produce to shop on orders*\n",
    )
    denied = oms("check", "--config", config, "--as", "shop", "--group", "interns", "produce", "orders")
    assert (denied.exit_code, denied.stdout.startswith("denied: ")) == (1, True)
    assert "rule 2: deny produce to group interns on orders" in denied.stdout
    nothing = oms("check", "--config", config, "--as", "shop", "consume", "orders", "billing")
    assert (nothing.exit_code, nothing.stdout) == (
        1,
        "denied: shop consume on orders, group billing: no rule allows it\n",
    )


def test_all_rules_are_explained_with_those_without_effect(config: str) -> None:
    arguments = ("--as", "shop", "--group", "interns", "--explain", "produce", "orders")
    lines = oms("check", "--config", config, *arguments).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["denied", "also", "also", "warning"]
    assert "rule 3" in lines[3]
    assert "rule 1" in lines[3]
    document = json.loads(oms("check", "--config", config, "--json", *arguments).stdout)
    assert (document["allowed"], len(document["rules"])) == (False, 3)


def test_a_mistyped_command_says_what_is_wrong(config: str, subtests: pytest.Subtests) -> None:
    for arguments, said in (
        (("--as", "shop"), "--as goes with"),
        (("--as", "shop", "produce"), "--as goes with"),
        (("produce", "orders"), "--as goes with"),
        (("--explain",), "go with --as"),
        (("--as", "shop", "read", "orders"), "the operation is one of"),
    ):
        with subtests.test(arguments=arguments):
            done = oms("check", "--config", config, *arguments)
            assert done.exit_code == 2
            assert said in done.stderr
    without = oms("check", "--as", "shop", "produce", "orders")
    assert "needs the setting auth.rules" in without.stderr


def test_a_file_that_is_wrong_ends_the_check_with_one_sentence(config: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("rules: [{}]")
    for arguments in (("--as", "shop", "produce", "orders"), ()):
        done = oms("check", "--config", config, *arguments)
        assert done.exit_code == 1
        assert "rule 1: one of allow and deny is expected" in done.stderr
        assert done.stderr.startswith(f"Error: auth.rules: {tmp_path / 'rules.yaml'}: ")
