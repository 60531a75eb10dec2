"""A process that commits transactions, and writes the id of each to its output, until it is killed."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from uuid import uuid4

from adapters.base import Transaction, TransactionState
from adapters.kafka.adapter import KafkaAdapter
from adapters.kafka.options import parse
from adapters.wall_clock import wall
from bridge.message import Message

AT_ONCE = 8
GUARD = 120.0


async def complete(messages: Sequence[Message]) -> Sequence[Message]:
    return [message._replace(partition=0, store_timestamp=wall(), store_host="h:1") for message in messages]


async def transact(adapter: KafkaAdapter, destinations: Sequence[str]) -> None:
    """Prepare one message for the first destination and two for the second, and commit."""
    name = uuid4().hex
    begun = Transaction(name, TransactionState.OPEN, wall(), 60_000, None, messages=0, size=0)
    first, second = destinations
    await asyncio.gather(
        *(
            adapter.prepare(begun, Message(destination, name.encode(), message_id=uuid4().hex, born_timestamp=wall()))
            for destination in (first, second, second)
        )
    )
    await adapter.commit(name, complete)
    os.write(1, f"{name}\n".encode())


async def main(url: str, destinations: Sequence[str]) -> None:
    adapter = KafkaAdapter(parse(url))
    await adapter.start()

    async def work() -> None:
        while True:
            await transact(adapter, destinations)

    async with asyncio.timeout(GUARD):  # in case it is not killed
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(*json.loads(sys.argv[1])))
