"""Transactions over two destinations while the bridge is killed: each is visible whole, or not at all."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.ledger.client import VERSION, Where, http
from tests.ledger.stage import Stage

TRANSACTIONS = 2_000
WORKERS = 16
KILLS = 6
DESTINATIONS = ("orders", "bills", "orders")
LEFT_OPEN_MS = 2_000


class Book:
    """The transactions by what their producer was answered last."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.dropped: set[str] = set()

    def __len__(self) -> int:
        return len(self.committed) + len(self.dropped)


class Producer:
    """Sends requests to the bridge, and some of them again."""

    def __init__(self, client: aiohttp.ClientSession, where: Where) -> None:
        self._client = client
        self._where = where

    async def prepare(self, name: str, destination: str, body: bytes, timeout_ms: int) -> int:
        """Prepare a message; return the status, 0 if the connection broke."""
        fields = {"h-destination": destination, "h-transactionid": name}
        parameters = {"transaction": "prepare", "transaction-timeout": str(timeout_ms)}
        headers = {f"x-oms-{key}": value for key, value in (fields | parameters).items()}
        return await self._ask("/v1/messages", {503}, headers, body)

    async def end(self, name: str, how: str) -> int:
        """Commit or roll back, until the bridge has answered."""
        return await self._ask(f"/v1/transactions/{name}/{how}", {0, 503, 504})

    async def _ask(self, path: str, retried: set[int], headers: Mapping[str, str] = {}, body: bytes = b"") -> int:
        while True:
            url = await self._where.url()
            try:
                async with self._client.post(url + path, headers={**VERSION, **headers}, data=body) as answer:
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, ConnectionError):
                status = 0
            if status not in retried:
                return status
            await asyncio.sleep(0.02)


async def produce(producer: Producer, name: str, book: Book) -> None:
    """Prepare three messages, then commit, roll back or leave them. An unknown outcome ends in a rollback."""
    choice = random.choices(("commit", "rollback", "leave"), (6, 2, 1))[0]  # noqa: S311 - no secret
    timeout = LEFT_OPEN_MS if choice == "leave" else 600_000
    prepared = 0
    for number, destination in enumerate(DESTINATIONS):
        if await producer.prepare(name, destination, b"%d" % number, timeout) != 200:
            break
        prepared += 1
    if prepared == len(DESTINATIONS) and choice == "commit":
        assert await producer.end(name, "commit") == 200
        book.committed.add(name)
        return
    if choice == "rollback" or prepared < len(DESTINATIONS):
        assert await producer.end(name, "rollback") in {200, 404}
    book.dropped.add(name)


async def opened(client: aiohttp.ClientSession, url: str) -> list[object]:
    """Return the open transactions."""
    async with client.get(f"{url}/v1/transactions", headers=VERSION) as answer:
        found: list[object] = json.loads(await answer.read())
        return found


async def visible(client: aiohttp.ClientSession, url: str) -> dict[str, list[tuple[str, bytes]]]:
    """Return what consumers get of each transaction: destination and body."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for destination in sorted(set(DESTINATIONS)):
        pull = VERSION | {"x-oms-source": destination, "x-oms-consumerid": "audit"}
        while True:
            async with client.get(f"{url}/v1/messages", headers=pull) as answer:
                if answer.status == 204:
                    break
                name = answer.headers["x-oms-h-transactionid"]
                found.setdefault(name, []).append((destination, await answer.read()))
    return found


@pytest.mark.extended
async def test_no_transaction_is_visible_in_part(tmp_path: Path) -> None:
    where, book = Where(), Book()
    with ExitStack() as closing:
        stage = Stage(tmp_path, {where: f"memory://?journal={tmp_path / 'journal'}"}, closing)
        await stage.start(where)
        async with http() as client:
            names = iter([f"tx-{number}" for number in range(TRANSACTIONS)])

            async def work() -> None:
                for name in names:
                    await produce(Producer(client, where), name, book)

            async def kill() -> None:
                for part in range(1, KILLS + 1):
                    while len(book) < TRANSACTIONS * part // (KILLS + 1):  # noqa: ASYNC110 - the producers go on
                        await asyncio.sleep(random.uniform(0.01, 0.1))  # noqa: S311 - the same
                    await stage.kill(where)
                    await stage.start(where)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(work())
                tasks.create_task(kill())
            url = await where.url()
            async with asyncio.timeout(60):
                while await opened(client, url):  # noqa: ASYNC110 - the timeouts of those that were left
                    await asyncio.sleep(0.1)
            found = await visible(client, url)
    assert len(book) == TRANSACTIONS
    assert len(book.committed) > TRANSACTIONS // 3
    whole = Counter((destination, b"%d" % number) for number, destination in enumerate(DESTINATIONS))
    assert set(found) == book.committed
    assert [name for name, messages in found.items() if Counter(messages) != whole] == []
