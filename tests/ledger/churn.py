"""More than a hundred groups of one destination that come, take some messages, leave, and come again.

Each must be given every message that it has not acknowledged, and none that it has; and a bridge that nobody uses any
more must hold nothing of them.
"""

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import aiohttp
import httpx

from tests.launch import Bridge
from tests.ledger.client import ask, http

GROUPS: Final = 120
LATE: Final = 20
"""Of them come only when all is stored."""
MESSAGES: Final = 10
"""In each round."""
LEASE: Final = 1_000
"""Of what a group takes and forgets, ms."""
IDLE: Final = 1_000
"""`delivery.group_idle`, ms: the pause in which a group leaves the bridge."""
PATIENCE: Final = 180.0
_WAIT: Final = 2 * LEASE
"""How long a pull waits for one more message: longer than a lease that was forgotten."""
SETTINGS: Final = {"OMS_DELIVERY__GROUP_IDLE": str(IDLE)}


class Churn:
    """What was stored, and what each group has acknowledged."""

    def __init__(self, bridge: Bridge, at_once: int) -> None:
        """`at_once`: how many groups come at the same time."""
        self._bridge = bridge
        self._source = f"churn-{uuid4().hex}"
        self._draw = random.Random(7)  # noqa: S311 - no secret
        self._stored: set[str] = set()
        self._done: defaultdict[str, set[str]] = defaultdict(set)
        self._gate = asyncio.Semaphore(at_once)

    async def round(self) -> None:
        """Store some messages; let two groups of three come, take some, settle part of them and leave."""
        coming = [f"g{number}" for number in range(GROUPS - LATE) if self._draw.random() < 2 / 3]
        async with http() as client:
            await self._produce(client)
            await asyncio.gather(*(self._visit(client, group, self._draw.randrange(MESSAGES)) for group in coming))
        await self.gone()

    async def all_come(self) -> None:
        """Let every group come, the late ones too, and take all that it has not settled: that, and nothing else."""
        async with http() as client:
            await asyncio.gather(*(self._visit(client, f"g{number}", None) for number in range(GROUPS)))
        missing = {group: self._stored - self._done[group] for group in self._done if self._stored - self._done[group]}
        assert not missing, missing
        assert len(self._done) == GROUPS
        await self.gone()

    async def gone(self) -> None:
        """Wait until the bridge holds no group any more."""
        async with asyncio.timeout(PATIENCE):
            while _metric(self._bridge, "oms_groups"):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(IDLE / 4000)
        for name in ("oms_prefetch_messages", "oms_prefetch_bytes", "oms_leases", "oms_waiting_pulls"):
            assert _metric(self._bridge, name) == 0, name

    async def _produce(self, client: aiohttp.ClientSession) -> None:
        for _ in range(MESSAGES):
            name = f"m{len(self._stored)}"
            headers = {"x-oms-h-destination": self._source, "x-oms-h-messageid": name}
            reply = await ask(client, "POST", f"{self._bridge.url}/v1/messages", headers, name.encode() * 50)
            assert reply.status == 200, reply
            self._stored.add(name)

    async def _visit(self, client: aiohttp.ClientSession, group: str, most: int | None) -> None:
        """Take so many messages, of which some are forgotten; None: all, of which none is."""
        async with self._gate:
            taken = 0
            while most is None or taken < most:
                asking = {"source": self._source, "consumerid": group, "ack": "true", "waitmills": str(_WAIT)}
                asking["leasemills"] = str(LEASE if most is not None else 60_000)
                headers = {f"x-oms-{name}": value for name, value in asking.items()}
                reply = await ask(client, "GET", f"{self._bridge.url}/v1/messages", headers)
                if reply.status == 204:
                    return
                assert reply.status == 200, reply
                name = reply.headers["x-oms-h-messageid"]
                assert name in self._stored, name
                assert name not in self._done[group], f"{group} has acknowledged {name} and is given it again"
                taken += 1
                if most is None or self._draw.random() < 0.7:
                    receipt = {"x-oms-receipt": reply.headers["x-oms-receipt"]}
                    answer = await ask(client, "POST", f"{self._bridge.url}/v1/ack", receipt)
                    if answer.status == 410 and most is not None:
                        continue  # a slow machine: the short lease was over
                    assert answer.status == 204, answer
                    self._done[group].add(name)


async def churn(directory: Path, backend: str, rounds: int, *, at_once: int = GROUPS) -> None:
    """Run so many rounds and let all come in the end; what a round leaves behind does not add up."""
    with Bridge(directory, backend=backend, settings=SETTINGS) as bridge:
        story = Churn(bridge, at_once)
        held = []
        for _ in range(rounds):
            await story.round()
            held.append(_held(bridge))
        await story.all_come()
        held.append(_held(bridge))
        print(f"threads, descriptors and MiB after each round: {held}")  # noqa: T201 - the result
        # the first round makes what stays: connections to the broker, threads, caches
        assert held[-1].threads <= held[0].threads + 4, held
        assert held[-1].descriptors <= held[0].descriptors + 20, held
        assert held[-1].mebibytes <= held[0].mebibytes + 30, held
        assert bridge.terminate() == 0


class Held(NamedTuple):
    """What the bridge's process holds."""

    threads: int
    descriptors: int
    mebibytes: int


def _held(bridge: Bridge) -> Held:
    process = Path(f"/proc/{bridge.pid}")
    threads, descriptors = (sum(1 for _ in (process / kind).iterdir()) for kind in ("task", "fd"))
    return Held(threads, descriptors, bridge.resident_bytes() >> 20)


def _metric(bridge: Bridge, name: str) -> float:
    text = httpx.get(f"{bridge.management}/metrics", trust_env=False, timeout=60).text
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name} "))
