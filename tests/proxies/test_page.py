"""The page about proxies: its configurations are run, and `check --through` says what its table says."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.launch import Bridge
from tests.proxies.servers import CONFIGURED, DEFAULT, running
from tests.trouble import PATIENCE

PROGRAM: Final = str(Path(sys.executable).with_name("oms-bridge"))
LOST: Final = {
    "nginx": {"names of request headers", "extended values", "large request headers", "large bodies"},
    "haproxy": {"large request headers", "many request headers", "long pulls"},
    "envoy": {"many request headers", "long pulls", "silent streams"},
}
"""What each proxy loses with its default settings."""


def check(url: str, destination: str) -> tuple[int, dict[str, Any]]:
    """Run `check --through`; returns its exit status and what it prints."""
    command = [PROGRAM, "check", "--through", url, "--destination", destination, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.extended
def test_nothing_is_lost_with_the_settings_of_the_page(
    bridge: Bridge, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        checking = {}
        for name, configurations in (("default", DEFAULT), ("page", CONFIGURED)):
            for kind, text in configurations.items():
                url = stack.enter_context(running(kind, text, tmp_path / name / kind, bridge.url))
                checking[name, kind] = pool.submit(check, url, f"check-{name}-{kind}")
        for (name, kind), checked in checking.items():
            status, report = checked.result()
            lost = {each["probe"]: each["detail"] for each in report["findings"] if not each["ok"]}
            with subtests.test(f"{name} {kind}"):
                assert set(lost) == (LOST[kind] if name == "default" else set()), lost
                assert status == (1 if lost else 0)
                assert len(report["findings"]) == 11


def test_without_a_bridge_behind_it_the_check_fails_with_a_sentence(url: str) -> None:
    for through, status, said in (
        (f"{url}/elsewhere", 1, "No bridge answers through"),
        ("http://127.0.0.1:9", 1, "ConnectionRefusedError"),
        ("ftp://127.0.0.1", 2, "http://host:port"),
    ):
        command = [PROGRAM, "check", "--through", through]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert said in done.stderr
