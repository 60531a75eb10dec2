"""Which HTTP server a bridge runs: the one that the settings name, or the fastest that can serve."""

from importlib import import_module
from typing import Final, Literal, NamedTuple

from bridge.server.listener import ServerKind, Tls

ServerSetting = Literal["auto", "hypercorn", "granian"]
NAMED: Final = "named by the setting server"


class ChosenServer(NamedTuple):
    """A server, and why it was chosen."""

    kind: ServerKind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} ({self.reason})"


def choose_server(setting: ServerSetting, tls: Tls | None) -> ChosenServer:
    """Return the server: with `auto`, Granian if it is installed and can serve what is set, else Hypercorn.

    Raises RuntimeError with one sentence if the setting names Granian and it cannot serve.
    """
    if setting == "hypercorn":
        return ChosenServer("hypercorn", NAMED)
    if setting == "auto" and tls is not None and tls.client_ca is not None:
        return ChosenServer("hypercorn", "it accepts more kinds of client certificates for tls.client_ca than Granian")
    try:
        import_module("bridge.server.granian").load()
        if tls is not None:
            import_module("bridge.server.granian_tls").check(tls)
    except RuntimeError as error:
        if setting == "granian":
            raise
        return ChosenServer("hypercorn", str(error))
    return ChosenServer("granian", "installed by the extra fast" if setting == "auto" else NAMED)
