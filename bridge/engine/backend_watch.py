"""Notices that a backend is lost, and that it is back."""

import asyncio
from collections.abc import Callable
from typing import Final

from adapters.base import Monitored
from bridge.engine.clock import Clock

_INTERVAL: Final = 0.25
"""Seconds between two looks at the adapter's reason, which is in memory."""
_GRACE: Final = 1_500
"""Milliseconds for which a reason must have lasted: in a cluster, a connection to another broker takes a moment."""


async def watch_backend(backend: Monitored, clock: Clock, changed: Callable[[str | None], None]) -> None:
    """Call `changed` with the reason while the backend cannot be used, and with None while it can; never returns."""
    lost_at: int | None = None
    while True:
        await asyncio.sleep(_INTERVAL)
        if (reason := backend.not_ready_reason) is None:
            lost_at = None
            changed(None)
            continue
        lost_at = clock.mono() if lost_at is None else lost_at
        if clock.mono() - lost_at >= _GRACE:
            changed(reason)
