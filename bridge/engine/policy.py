"""What the engine is told to allow. Times in milliseconds, sizes in bytes."""

from typing import NamedTuple


class Policy(NamedTuple):
    """The engine's share of the settings; `docs/configuration.md` explains each."""

    store_host: str
    """What storeHost says: the host and port of this bridge."""
    strict: bool = False
    in_flight: int = 10_000
    in_flight_bytes: int = 64 << 20
    quota: int | None = None
    produce_timeout: int = 30_000
    max_deliveries: int = 16
    window: int = 1024
    window_bytes: int = 64 << 20
    waiting_pulls: int = 20_000
    group_idle: int = 300_000
    latest: bool = False
    """Where a new group starts: after the newest message instead of at the oldest one kept."""
