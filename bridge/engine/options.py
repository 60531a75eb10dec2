"""The settings of the engine. Pure."""

from typing import NamedTuple


class EngineOptions(NamedTuple):
    """The engine's share of the settings; `docs/configuration.md` explains each. Times in ms, sizes in bytes."""

    store_host: str
    """The value of storeHost: host and port of this bridge."""
    strict: bool = False
    in_flight: int = 10_000
    in_flight_bytes: int = 64 << 20
    quota: int | None = None
    """Messages per second and destination. None: no quota."""
    produce_timeout: int = 30_000
    max_deliveries: int = 16
    prefetch: int = 1024
    """Messages in the prefetch buffer of one group, leased ones included."""
    prefetch_bytes: int = 64 << 20
    waiting_pulls: int = 20_000
    destinations: int = 1000
    """Destinations that clients may have the bridge create."""
    groups: int = 1000
    """Groups that clients may use."""
    delayed: int = 1_000_000
    """Delayed messages that are not due yet."""
    delayed_bytes: int = 1 << 30
    """Of their bodies."""
    transactions: int = 1000
    """Open transactions that clients began at this bridge."""
    transaction_messages: int = 1000
    """Messages of one transaction."""
    transaction_bytes: int = 16 << 20
    """Bytes of the messages of one transaction."""
    prepared_bytes: int = 256 << 20
    """Bytes of the messages of all open transactions."""
    client_share: int = 50
    """How much of the limits above, from `waiting_pulls` on, one client address may use, percent."""
    auto_create: bool = True
    """Whether clients may have destinations created."""
    group_idle: int = 300_000
    dedup_window: int = 120_000
    """How long a message that its client names is remembered, ms. 0: messages are not deduplicated."""
    dedup_bytes: int = 64 << 20
    """Memory for that, of which one client has its share."""
    metric_labels: int = 100
    """Destinations, and groups, that have metrics of their own."""
    disconnect_reported: int = 0
    """How long a client's request waits after it has opened a group, ms: steps of 1 ms, so that a busy loop has as many
    iterations. No setting: see `DISCONNECT_REPORTED`."""
    latest: bool = False
    """Where a new group starts: True: after the newest message; False: at the oldest one kept."""
