"""Settings of a connection. Times in milliseconds."""

from pathlib import Path
from typing import Final, NamedTuple, Protocol


class Security(NamedTuple):
    """How the bridge shows who it is, and checks who the broker is."""

    user: str = "guest"
    password: str = "guest"  # noqa: S105 - RabbitMQ's own default, which it accepts from its own machine only
    tls: bool = False
    ca: Path | None = None
    """PEM file of the authorities; None: those of this machine."""
    certificate: Path | None = None
    """PEM file of the bridge's own certificate, with `key`, where the broker asks for one."""
    key: Path | None = None
    external: bool = False
    """Whether the certificate says who the bridge is (EXTERNAL), in place of a password."""

    def __repr__(self) -> str:
        """Without the password, wherever options are printed."""
        return f"Security(tls={self.tls}, user={self.user})"


class ConnectionSettings(Protocol):
    """Which broker, and how."""

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
        """Ms; without a sign of life of the broker for so long and 5 s more, or up to twice that, it is given up."""


CONNECT_TIMEOUT: Final = 10_000
"""Of a connection with everything that belongs to it: TCP, TLS, login."""
REQUEST_TIMEOUT: Final = 10_000
"""How long the broker may take to answer a request, or to confirm what the bridge writes for itself."""
