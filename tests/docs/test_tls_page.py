"""The page about TLS: its commands run as they stand there, with OpenSSL, curl and real bridges."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.docs.commands import ROOT, commands
from tests.docs.shell import found

GUARD: Final = 60.0
"""Seconds until a command is given up: a guard, not a measurement."""


class Recipe:
    """Runs commands in one directory and with one port; a bridge runs until the next one starts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bridge: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "PYTHONPATH": str(ROOT),
            "OMS_MANAGEMENT": "127.0.0.1:0",
            "OMS_LISTEN": f"127.0.0.1:{self._port}",
        }

    def run(self, command: str) -> str:
        """Return what the command printed; of a bridge, the line that it is ready."""
        command = command.replace("localhost:8080", f"localhost:{self._port}")
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environ[name] = value
            return ""
        if "oms-bridge serve" in command:
            self.stop()
            return self._serve(command)
        done = subprocess.run(
            [found("bash"), "-c", command],
            env=self._environ,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def stop(self) -> None:
        """End the bridge that runs."""
        if self._bridge is not None:
            self._bridge.terminate()
            self._bridge.wait(GUARD)

    def _serve(self, command: str) -> str:
        output = self._directory / "output"
        variables, _, _ = command.partition(" oms-bridge ")
        environ = self._environ | dict(item.split("=", 1) for item in variables.split())
        with output.open("wb") as stdout:
            self._bridge = subprocess.Popen(
                ["oms-bridge", "serve"],
                env=environ,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                executable=Path(sys.executable).with_name("oms-bridge"),
            )
        deadline = time.monotonic() + GUARD
        while not (text := output.read_text()):
            assert self._bridge.poll() is None, "the bridge ended"
            assert time.monotonic() < deadline, "the bridge printed nothing"
            time.sleep(0.02)
        return text


@contextmanager
def recipe(directory: Path) -> Iterator[Recipe]:
    running = Recipe(directory)
    try:
        yield running
    finally:
        running.stop()


def test_the_recipe_works(tmp_path: Path) -> None:
    found("openssl"), found("curl")
    with recipe(tmp_path) as shell:
        printed = {command.text: shell.run(command.text) for command in commands("docs/tls.md")}
    served = [text for command, text in printed.items() if "oms-bridge serve" in command]
    assert len(served) == 2
    assert all("messages on https://127.0.0.1:" in text for text in served)
    assert sum('"limits"' in text for command, text in printed.items() if command.startswith("curl ")) == 2
    (pulled,) = [text for command, text in printed.items() if " pull " in command]
    assert '{"id": 7}' in pulled
