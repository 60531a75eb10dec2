"""The process that `DurableContract` kills.

It publishes, settles and leases a few messages. Then it publishes one message after the other, and writes the body of
each to its output once the message is stored, until it is killed.
"""

import asyncio
import os
from typing import Final

from adapters.testing.harness import GUARD, Harness, Session

SETTLED: Final = (b"settled 0", b"settled 1")
LEASED: Final = (b"leased 0", b"leased 1")
UNTOUCHED: Final = b"untouched"
DELAYED: Final = b"delayed"
DELAY: Final = 4_000
_LAZY: Final = 1.0
"""Seconds to wait for an adapter that records `Outcome.LEASED` lazily."""


async def use(factory: str, url: str, destination: str) -> None:
    """Use the backend until this process is killed."""
    async with Session(Harness(factory, url)) as session:
        session.destination = destination
        adapter = await session.open()
        await session.publish(adapter, *SETTLED, *LEASED, UNTOUCHED)
        await session.publish(adapter, DELAYED, delay_time=DELAY)
        reader = await session.reader(adapter)
        found = await reader.take(len((*SETTLED, *LEASED, UNTOUCHED)))
        leased = await reader.lease(found[:-1])
        await reader.settle(leased[: len(SETTLED)])
        await asyncio.sleep(_LAZY)
        async with asyncio.timeout(GUARD):  # in case it is not killed
            for number in range(1 << 30):
                body = f"{number}\n".encode()
                await session.publish(adapter, body)
                os.write(1, body)
                await asyncio.sleep(0.005)
