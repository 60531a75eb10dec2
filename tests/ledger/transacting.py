"""A producer of transactions that is killed at random: it writes each step to its output, and is never finished.

Run as a program: `python -m tests.ledger.transacting FILE LIFE DESTINATION…`. The file has the URL of the bridge while
that runs. A line of the output is the time of the machine's clock in seconds, what was done, and the transaction.
"""

import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import aiohttp

from tests.ledger.client import VERSION, http

AT_ONCE: Final = 24
TIMEOUT: Final = 3_000
"""Milliseconds after which the bridge asks for the decision, or rolls back."""
PAUSE: Final = 0.02


class Step(StrEnum):
    """What the producer has done."""

    DECIDED = "decided"
    """To commit; what a producer writes into its database. The commit is sent after this."""
    COMMITTED = "committed"
    """The commit was answered."""
    DROPPED = "dropped"
    """Rolled back, or left to the timeout."""


class Bridge:
    """The bridge that runs now."""

    def __init__(self, client: aiohttp.ClientSession, file: Path) -> None:
        self._client = client
        self._file = file

    async def prepare(self, name: str, number: int, destination: str, check: Mapping[str, str]) -> int:
        """Prepare a message, until the bridge has answered: a commit stores a messageId once. Return the status."""
        message = f"{name}.{number}"
        fields = {"destination": destination, "transactionid": name, "messageid": message, "messagekey": name}
        headers = {"transaction": "prepare", "transaction-timeout": str(TIMEOUT), **check}
        headers |= {f"h-{field}": value for field, value in fields.items()}
        return await self._ask("/v1/messages", {0, 503, 504}, headers, message.encode())

    async def end(self, name: str, how: str) -> int:
        """Commit or roll back, until the bridge has answered."""
        return await self._ask(f"/v1/transactions/{name}/{how}", {0, 503, 504})

    async def _ask(self, path: str, retried: set[int], headers: Mapping[str, str] = {}, body: bytes = b"") -> int:
        named = VERSION | {f"x-oms-{name}": value for name, value in headers.items()}
        while True:
            url = await self._url()
            try:
                async with self._client.post(url + path, headers=named, data=body) as answer:
                    await answer.read()
                    status = answer.status
            except aiohttp.ClientConnectorError:
                status = 503  # nothing was sent
            except (aiohttp.ClientError, ConnectionError):
                status = 0
            if status not in retried:
                return status
            await asyncio.sleep(PAUSE)

    async def _url(self) -> str:
        while True:
            try:
                return self._file.read_text("ascii")
            except FileNotFoundError:
                await asyncio.sleep(PAUSE)


async def produce(bridge: Bridge, name: str, destinations: Sequence[str], check: str) -> None:
    """Prepare a message for each destination, then commit, roll back or leave them.

    The producer rolls back if a message is refused: the transaction has timed out.
    """
    choice = random.choices(("commit", "rollback", "leave"), (7, 2, 1))[0]  # noqa: S311 - no secret
    checked = {} if choice == "leave" else {"transaction-check": check}
    for number, destination in enumerate(destinations):
        if await bridge.prepare(name, number, destination, checked) != 200:
            choice = "rollback"
            break
    if choice == "commit":
        say(Step.DECIDED, name)
        status = await bridge.end(name, "commit")
        assert status == 200, f"{name} was not committed: {status}"
        say(Step.COMMITTED, name)
        return
    if choice == "rollback":
        status = await bridge.end(name, "rollback")
        assert status in {200, 404}, f"{name} was not rolled back: {status}"
    say(Step.DROPPED, name)


def say(step: Step, name: str) -> None:
    """Write a step at once: nothing of it is lost when the program is killed."""
    os.write(1, f"{time.monotonic()} {step} {name}\n".encode())


async def main(file: str, life: str, check: str, *destinations: str) -> None:
    """Produce until the program is killed."""
    names = (f"{life}-{number}" for number in itertools.count())
    async with http() as client, asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(_work(Bridge(client, Path(file)), names, destinations, check))


async def _work(bridge: Bridge, names: Iterator[str], destinations: Sequence[str], check: str) -> None:
    for name in names:
        await produce(bridge, name, destinations, check)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
