"""Settings of a connection. Times in milliseconds."""

from pathlib import Path
from typing import Final, NamedTuple, Protocol


class Security(NamedTuple):
    """How the bridge logs in, and checks the broker's certificate."""

    user: str = "guest"
    password: str = "guest"  # noqa: S105 - RabbitMQ's own default, which it accepts from its own machine only
    tls: bool = False
    ca: Path | None = None
    """PEM file of the authorities; None: those of this machine."""
    certificate: Path | None = None
    """PEM file of the bridge's own certificate, with `key`, if the broker requires one."""
    key: Path | None = None
    external: bool = False
    """Whether the bridge logs in by its certificate (EXTERNAL) instead of a password."""

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"Security(tls={self.tls}, user={self.user})"


class ConnectionSettings(Protocol):
    """The broker, and how to connect."""

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of the nodes of one cluster: the first that answers is used."""

    @property
    def vhost(self) -> str:
        """The virtual host."""

    @property
    def security(self) -> Security:
        """User, password, TLS."""

    @property
    def heartbeat(self) -> int:
        """Milliseconds: a connection on which nothing is received for this and 5 s, at most twice this, is closed."""


CONNECT_TIMEOUT: Final = 10_000
"""Milliseconds to open a connection: TCP, TLS and login."""
REQUEST_TIMEOUT: Final = 10_000
"""Milliseconds in which the broker must answer a request, or confirm a message that the bridge writes for itself."""
