"""What the engine counts, as plain integers; telemetry reads them when somebody scrapes."""


class Counters:
    """Totals since the start, and what is going on now."""

    __slots__ = (
        "callback_circuits_open",
        "callbacks",
        "callbacks_delivered",
        "callbacks_failed",
        "dead_letter_failures",
        "dead_letters",
        "delivered",
        "expired",
        "in_flight",
        "in_flight_bytes",
        "leases_ended",
        "nacked",
        "produced",
        "redelivered",
        "settled",
        "waiting_pulls",
    )

    def __init__(self) -> None:
        self.produced = 0
        self.delivered = 0
        self.redelivered = 0
        self.settled = 0
        self.nacked = 0
        self.leases_ended = 0
        self.expired = 0
        self.dead_letters = 0
        self.dead_letter_failures = 0
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.waiting_pulls = 0
        self.callbacks = 0
        self.callbacks_delivered = 0
        self.callbacks_failed = 0
        self.callback_circuits_open = 0
