"""Leases of messages that wait in the client, kept alive."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from bridge.client.acks import BATCH
from bridge.errors import BridgeError

PER_LEASE: Final = 3
"""Renewals in the time of one lease, so that one that fails is made good by the next."""


@asynccontextmanager
async def renewing(
    extend: Callable[..., Awaitable[None]], unsettled: Callable[[], list[str]], lease_ms: int
) -> AsyncIterator[None]:
    """Renew what is not settled, while the block lives.

    The bridge renews by itself until a stream has sent its last message; those that are then still to be handled would
    be lost one by one. When that is, only the bridge knows.
    """
    task = asyncio.create_task(_renew(extend, unsettled, lease_ms))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _renew(extend: Callable[..., Awaitable[None]], unsettled: Callable[[], list[str]], lease_ms: int) -> None:
    while True:
        await asyncio.sleep(lease_ms / 1000 / PER_LEASE)
        receipts = unsettled()
        for start in range(0, len(receipts), BATCH):
            with suppress(BridgeError):  # of several receipts each is judged alone; an ended lease shows at its ack
                await extend(*receipts[start : start + BATCH], lease_ms=lease_ms)
