"""The programs of the page about the Python client run as they are shown, but for the address."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import httpx

from bridge.wire.header_text import encode_name
from tests.launch import Bridge

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "client.md").read_text("utf-8")
ADDRESS: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 30.0


def test_the_examples_produce_and_receive(tmp_path: Path) -> None:
    produce, receive = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with Bridge(tmp_path / "bridge") as bridge:
        producing = start(produce, bridge, tmp_path / "produce.py")
        printed, _ = producing.communicate(timeout=PATIENCE)
        assert producing.returncode == 0
        assert re.fullmatch(r"\S+ \d+\n", printed)
        receiving = start(receive, bridge, tmp_path / "receive.py")
        watchdog = threading.Timer(PATIENCE, receiving.kill)
        watchdog.start()
        try:
            assert receiving.stdout is not None
            assert receiving.stdout.readline() == "b'{\"total\": 12}' {'Region': 'eu'} 1\n"
            wait_until_acknowledged(bridge)
        finally:
            watchdog.cancel()
            receiving.kill()
            receiving.communicate()


def test_the_escaped_name_is_that_of_the_example() -> None:
    assert f"x-oms-p-{encode_name('Region').decode()}" in PAGE


def start(program: str, bridge: Bridge, path: Path) -> "subprocess.Popen[str]":
    assert ADDRESS in program, "the example calls its own function"
    path.write_text(program.replace(ADDRESS, bridge.url), "utf-8")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-u", path], env=environ, stdout=subprocess.PIPE, text=True)


def wait_until_acknowledged(bridge: Bridge) -> None:
    deadline = time.monotonic() + PATIENCE
    while "\noms_settled_total 1.0\n" not in httpx.get(f"{bridge.management}/metrics", trust_env=False).text:
        assert time.monotonic() < deadline, "the message is not acknowledged"
        time.sleep(0.02)
