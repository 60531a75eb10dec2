"""Consumers of one group: some pull, some have a push stream; most of what comes is acknowledged, some is not."""

import asyncio
import base64
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

from tests.ledger.book import Book, Handed
from tests.ledger.client import VERSION, Reply, Where, ask

WAIT: Final = 1000
"""How long a pull waits, ms."""
FORGOTTEN: Final = 1000
"""The lease of a pull that may forget what it was given, ms."""
_PAUSE: Final = 0.1
"""Seconds before an unsuccessful request is repeated."""
_TOGETHER: Final = 50
"""Acknowledgements of a push stream that are sent in one request."""


class Group:
    """What the consumers of one group have in common."""

    def __init__(self, book: Book, client: aiohttp.ClientSession, source: str, name: str) -> None:
        self.book = book
        self._client = client
        self._name = name
        self._asking = {"x-oms-source": source, "x-oms-consumerid": name, "x-oms-ack": "true"}

    async def pull(self, where: Where, seed: int) -> None:
        """Take messages one by one until cancelled."""
        draw = random.Random(seed)  # noqa: S311 - no secret
        while True:
            url = await where.url()
            forgetful = draw.random() < 0.02
            lease = {"x-oms-leasemills": str(FORGOTTEN)} if forgetful else {}
            asking = self._asking | {"x-oms-waitmills": str(WAIT)} | lease
            reply = await ask(self._client, "GET", f"{url}/v1/messages", asking)
            if reply.status == 200:
                handed, receipt = self._pulled(url, reply), reply.headers["x-oms-receipt"]
                if draw.random() < 0.02:
                    await self._nack(url, receipt, draw.randrange(100))
                elif not forgetful:
                    await self._ack(url, [(receipt, handed)])
            elif reply.status != 204:
                await asyncio.sleep(_PAUSE)

    async def push(self, where: Where, seed: int) -> None:
        """Take messages as they come until cancelled, on one stream after another."""
        draw = random.Random(seed)  # noqa: S311 - no secret
        while True:
            url = await where.url()
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                await self._stream(url, draw)
            await asyncio.sleep(_PAUSE)

    async def read_all(self, url: str) -> None:
        """Take all there is, at most once, until nothing more comes for a while."""
        async for line in self._lines(url, {"x-oms-ack": "false", "x-oms-waitmills": str(WAIT)}):
            handed = self._take(url, line)
            self.book.ask(handed)
            self.book.finish(handed)

    async def take_rest(self, url: str) -> None:
        """Take and acknowledge, one by one, what comes again once every short lease is over."""
        headers = self._asking | {"x-oms-waitmills": str(2 * FORGOTTEN)}
        while (reply := await ask(self._client, "GET", f"{url}/v1/messages", headers)).status != 204:
            assert reply.status == 200, reply
            await self._ack(url, [(reply.headers["x-oms-receipt"], self._pulled(url, reply))])

    async def _stream(self, url: str, draw: random.Random) -> None:
        waiting: list[tuple[str, Handed]] = []
        settling: set[asyncio.Task[None]] = set()

        def flush() -> None:
            if waiting:
                settling.add(asyncio.create_task(self._ack(url, waiting.copy())))
                waiting.clear()

        try:
            async for line in self._lines(url, {"x-oms-maxmessages": "2000"}):
                handed = self._take(url, line)
                if draw.random() < 0.02:
                    settling.add(asyncio.create_task(self._nack(url, line["receipt"], draw.randrange(100))))
                    continue
                if not waiting:
                    asyncio.get_running_loop().call_later(0.005, flush)
                waiting.append((line["receipt"], handed))
                if len(waiting) >= _TOGETHER:
                    flush()
        finally:
            flush()
            # Also those of a stream that broke: its leases are over, and the bridge must say so.
            await asyncio.gather(*settling)

    async def _lines(self, url: str, more: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        headers = VERSION | self._asking | {"accept": "application/x-ndjson"} | more
        forever = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._client.get(f"{url}/v1/push", headers=headers, timeout=forever, read_bufsize=1 << 20) as answer:
            assert answer.status in {200, 503, 504}, (answer.status, await answer.text())
            if answer.status == 200:
                async for text in answer.content:
                    line = json.loads(text) if text.strip() else {}
                    if "data" in line:
                        yield line

    async def _ack(self, url: str, batch: list[tuple[str, Handed]]) -> None:
        """Acknowledge until that is answered for good, or its bridge is gone."""
        for _, handed in batch:
            self.book.ask(handed)
        while True:
            receipts = ",".join(receipt for receipt, _ in batch)
            reply = await ask(self._client, "POST", f"{url}/v1/ack", {"x-oms-receipt": receipts})
            if reply.status == 204:
                for _, handed in batch:
                    self.book.finish(handed)
                return
            if reply.status in {-1, 0}:
                return
            if len(batch) > 1:  # some are done: ask for each
                await asyncio.gather(*(self._ack(url, [one]) for one in batch))
                return
            if reply.status not in {503, 504}:
                return
            await asyncio.sleep(_PAUSE)

    async def _nack(self, url: str, receipt: str, delay: int) -> None:
        """Give back, or if that fails let the lease run out."""
        await ask(self._client, "POST", f"{url}/v1/nack", {"x-oms-receipt": receipt, "x-oms-delaymills": str(delay)})

    def _pulled(self, url: str, reply: Reply) -> Handed:
        name, count = reply.headers["x-oms-h-messageid"], int(reply.headers["x-oms-h-deliverycount"])
        return self.book.deliver(self._name, name, reply.body, count, url)

    def _take(self, url: str, line: dict[str, Any]) -> Handed:
        name, count = line["header"]["messageId"], line["extensionHeader"]["deliveryCount"]
        return self.book.deliver(self._name, name, base64.b64decode(line["data"]), count, url)
