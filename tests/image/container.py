"""A container as it should be run: an unknown user, nothing to write on, no privileges, no network."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from tests.image.docker import Docker

HARDENED: Final = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
ALONE: Final = "--network=none"
HEALTHY_SECONDS: Final = 120.0


class Container:
    """One that was started, and may have ended."""

    def __init__(self, docker: Docker, name: str) -> None:
        """`name`: what docker calls it."""
        self._docker = docker
        self.name = name

    def exec(self, *command: str) -> str:
        """Return what a command inside prints; AssertionError if it fails."""
        return self._docker("exec", self.name, *command)

    def inspect(self, path: Literal["State", "Config"]) -> Any:  # noqa: ANN401 - Docker's own document
        """Return a part of Docker's description of the container."""
        return json.loads(self._docker("inspect", f"--format={{{{json .{path}}}}}", self.name))

    def log(self) -> str:
        """What it wrote so far."""
        done = self._docker.run("logs", self.name)
        return done.stdout + done.stderr

    def check(self) -> "tuple[int, str]":
        """Run the image's own health check once: its exit status and what it printed."""
        kind, *command = self.inspect("Config")["Healthcheck"]["Test"]
        assert kind == "CMD", "a health check in shell form needs a shell"
        done = self._docker.run("exec", self.name, *command)
        return done.returncode, done.stdout.strip()

    def wait_until_healthy(self) -> None:
        """Wait until Docker calls it healthy; AssertionError with its log if it does not."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while time.monotonic() < deadline:
            state = self.inspect("State")
            if state["Health"]["Status"] == "healthy":
                return
            assert state["Running"], f"it ended\n{self.log()}"
            time.sleep(0.2)
        raise AssertionError(f"it did not become healthy\n{state}\n{self.log()}")

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit status; 137 if it had to be killed."""
        self._docker("stop", "--time=60", self.name)
        return int(self.inspect("State")["ExitCode"])


@contextmanager
def running(docker: Docker, *arguments: str) -> Iterator[Container]:
    """Yield a new one, in the background; it is gone at the end. `arguments`: options, image, command."""
    container = Container(docker, docker("run", "--detach", *arguments))
    try:
        yield container
    finally:
        docker.run("rm", "--force", "--volumes", container.name)
