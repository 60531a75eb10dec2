"""What a broker needs of the place where it runs."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Run(Protocol):
    """A running script: a `Process` or a `Container`."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""

    def beside(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run another script in the same place, in a folder, and wait for its end."""

    def send(self, number: int) -> None:
        """Send a signal and do not wait."""

    def wait(self, seconds: float) -> None:
        """Wait for its end; TimeoutError if that does not come."""


@dataclass(frozen=True)
class Runtime:
    """How a shell script calls what the broker is made of, and what runs such a script with its output in a file."""

    call: str
    """What stands before the name: of one of Kafka's classes, or of one of RabbitMQ's programs."""
    run: Callable[[str, Path], Run]
