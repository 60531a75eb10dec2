"""A program that uses the Python client, run by the Python of one revision.

`python client_load.py produce|linger|push URL DESTINATION NUMBER` prints messages per second, and the CPU seconds of
this process.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bridge.client import Client
from bridge.message import Message

TASKS: Final = 64
BODY: Final = b"0123456789abcdef" * 64
LINGER: Final = {"linger_ms": 2, "batch": TASKS}


async def produce(client: Client, destination: str, number: int) -> None:
    """Produce single messages, `TASKS` at a time."""
    turns = iter(range(number))

    async def task() -> None:
        for turn in turns:  # one iterator for all tasks
            await client.produce(
                Message(destination, BODY, message_key=f"customer-{turn}", properties={"region": "eu"})
            )

    await asyncio.gather(*(task() for _ in range(TASKS)))


async def push(client: Client, source: str, number: int) -> None:
    """Receive and acknowledge messages of a new group."""
    async with client.push(source, f"client-{time.time_ns()}", max_messages=number) as messages:
        async for _ in messages:
            pass


WORKS: Final[dict[str, Callable[[Client, str, int], Awaitable[None]]]] = {
    "produce": produce,
    "linger": produce,
    "push": push,
}


async def main(work: str, url: str, destination: str, number: int) -> None:
    """Do it once to warm up, and once measured."""
    options: dict[str, Any] = LINGER if work == "linger" else {}
    async with Client(url, **options) as client:
        await WORKS[work](client, destination, TASKS)
        begun, before = time.perf_counter(), time.process_time()
        await WORKS[work](client, destination, number)
        print(number / (time.perf_counter() - begun), time.process_time() - before)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
