"""A bridge on a real backend, what was published through it, and `oms-bridge mirror` over both, as processes."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.brokers.provide import own_kafka, own_rabbitmq
from tests.launch import Bridge

PROGRAM: Final = Path(sys.executable).with_name("oms-bridge")
GUARD: Final = 600


class Deployment(NamedTuple):
    """Everything under one folder of a test's own."""

    bridge: Bridge
    backend: str
    folder: Path
    url: str = ""
    """Of a mirror elsewhere; empty: it is in `folder`."""

    @property
    def out(self) -> Path:
        """The mirror in `folder`."""
        return self.folder / "mirror"

    @property
    def ledger(self) -> Path:
        """A line for each message whose publishing was confirmed."""
        return self.folder / "ledger.ndjson"

    @property
    def source(self) -> tuple[str, ...]:
        """The options that name the backend."""
        return ("--backend", self.backend, "--bridge", self.bridge.url)

    def publish(self, destination: str, bodies: Sequence[str], *more: str) -> None:
        """Publish a message for each body, and add the answers to the ledger."""
        options = ("--url", self.bridge.url, "--file", "-", "--lines", "--json", *more)
        lines = "".join(f"{body}\n" for body in bodies)
        done = _ran([PROGRAM, "produce", destination, *options], lines)
        assert done.returncode == 0, done.stderr
        with self.ledger.open("a") as ledger:
            for line in done.stdout.splitlines():
                ledger.write(json.dumps(json.loads(line) | {"destination": destination}) + "\n")

    def command(self, *more: str) -> list[str]:
        """Return the job that mirrors what there is and ends."""
        return [str(PROGRAM), "mirror", "once", *self.source, "--out", self.url or str(self.out), *more]

    def running(self, status: Path, *more: str) -> list[str]:
        """Return the job that mirrors until it is stopped, and keeps a status file."""
        options = ("--status", str(status), "--every", "0.5", *more)
        return [str(PROGRAM), "mirror", "run", *self.source, "--out", self.url or str(self.out), *options]

    def once(self, *more: str) -> str:
        """Mirror what there is; returns the summary."""
        done = _ran(self.command(*more))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def mirror(self, command: str, *more: str) -> "subprocess.CompletedProcess[str]":
        """Run another command of the mirror."""
        return _ran([PROGRAM, "mirror", command, "--out", self.url or self.out, *more])

    def verify(self) -> dict[str, Any]:
        """Reconcile with backend and ledger; returns the findings, with the exit status as `exit`."""
        done = self.mirror("verify", *self.source, "--ledger", str(self.ledger), "--json")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found | {"exit": done.returncode}


def _ran(command: Sequence[str | Path], lines: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=GUARD, check=False)


@contextmanager
def deployed(kind: str, folder: Path) -> Iterator[Deployment]:
    """Start a bridge on its own backend: whatever a shared broker holds would be mirrored too."""
    with ExitStack() as stack:
        if kind == "memory":
            backend = f"memory://?journal={folder / 'journal'}"
        elif kind == "kafka":
            backend = f"kafka://{stack.enter_context(own_kafka(folder / 'kafka')).bootstrap}?partitions=3"
        else:
            backend = f"{stack.enter_context(own_rabbitmq(folder / 'rabbitmq')).url}?partitions=3"
        bridge = stack.enter_context(Bridge(folder / "bridge", backend=backend))
        yield Deployment(bridge, "memory://" if kind == "memory" else backend, folder)
