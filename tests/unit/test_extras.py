"""A command whose extra is not installed says so in one sentence, which names the extra; exit status 1."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("as_installed.py")
KAFKA, RABBITMQ = "kafka://localhost:1", "amqp://localhost:1"
CASES: tuple[tuple[str, str, str], ...] = (
    ("none", f"serve --backend {KAFKA}", "kafka"),
    ("none", f"serve --backend {RABBITMQ}", "rabbitmq"),
    ("none", f"check --backend {KAFKA}", "kafka"),
    ("none", f"check --backend {RABBITMQ}", "rabbitmq"),
    ("none", "check --backend amqps://localhost:1", "rabbitmq"),
    ("none", f"check --backend {KAFKA} --migrate orders", "kafka"),
    ("none", f"check --backend {RABBITMQ} --migrate orders", "rabbitmq"),
    ("kafka", f"check --backend {KAFKA}?client=confluent", "kafka,fast"),
    ("none", "serve --server granian", "fast"),
    ("none", "serve --backend memory://", "otel"),
    ("none", "serve --config JWT", "jwt"),
    ("none", "check --config JWT", "jwt"),
    ("none", "conformance http://127.0.0.1:1", "conformance"),
    ("none", "mirror run --out OUT", "mirror"),
    ("none", "mirror once --out OUT", "mirror"),
    ("none", "mirror compact --out OUT", "mirror"),
    ("none", "mirror prune --out OUT --keep 1d", "mirror"),
    ("none", "mirror verify --out OUT", "mirror"),
    ("none", "mirror restore --out OUT", "mirror"),
    ("none", "mirror query --out OUT select", "mirror"),
    ("none", "mirror export --out OUT", "mirror"),
    ("none", "mirror report --out OUT", "mirror"),
    ("none", "mirror fetch-jars", "mirror"),
    ("mirror", f"mirror once --out OUT --backend {KAFKA}", "mirror,kafka"),
    ("mirror", f"mirror run --out OUT --backend {RABBITMQ}", "mirror,rabbitmq"),
    ("mirror", f"mirror verify --out OUT --backend {RABBITMQ}", "mirror,rabbitmq"),
)


@pytest.mark.extended
def test_a_command_without_its_extra_names_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    environ |= {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0"}
    for extras, command, missing in CASES:
        with subtests.test(f"{extras}: {command}"):
            files = {"OUT": str(tmp_path / "out"), "JWT": _with_issuer(tmp_path)}
            arguments = [files.get(each, each) for each in command.split()]
            tracing = {"OMS_TRACING__ENDPOINT": "http://127.0.0.1:4318"} if missing == "otel" else {}
            done = subprocess.run(
                [sys.executable, str(PROGRAM), extras, *arguments],
                env=environ | tracing,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            (sentence,) = done.stderr.splitlines()
            assert done.returncode == 1
            assert sentence.startswith("Error: ")
            assert f"pip install 'openmessaging-bridge[{missing}]'" in sentence


def test_without_the_extra_fast_hypercorn_serves_and_says_why() -> None:
    command = [sys.executable, str(PROGRAM), "none", "check", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    assert said["server"] == "hypercorn"
    assert "pip install 'openmessaging-bridge[fast]'" in said["serverReason"]


def test_the_bridge_alone_runs_in_memory() -> None:
    command = [sys.executable, str(PROGRAM), "none", "check", "--backend", "memory://"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def _with_issuer(directory: Path) -> str:
    """Write settings with an issuer of JWTs."""
    rules, config = directory / "rules.yaml", directory / "bridge.yaml"
    rules.write_text("rules: []")
    issuer = {"issuer": "https://login.test", "audience": "oms-bridge", "keys": "https://login.test/keys"}
    config.write_text(json.dumps({"auth": {"rules": str(rules), "issuers": {"login": issuer}}}))
    return str(config)
