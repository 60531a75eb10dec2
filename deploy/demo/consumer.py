"""Prints the orders that come from each bridge that its arguments name, and acknowledges them, until SIGTERM."""
# ruff: noqa: INP001, T201 - a standalone program that prints

import asyncio
import signal
import sys

from bridge.client import Client


async def consume(url: str) -> None:
    """Receive. The client reopens its stream automatically after a bridge restarts."""
    async with Client(url) as client, client.push("orders", "billing") as messages:
        async for delivery in messages:
            print(f"{url}: {delivery.message.message_key} {delivery.message.body.decode()}")


async def main() -> None:
    """All bridges at once."""
    async with asyncio.TaskGroup() as tasks:
        for url in sys.argv[1:]:
            tasks.create_task(consume(url))


# As process 1 of a container it would not end by SIGTERM of itself.
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(0)
