"""The programs of the page about transactions keep their promise, wherever they are killed."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from tests.brokers import postgres
from tests.launch import Bridge

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "transactions.md").read_text("utf-8")
PROGRAM, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FOR_POSTGRES: Final = re.findall(r"`(\S+)` by `(\S+)`", PAGE)
PATIENCE: Final = 60.0
VERSION: Final = {"x-oms-version": "1.0.0"}

KILLED: Final = """
import os, runpy, signal, sys
program, at = sys.argv.pop(1), int(sys.argv.pop(1))
lines = 0

def trace(frame, event, _):
    global lines
    if frame.f_code.co_filename != program:
        return None
    if event == "line":
        lines += 1
        if lines == at:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace

sys.settrace(trace)
sys.argv[0] = program
runpy.run_path(program, run_name="__main__")
print(lines)
"""


class Shop:
    """The two programs of the page, in their directory, and their bridge."""

    def __init__(self, directory: Path, postgres: dict[str, str] | None) -> None:
        """`postgres`: the variables by which programs find the database; None: it is SQLite."""
        self.directory = directory
        self.postgres = postgres
        self.environ = os.environ | {"PYTHONPATH": str(ROOT)} | (postgres or {})
        program, check = PROGRAM, CHECK
        if postgres is not None:
            assert len(FOR_POSTGRES) == 3
            for old, new in FOR_POSTGRES:
                assert old in program
                assert old in check
                program, check = program.replace(old, new), check.replace(old, new)
        listening = check.replace('server = HTTPServer(("127.0.0.1", 8081)', 'server = HTTPServer(("127.0.0.1", 0)')
        listening = listening.replace("server.serve", "print(server.server_port, flush=True)\nserver.serve")
        self.endpoint = subprocess.Popen(
            [sys.executable, "-c", listening],
            cwd=directory,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.endpoint.stdout is not None
        port = self.endpoint.stdout.readline().strip()
        settings = {
            "OMS_CALLBACKS__TARGETS": f"http://127.0.0.1:{port}",
            "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
            "OMS_CALLBACKS__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }
        self.bridge = Bridge(directory / "bridge", settings=settings)
        program = program.replace("http://127.0.0.1:8080", self.bridge.url).replace(":8081", f":{port}")
        assert "10_000" in program
        (directory / "order.py").write_text(program.replace("10_000", "1_000"), "utf-8")

    def close(self) -> None:
        self.endpoint.kill()
        self.endpoint.communicate()

    def order(self, name: str, *, killed_at: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run the program, and kill it before it executes that line."""
        command = [sys.executable, "-c", KILLED, str(self.directory / "order.py"), str(killed_at), name]
        return subprocess.run(
            command, cwd=self.directory, env=self.environ, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def wait_until_ended(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while httpx.get(f"{self.bridge.url}/v1/transactions", headers=VERSION, trust_env=False).json():
            assert time.monotonic() < deadline, "a transaction stays open"
            time.sleep(0.05)

    def messages(self) -> list[str]:
        found: list[str] = []
        pull = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "test"}
        with httpx.Client(base_url=self.bridge.url, trust_env=False, headers=pull) as client:
            while (answer := client.get("/v1/messages")).status_code == httpx.codes.OK:
                found.append(answer.text)
        return sorted(found)

    def orders(self) -> list[str]:
        if self.postgres is None:
            with sqlite3.connect(self.directory / "orders.db") as database:
                return sorted(name for (name,) in database.execute("SELECT name FROM orders"))
        with psycopg.connect("dbname=orders host={PGHOST} user={PGUSER}".format_map(self.postgres)) as server:
            return sorted(name for (name,) in server.execute("SELECT name FROM orders"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with postgres.running() if request.param == "postgres" else nullcontext() as found:
        shop = Shop(tmp_path, found)
        try:
            with shop.bridge:
                yield shop
        finally:
            shop.close()


def test_an_order_and_its_message_are_stored(shop: Shop) -> None:
    done = shop.order("a")
    assert done.returncode == 0, done.stderr
    again = shop.order("a")
    assert again.returncode == 1
    assert ("IntegrityError" if shop.postgres is None else "UniqueViolation") in again.stderr
    assert shop.messages() == shop.orders() == ["a"]


@pytest.mark.extended
def test_killed_at_any_line_an_order_is_stored_with_its_message_or_not_at_all(shop: Shop) -> None:
    lines = int(shop.order("whole").stdout)
    assert lines > 20
    for at in range(1, lines + 1):
        assert shop.order(f"killed at {at}", killed_at=at).returncode == -signal.SIGKILL
    shop.wait_until_ended()
    orders = shop.orders()
    assert shop.messages() == orders
    assert 1 < len(orders) < lines
