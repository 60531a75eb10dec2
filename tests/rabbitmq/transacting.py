"""Transactions as a bridge uses them, and the process that is killed in the middle of commits."""

import asyncio
import os
import sys
from collections.abc import Sequence
from uuid import uuid4

from adapters.base import Adapter, Stored, Transaction, Transactional, TransactionState
from adapters.testing import Harness, Session
from adapters.wall_clock import wall
from bridge.message import Message

AT_ONCE = 8
PARTS = 3
"""Messages of a transaction, alternately to two destinations."""


def transactional(adapter: Adapter) -> Transactional:
    assert isinstance(adapter, Transactional)
    return adapter


async def prepare(adapter: Adapter, name: str, destination: str, body: bytes, **fields: object) -> Message:
    """Prepare a message as the engine does."""
    message = Message(destination, body, message_id=uuid4().hex, born_timestamp=wall(), born_host="test")
    message = message._replace(transaction_id=name, **fields)  # type: ignore[arg-type]
    begun = Transaction(name, TransactionState.OPEN, wall(), 60_000, None, 0, 0)
    await transactional(adapter).prepare(begun, message)
    return message


async def complete(messages: Sequence[Message]) -> Sequence[Message]:
    """Complete messages as the engine does."""
    return [each._replace(store_timestamp=wall(), store_host="test:1", partition=0) for each in messages]


async def commit(adapter: Adapter, name: str) -> Sequence[Stored | None]:
    return await transactional(adapter).commit(name, complete)


async def commit_until_killed(url: str, *destinations: str) -> None:
    """Commit one transaction after the other, and write the id of each to the output once that is answered."""
    async with Session(Harness("adapters.rabbitmq:connect", url)) as session:
        adapter = await session.open()

        async def work(worker: int) -> None:
            for number in range(1 << 30):
                name = f"{destinations[0]}/{os.getpid()}/{worker}/{number}"
                for part in range(PARTS):
                    await prepare(adapter, name, destinations[part % 2], f"{name}#{part}".encode())
                await commit(adapter, name)
                os.write(1, f"{name}\n".encode())

        await asyncio.gather(*map(work, range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(commit_until_killed(*sys.argv[1:]))
