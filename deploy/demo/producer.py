"""Sends an order a second to each bridge that its arguments name, until SIGTERM."""

# ruff: noqa: INP001, T201 - a standalone program that prints

import asyncio
import json
import signal
import sys

from bridge.client import Client
from bridge.errors import BridgeError
from bridge.message import Message


async def produce(url: str) -> None:
    """Send. What a bridge did not confirm is told, and sent again: it may be there twice."""
    number = 1
    async with Client(url) as client:
        while True:
            body = json.dumps({"order": number}).encode()
            order = Message("orders", body, message_key=f"customer-{number % 10}", content_type="application/json")
            try:
                await client.produce(order)
            except BridgeError as error:
                print(f"{url}: {error.code}: {error.detail}", file=sys.stderr)
            else:
                print(f"{url}: order {number} is stored")
                number += 1
            await asyncio.sleep(1)


async def main() -> None:
    """All bridges at once."""
    async with asyncio.TaskGroup() as tasks:
        for url in sys.argv[1:]:
            tasks.create_task(produce(url))


# As process 1 of a container it would not end by SIGTERM of itself.
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(0)
