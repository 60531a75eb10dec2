"""What the doors allow."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.wire import parameters

NACK_DELAY_MAX: Final = 86_400_000
"""A day, ms: a message that is nacked keeps its key and a place in the window until it is ready again."""


class Limits(NamedTuple):
    """The doors' share of the settings. Bytes, messages, milliseconds."""

    body: int = 4 << 20
    headers: int = 32 << 10
    batch: int = 1000
    body_timeout: int = 30_000
    lease: int = 30_000
    max_lease: int = 900_000
    stall: int = 300_000

    def lease_of(self, asked: Mapping[str, str]) -> int:
        """Return `x-oms-leasemills`, 1 to max_lease, or the default. Raises `HeaderInvalid`."""
        return parameters.positive(asked, "leasemills", self.lease, self.max_lease)
