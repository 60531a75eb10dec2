"""A real Kafka for tests: one node or three."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.brokers.broker import Broker
from tests.brokers.node import Node
from tests.brokers.properties import properties_of
from tests.brokers.runtime import Runtime
from tests.brokers.security import LISTENERS, Authority, Security

_READY: Final = b"Kafka Server started"  # logged once the controller has let the broker serve


class Kafka(Broker):
    """With three nodes a topic has three replicas, of which two must be in sync, unless it is created otherwise."""

    kind = "Kafka"

    def __init__(self, runtime: Runtime, directory: Path, *, nodes: int = 1, security: Security | None = None) -> None:
        """Write the configuration of 1 or 3 nodes into `directory`, which is new and private to it."""
        super().__init__(directory)
        listeners = ["CONTROLLER", "PLAINTEXT", *(LISTENERS if security else ())]
        self._ports = [{name: self._port() for name in listeners} for _ in range(nodes)]
        secured: dict[str, str] = {}
        # With one id for all, clusters that came upon each other's controllers joined, and mixed their topics.
        format_with = [f"--cluster-id={secrets.token_urlsafe(16)}"]
        if security:
            certificate = directory / "certificate.pem"
            Authority(self.authority).certify(certificate)
            secured = security.properties(certificate, self.authority)
            format_with += security.credentials()
        self.nodes = [
            _node(runtime, directory / f"node-{at}", properties_of(at, self._ports) | secured, format_with)
            for at in range(1, nodes + 1)
        ]

    @property
    def address(self) -> str:
        """`bootstrap`."""
        return self.bootstrap

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of PLAINTEXT, the listener without security."""
        return self.bootstrap_of("PLAINTEXT")

    def bootstrap_of(self, listener: str) -> str:
        """Return `host:port,…` of PLAINTEXT, or of one of `security.LISTENERS` if security was asked for."""
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports)


def _node(runtime: Runtime, data: Path, properties: Mapping[str, str], format_with: Sequence[str]) -> Node:
    """Write its configuration beside `data`, the folder that it will make for its data."""
    file = data.with_suffix(".properties")
    settings = {**properties, "log.dirs": str(data)}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    arguments = shlex.join(["format", f"--config={file}", *format_with])
    script = (
        f"[ -e {shlex.quote(str(data))}/meta.properties ] || {runtime.call}kafka.tools.StorageTool {arguments}"
        f" && exec {runtime.call}kafka.Kafka {shlex.quote(str(file))}"
    )
    return Node(runtime.run, script, data, _READY)
