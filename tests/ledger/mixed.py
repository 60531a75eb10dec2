"""Mixed traffic for as long as is wanted: what clients do, side by side, and what the bridge's process holds meanwhile.

Two groups must be given everything: one pulls, the other has its messages posted to a URL. Beside them are streams,
short leases, nacks, delays, groups that come and go, clients that vanish, and requests that are refused.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median
from typing import Final
from uuid import uuid4

import aiohttp

from tests.http.callback_endpoint import OK, Answer, Endpoint, Posted
from tests.launch import Bridge
from tests.ledger.client import VERSION, http

PAUSE: Final = 0.05
"""Seconds between two requests of one client: an hour of it must not fill a broker's disk."""
PATIENCE: Final = 240.0
PASSING: Final = 6
"""Groups that come and go, by name: a broker keeps something of each."""


async def mixed(bridge: Bridge, endpoint: Endpoint, seconds: float) -> list[int]:
    """Let the clients work for so long, and then until nothing is owed to the two groups.

    Returns the bridge's resident bytes, once a second.
    """
    async with http() as client:
        return await _Mixed(bridge, endpoint, client).run(seconds)


def growth(samples: Sequence[int]) -> int:
    """Return by how much what is held at the end exceeds the most that was held in the first third."""
    third = len(samples) // 3
    assert third, "too short to tell"
    return int(median(samples[-third:])) - max(samples[:third])


class _Mixed:
    """The clients of one bridge."""

    def __init__(self, bridge: Bridge, endpoint: Endpoint, client: aiohttp.ClientSession) -> None:
        self._bridge = bridge
        self._endpoint = endpoint
        self._client = client
        self._source = f"mixed-{uuid4().hex}"
        self._draw = random.Random(11)  # noqa: S311 - no secret
        self._owed: dict[str, set[str]] = {"pulling": set(), "posted": set()}
        """What each group has to be given yet. A message is in it before it is sent, and not once it was refused."""
        self._samples: list[int] = []
        self._number = 0

    async def run(self, seconds: float) -> list[int]:
        await self._begin()
        producing = [self._one_by_one, self._one_by_one, self._in_batches, self._wrongly]
        consuming = [self._pull, self._pull, self._pull, self._stream, self._vanish, self._pass_by]
        producers = [asyncio.create_task(_repeat(work)) for work in producing]
        consumers = [asyncio.create_task(_repeat(work)) for work in consuming]
        watching = asyncio.create_task(_repeat(self._watch, 1.0))
        try:
            await _for_as_long(seconds, [*producers, *consumers, watching])
            await _stop([*producers, watching])
            await self._nothing_is_owed(consumers)
        finally:
            await _stop([*producers, *consumers, watching])
        print(f"{self._number} messages in {seconds} s")  # noqa: T201 - the result
        return self._samples

    async def _begin(self) -> None:
        self._endpoint.scripts["/mixed"] = self._posted
        asked = {"source": self._source, "callbackurl": self._endpoint.url("/mixed"), "consumerid": "posted"}
        assert await self._ask("POST", "/v1/push", asked) == 201
        assert await self._ask("GET", "/v1/messages", {"source": self._source, "consumerid": "pulling"}) == 204

    async def _nothing_is_owed(self, consumers: Sequence[asyncio.Task[None]]) -> None:
        waited = 0.0
        while any(self._owed.values()):
            owed = {group: sorted(names)[:10] for group, names in self._owed.items()}
            assert waited < PATIENCE, f"these were stored and did not come: {owed}"
            await _for_as_long(0.5, consumers)
            waited += 0.5

    # Producers

    async def _one_by_one(self) -> None:
        name, fields = self._next()
        if self._draw.random() < 0.1:
            fields["expiretime"] = str(2**60)
        if self._draw.random() < 0.1:
            fields["delaytime"] = str(self._draw.randrange(3_000))
        headers = {f"h-{field}": value for field, value in fields.items()} | {"p-%4frder": "7"}
        body = self._draw.randbytes(self._draw.choice((0, 100, 2_000, 40_000)))
        self._answered(name, await self._ask("POST", "/v1/messages", headers, body))

    async def _in_batches(self) -> None:
        batch = dict(self._next() for _ in range(10))
        messages = [
            {
                "header": {"destination": self._source, "messageId": name},
                "extensionHeader": {"messageKey": fields["messagekey"]},
                "data": "Ym9keQ==",
            }
            for name, fields in batch.items()
        ]
        headers = {**VERSION, "content-type": "application/json"}
        url = f"{self._bridge.url}/v1/messages"
        async with self._client.post(url, headers=headers, data=json.dumps(messages)) as answer:
            assert answer.status in {200, 207}, await answer.text()
            results = await answer.json()
        for name, result in zip(batch, results, strict=True):
            self._answered(name, result["status"])
        await asyncio.sleep(10 * PAUSE)

    async def _wrongly(self) -> None:
        assert await self._ask("POST", "/v1/messages", {"h-destination": ".."}) == 400
        assert await self._ask("POST", "/v1/ack", {"receipt": "none"}) == 400
        expired = {"h-destination": self._source, "h-borntimestamp": "1", "h-expiretime": "2"}
        assert await self._ask("POST", "/v1/messages", expired) == 200  # and dropped

    def _next(self) -> tuple[str, dict[str, str]]:
        self._number += 1
        name = f"m{self._number}"
        for owed in self._owed.values():
            owed.add(name)
        fields = {"destination": self._source, "messageid": name, "messagekey": f"k{self._draw.randrange(50)}"}
        return name, fields | {"priority": str(self._draw.randint(1, 10))}

    def _answered(self, name: str, status: int) -> None:
        assert status in {200, 503, 504}, (name, status)
        if status != 200:
            for owed in self._owed.values():
                owed.discard(name)

    # Consumers

    async def _pull(self) -> None:
        forgetful = self._draw.random() < 0.02
        asked = {"waitmills": "500", "leasemills": "500" if forgetful else "30000"}
        async with self._client.get(f"{self._bridge.url}/v1/messages", headers=self._as("pulling", asked)) as answer:
            await answer.read()
        assert answer.status in {200, 204}, answer.status
        if answer.status == 200 and not forgetful:
            await self._settle("pulling", answer.headers["x-oms-h-messageid"], answer.headers["x-oms-receipt"])

    async def _stream(self) -> None:
        """Take some messages of the group that pulls, then some more on the next stream."""
        headers = self._as("pulling", {"maxmessages": "50", "waitmills": "1000"})
        headers["accept"] = "application/x-ndjson"
        async with self._client.get(f"{self._bridge.url}/v1/push", headers=headers, read_bufsize=1 << 20) as answer:
            assert answer.status == 200, answer.status
            async for text in answer.content:
                line = json.loads(text) if text.strip() else {}
                if "data" in line:
                    await self._settle("pulling", line["header"]["messageId"], line["receipt"])

    async def _vanish(self) -> None:
        """Leave in the middle of a stream, and of a pull that waits."""
        for path, asked in (("push", {"credit": "5"}), ("messages", {"waitmills": "60000"})):
            group = "vanishing" if path == "push" else "waiting"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    url = f"{self._bridge.url}/v1/{path}"
                    async with self._client.get(url, headers=self._as(group, asked)) as answer:
                        await answer.content.readany()
                        answer.close()

    async def _pass_by(self) -> None:
        """Come as one of several groups, take a few messages at most once, and go."""
        group = f"passing-{self._draw.randrange(PASSING)}"
        headers = self._as(group, {"ack": "false", "maxmessages": "200", "waitmills": "200"})
        async with self._client.get(f"{self._bridge.url}/v1/push", headers=headers) as answer:
            assert answer.status == 200, answer.status
            await answer.read()

    def _posted(self, posted: Posted) -> Answer:
        """Answer as an endpoint that fails now and then; on a separate thread."""
        if hash(posted.at) % 50 == 0:
            return 500, {}
        self._owed["posted"].discard(posted.headers["x-oms-h-messageid"])
        self._endpoint.posts.clear()  # what it notes for other tests would grow
        return OK

    async def _settle(self, group: str, name: str, receipt: str) -> None:
        if self._draw.random() < 0.05:
            await self._ask("POST", "/v1/nack", {"receipt": receipt, "delaymills": "200"})
        elif await self._ask("POST", "/v1/ack", {"receipt": receipt}) == 204:
            self._owed[group].discard(name)

    async def _watch(self) -> None:
        self._samples.append(await asyncio.to_thread(self._bridge.resident_bytes))

    def _as(self, group: str, asked: Mapping[str, str]) -> dict[str, str]:
        return _headers({"source": self._source, "consumerid": group, "ack": "true", **asked})

    async def _ask(self, method: str, path: str, asked: Mapping[str, str], body: bytes = b"") -> int:
        headers = _headers(asked)
        async with self._client.request(method, self._bridge.url + path, headers=headers, data=body or None) as answer:
            await answer.read()
            return answer.status


def _headers(asked: Mapping[str, str]) -> dict[str, str]:
    return VERSION | {f"x-oms-{name}": value for name, value in asked.items()}


async def _repeat(work: Callable[[], Awaitable[None]], pause: float = PAUSE) -> None:
    while True:
        await work()
        await asyncio.sleep(pause)


async def _for_as_long(seconds: float, working: Sequence[asyncio.Task[None]]) -> None:
    """Let tasks work that end by an error only; raise that."""
    done, _ = await asyncio.wait(working, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _stop(working: Sequence[asyncio.Task[None]]) -> None:
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
