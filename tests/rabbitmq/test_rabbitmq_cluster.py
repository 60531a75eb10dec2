"""The ledger against three nodes of RabbitMQ: two are killed and one is cut off, each while messages are produced and
consumed. Nothing that was answered is lost, not even for a group that comes late.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.ledger.client import Where
from tests.ledger.run import Progress, run
from tests.ledger.stage import Stage
from tests.rabbitmq.bridged import backend
from tests.tiers import SOAK

pytestmark = pytest.mark.extended

MESSAGES: Final = 100_000 if SOAK else 20_000
RELEASE: Final = "trixie"
"""Debian's release with RabbitMQ 4.0: 3.10 is older than what people form clusters of."""
CUT: Final = 10.0
"""Seconds that a node is cut off: longer than the others need to notice it."""


async def test_the_ledger_of_a_cluster(tmp_path: Path) -> None:
    settings = {"cluster_partition_handling": "pause_minority"}
    with own_rabbitmq(tmp_path / "rabbit", release=RELEASE, nodes=3, settings=settings) as rabbit, ExitStack() as end:
        where = Where()
        stage = Stage(tmp_path, {where: backend(rabbit.url, instance=f"i{uuid4().hex[:8]}")}, end)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            await progress.reach(0.2)
            await asyncio.to_thread(rabbit.nodes[0].kill)  # the bridge's
            await progress.reach(0.4)
            await asyncio.to_thread(rabbit.nodes[0].start)
            await progress.reach(0.6)
            await asyncio.to_thread(rabbit.isolate, 1)
            await asyncio.sleep(CUT)
            await asyncio.to_thread(rabbit.join, 1)
            await progress.reach(0.9)
            await asyncio.to_thread(rabbit.nodes[2].kill)
            await progress.reach(1)
            await asyncio.to_thread(rabbit.nodes[2].start)

        for verdict in await run([where], f"ledger-{uuid4().hex}", MESSAGES, story):  # the second one is a late group's
            print(f"\nRabbitMQ, three nodes: {verdict}")  # noqa: T201 - the counts are what one wants to see
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
