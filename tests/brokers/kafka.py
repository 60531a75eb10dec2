"""A real Kafka for tests: one node or three, started on free ports, stopped or killed, its logs kept and shown."""

import secrets
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.brokers.node import Node
from tests.brokers.ports import held_port
from tests.brokers.properties import properties_of
from tests.brokers.runtime import Runtime
from tests.brokers.security import LISTENERS, Security, certify

SHOWN: Final = 4000
"""Characters of a node's log that a failing test shows."""


class Kafka:
    """A cluster of its own. Use it as a context manager: at the end it is gone, however the test ended.

    With three nodes a topic has three replicas, of which two must be in sync, unless it is created otherwise.
    """

    running: ClassVar[set["Kafka"]] = set()
    """Those inside their contexts."""

    def __init__(self, runtime: Runtime, directory: Path, *, nodes: int = 1, security: Security | None = None) -> None:
        """Write the configuration of 1 or 3 nodes into `directory`, which is new and private to it."""
        directory.mkdir(parents=True)
        self.authority = directory / "authority.pem"
        """The certificate authority of the TLS listeners (PEM)."""
        self._held = ExitStack()
        listeners = ["CONTROLLER", "PLAINTEXT", *(LISTENERS if security else ())]
        self._ports = [{name: self._held.enter_context(held_port()) for name in listeners} for _ in range(nodes)]
        secured: dict[str, str] = {}
        credentials: list[str] = []
        if security:
            certificate = directory / "certificate.pem"
            certify(certificate, self.authority)
            secured, credentials = security.properties(certificate, self.authority), security.credentials()
        # With one id for all, clusters that came upon each other's controllers joined, and mixed their topics.
        cluster = secrets.token_urlsafe(16)
        self.nodes = [
            Node(runtime, directory / f"node-{at}", cluster, properties_of(at, self._ports) | secured, credentials)
            for at in range(1, nodes + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of PLAINTEXT, the listener without security."""
        return self.bootstrap_of("PLAINTEXT")

    def bootstrap_of(self, listener: str) -> str:
        """Return `host:port,…` of PLAINTEXT, or of one of `security.LISTENERS` if security was asked for."""
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports)

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
        return [(f"log of Kafka's {node.data.name}, {self.bootstrap}", node.log[-SHOWN:]) for node in self.nodes]

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

    def _end(self, number: signal.Signals) -> None:
        for node in self.nodes:
            node.send(number)
        for node in self.nodes:
            node.wait()


def logs_of_running() -> list[tuple[str, str]]:
    """Return the logs of every Kafka that a fixture holds, for the report of a failing test."""
    return [log for kafka in Kafka.running for log in kafka.logs()]
