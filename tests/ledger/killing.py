"""Transactions while the bridge, the broker and the producer are killed at random moments, and what became of each."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.brokers.broker import Broker
from tests.http.callback_endpoint import Answer, Endpoint, Posted
from tests.ledger import transacting
from tests.ledger.client import Where, ask, http
from tests.ledger.stage import Stage
from tests.ledger.transacting import Step

SEED: Final = 21
"""Of what is killed when."""
TRANSACTIONS: Final = 2_000
PATIENCE: Final = 120.0
"""Seconds; a guard."""
JSON: Final = {"content-type": "application/json"}


class Book:
    """When each transaction took which step, in seconds of the machine's clock."""

    def __init__(self) -> None:
        self.steps: dict[Step, dict[str, float]] = {step: {} for step in Step}
        self.kills: list[tuple[float, float]] = []
        """From when until when a bridge or a broker was away."""
        self.lives = 0
        """Producers that were started."""

    def __len__(self) -> int:
        return len(self.steps[Step.COMMITTED]) + len(self.steps[Step.DROPPED])

    def check(self, posted: Posted) -> Answer:
        """Answer a check-back from what the producer has decided. A producer that is dead has decided."""
        name = json.loads(posted.body)["transactionId"]
        if name in self.steps[Step.DECIDED]:
            decision = "commit"
        elif name in self.steps[Step.DROPPED] or int(name.partition("-")[0]) < self.lives:
            decision = "rollback"
        else:
            decision = "unknown"
        return 200, JSON, json.dumps({"decision": decision}).encode()

    def interrupted(self, before: float) -> set[str]:
        """Return the transactions whose commit was under way during a kill, or answered so many seconds before it."""
        answered = self.steps[Step.COMMITTED]
        return {
            name
            for name, at in self.steps[Step.DECIDED].items()
            if any(at <= end and answered.get(name, end) >= begin - before for begin, end in self.kills)
        }


class Producer:
    """One life of the producer after the other; the names of the next one begin with its number."""

    def __init__(self, book: Book, *arguments: str) -> None:
        """`arguments`: the file with the bridge's URL, the URL of the check, and the destinations."""
        self._book = book
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._book.lives += 1
        file, *rest = self._arguments
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", transacting.__name__, file, str(self._book.lives), *rest),
            stdout=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def kill(self) -> None:
        """End it with SIGKILL, and read the rest of what it has written."""
        process, reading = self._process, self._reading
        assert process is not None
        assert reading is not None
        assert process.returncode is None, "the producer ended with an error"
        process.kill()
        await reading
        await process.wait()
        self._process = None

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            at, step, name = line.decode().split()
            self._book.steps[Step(step)][name] = float(at)


class Place(NamedTuple):
    """Where a ledger is."""

    directory: Path
    backend: str
    """The URL that the bridge is started with."""
    broker: Broker | None = None
    """It is killed, too."""


class Ledger:
    """One bridge, its broker if it has one, and one producer."""

    def __init__(self, place: Place, destinations: Sequence[str], endpoint: Endpoint, closing: ExitStack) -> None:
        """`destinations`: one for each message of a transaction."""
        self.book = Book()
        self.where = Where()
        self._stage = Stage(place.directory, {self.where: place.backend}, closing, settings=endpoint.settings())
        self._broker = place.broker
        self._file = place.directory / "url"
        endpoint.scripts["/check"] = self.book.check
        self._producer = Producer(self.book, str(self._file), endpoint.url("/check"), *destinations)

    async def begin(self) -> str:
        """Start the bridge, and return its URL."""
        await self._stage.start(self.where)
        url = await self.where.url()
        partial = self._file.with_suffix(".partial")
        partial.write_text(url, "ascii")
        partial.rename(self._file)
        return url

    async def run(self) -> None:
        """Produce, and kill at random, until enough transactions have ended; then wait until no one is open."""
        draw = random.Random(SEED)  # noqa: S311 - no secret
        kinds: list[Callable[[], Awaitable[None]]] = [*[self._kill_bridge] * 5, *[self._kill_producer] * 4]
        if self._broker is not None:
            kinds += [self._kill_broker, self._kill_broker, self._kill_both]
        draw.shuffle(kinds)
        moments = sorted(draw.sample(range(50, TRANSACTIONS), len(kinds)))
        await self._producer.start()
        try:
            for moment, kill in zip(moments, kinds, strict=True):
                await self._reach(moment)
                await asyncio.sleep(draw.uniform(0, 0.1))
                await kill()
            await self._reach(TRANSACTIONS)
            await self._producer.kill()
        finally:
            await self._producer.close()
        self.book.lives += 1  # the last one is dead, too
        await self._end()

    async def _reach(self, moment: int) -> None:
        began, before = time.monotonic(), len(self.book)
        while len(self.book) < moment:
            assert self._producer.alive(), "the producer ended with an error"
            if len(self.book) > before:
                began, before = time.monotonic(), len(self.book)
            assert time.monotonic() - began < PATIENCE, "no transaction ends"
            await asyncio.sleep(0.01)

    async def _end(self) -> None:
        """Wait until no transaction is open, and until each commit has been answered."""
        url = await self.where.url()
        async with http() as client, asyncio.timeout(PATIENCE):
            while json.loads((await ask(client, "GET", f"{url}/v1/transactions", {})).body):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            for name in self.book.steps[Step.DECIDED].keys() - self.book.steps[Step.COMMITTED].keys():
                path = f"{url}/v1/transactions/{name}/commit"
                while (reply := await ask(client, "POST", path, {})).status in {503, 504}:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                assert reply.status == 200, f"{name}: {reply}"

    async def _kill_bridge(self) -> None:
        begin = time.monotonic()
        self._file.unlink()
        await self._stage.kill(self.where)
        await self.begin()
        self.book.kills.append((begin, time.monotonic()))

    async def _kill_broker(self) -> None:
        assert self._broker is not None
        begin = time.monotonic()
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.start)
        self.book.kills.append((begin, time.monotonic()))

    async def _kill_both(self) -> None:
        await asyncio.gather(self._kill_broker(), self._kill_bridge())

    async def _kill_producer(self) -> None:
        await self._producer.kill()
        await self._producer.start()


async def pulled(url: str, destinations: Sequence[str], group: str) -> Mapping[str, Counter[str]]:
    """Return what a group gets: messageIds, and how often, by transaction."""
    found: dict[str, Counter[str]] = {}
    async with http() as client:
        for destination in sorted(set(destinations)):
            asked = {"source": destination, "consumerid": group, "ack": "false", "waitmills": "3000"}
            headers = {f"x-oms-{name}": value for name, value in asked.items()} | {"accept": "application/x-ndjson"}
            reply = await ask(client, "GET", f"{url}/v1/push", headers)
            assert reply.status == 200, reply
            for line in map(json.loads, filter(bytes.strip, reply.body.split(b"\n"))):
                if "data" in line:
                    name = line["extensionHeader"]["transactionId"]
                    found.setdefault(name, Counter())[line["header"]["messageId"]] += 1
    return found
