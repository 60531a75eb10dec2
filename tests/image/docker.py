"""A Docker for the tests: the daemon that runs already, else one of our own, with all that it has in a folder."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.brokers.cache import Missing
from tests.brokers.process import Process
from tests.image import packages
from tests.image.cgroups import remove

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
CGROUPS: Final = "oms-docker-"
"""Begins the names of the cgroups of all daemons."""
_NONE: Final[Mapping[str, str]] = {}
# Its own mount and process namespace: whatever ends the tests ends the daemon, its containers and their mounts.
# Its pidfile holds its number in there, which is 1: never send a signal to that.
# No bridge and no rules of iptables: this machine's network stays as it is.
_DAEMON: Final = (
    "PATH={root}/usr/sbin:{root}/usr/bin:$PATH LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu "
    "XTABLES_LIBDIR={root}/usr/lib/x86_64-linux-gnu/xtables "
    "exec unshare --mount --pid --fork --mount-proc --kill-child dockerd --data-root {folder}/data "
    "--exec-root {folder}/exec --pidfile {folder}/pid -H unix://{folder}/socket "
    "--bridge none --iptables=false --ip-masq=false --cgroup-parent /{cgroups}"
)


class Docker:
    """The command line of one daemon."""

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        """`environment`: what leads it to its daemon."""
        self._program = program
        self._environment = {**os.environ, **environment}

    def run(self, *arguments: str | Path, more: Mapping[str, str] = _NONE) -> "subprocess.CompletedProcess[str]":
        """Run a command of docker and return what it said. `more`: variables."""
        return subprocess.run(
            [self._program, *arguments],
            env={**self._environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def __call__(self, *arguments: str | Path, more: Mapping[str, str] = _NONE) -> str:
        """Return what a command of docker prints; AssertionError with what it said if it fails."""
        done = self.run(*arguments, more=more)
        assert not done.returncode, f"docker {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


def installed() -> Docker | None:
    """Return this machine's own command line if it has compose."""
    given = shutil.which("docker")
    if given is None or subprocess.run([given, "compose", "version"], capture_output=True, check=False).returncode:
        return None
    return Docker(given, {})


def client(folder: Path) -> Docker:
    """Return a command line with compose, for a daemon in `folder` that need not run; Missing if it cannot be had."""
    root = packages.unpacked()
    plugins = folder / "client" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(root / "usr/libexec/docker/cli-plugins/docker-compose")
    places = {"DOCKER_HOST": f"unix://{folder}/socket", "DOCKER_CONFIG": str(plugins.parent)}
    return Docker(str(root / "usr/bin/docker"), {"DOCKER_BUILDKIT": "1", **places})


def cgroups_of(folder: Path) -> str:
    """Return the name of the cgroups of a daemon in `folder`: it is its alone, so that they can be removed."""
    return f"{CGROUPS}{hashlib.sha256(bytes(folder)).hexdigest()[:8]}"


@contextmanager
def running(folder: Path) -> Iterator[Docker]:
    """Yield a Docker that runs; Missing if there is none and none can be started. `folder` is private to it."""
    given = shutil.which("docker")
    if given is not None and subprocess.run([given, "info"], capture_output=True, check=False).returncode == 0:
        yield Docker(given, {"DOCKER_BUILDKIT": "1"})
        return
    if os.geteuid():
        raise Missing("no daemon runs here, and only root can start one")
    root = packages.unpacked()
    docker = client(folder)
    log = folder / "dockerd.log"
    cgroups = cgroups_of(folder)
    daemon = Process(_DAEMON.format(root=root, folder=folder, cgroups=cgroups), log)
    try:
        _wait_until_ready(docker, daemon, log)
        yield docker
    finally:
        _stop(daemon)
        remove(cgroups)
        shutil.rmtree(folder / "data", ignore_errors=True)  # gigabytes, which pytest would keep for three runs


def _wait_until_ready(docker: Docker, daemon: Process, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and daemon.alive:
        if docker.run("info").returncode == 0:
            return
        time.sleep(0.2)
    raise Missing(f"dockerd did not start: {log.read_text('utf-8')[-2000:]}")


def _stop(daemon: Process) -> None:
    """End dockerd and not `unshare`, its parent, which would end all at once."""
    for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text("ascii").split():
        os.kill(int(child), signal.SIGTERM)
    daemon.wait(STOP_SECONDS)
