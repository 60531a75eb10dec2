"""A real broker for tests: its nodes, started on free ports, stopped or killed, their logs kept and shown."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.brokers.node import Node
from tests.brokers.ports import held_port

SHOWN: Final = 4000
"""Characters of a node's log that a failing test shows."""


class Broker(ABC):
    """A separate broker. Use it as a context manager: it is removed at the end, however the test ended."""

    running: ClassVar[set["Broker"]] = set()
    """Those inside their contexts."""
    kind: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        """Make `directory`, which is new and private to it."""
        directory.mkdir(parents=True)
        self._held = ExitStack()
        self.authority = directory / "authority.pem"
        """The certificate authority of the TLS listeners (PEM)."""
        self.nodes: Sequence[Node] = ()

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it listens without security."""

    def start(self) -> None:
        """Start all nodes and wait until they serve."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()

    def stop(self) -> None:
        """End all nodes with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End all nodes with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop all nodes and start them again."""
        self.stop()
        self.start()

    def logs(self) -> list[tuple[str, str]]:
        """Return a title and the end of the log of every node."""
        return [(f"log of {self.kind}'s {node.data.name}, {self.address}", node.log[-SHOWN:]) for node in self.nodes]

    def __enter__(self) -> Self:
        self.running.add(self)
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.discard(self)
        if error is not None:
            error.add_note("\n".join(f"{title}\n{log}" for title, log in self.logs()))
        with self._held:
            self.kill()

    def _port(self) -> int:
        return self._held.enter_context(held_port())

    def _end(self, number: signal.Signals) -> None:
        for node in self.nodes:
            node.send(number)
        for node in self.nodes:
            node.wait()


def logs_of_running() -> list[tuple[str, str]]:
    """Return the logs of every broker that a fixture holds, for the report of a failing test."""
    return [log for broker in Broker.running for log in broker.logs()]
