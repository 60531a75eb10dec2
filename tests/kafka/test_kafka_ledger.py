"""The ledger against Kafka: a second bridge joins the group and leaves it, brokers are killed, and a bridge beside one.

Nothing that was answered is lost, nothing comes that was not sent, nothing comes twice without a reason, and each key
keeps its order.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.kafka import Kafka
from tests.brokers.node import Node
from tests.brokers.provide import own_kafka
from tests.kafka.bridged import backend
from tests.ledger.client import Where
from tests.ledger.run import Progress, run
from tests.ledger.stage import Stage
from tests.tiers import SOAK

pytestmark = pytest.mark.extended

MESSAGES = 100_000 if SOAK else 20_000
EVERY = [(nodes, client) for nodes in (1, 3) for client in ("kafka-python", "confluent")]
RUNS = EVERY if SOAK else [(1, "confluent"), (3, "kafka-python")]

UNABLE = 0.5
"""Seconds in which a bridge without its broker could answer what it must not answer, before it is killed."""


@pytest.mark.parametrize(("nodes", "client"), RUNS)
async def test_the_ledger(nodes: int, client: str, tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka", nodes=nodes) as kafka, ExitStack() as closing:
        first, second = Where(), Where()
        stage = Stage(tmp_path, _backends(kafka, client, first, second), closing)
        await stage.start(first)

        async def story(progress: Progress) -> None:
            await progress.reach(0.1)
            await stage.start(second)
            await progress.served(await second.url())
            await _kill_and_start(kafka.nodes[0])
            await progress.reach(0.5)
            await stage.stop(second)
            await progress.reach(0.7)
            await asyncio.to_thread(kafka.nodes[-1].kill)
            await asyncio.sleep(UNABLE)
            await stage.kill(first)
            await asyncio.to_thread(kafka.nodes[-1].start)
            await stage.start(first)

        verdicts = await run([first, second], f"ledger-{uuid4().hex}", MESSAGES, story)
        for verdict in verdicts:
            print(f"\n{nodes} brokers, {client}: {verdict}")  # noqa: T201 - the counts are the result
        for verdict in verdicts:
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
        assert verdicts[0].counts["repeated"], "the killed bridge held leases"
        assert verdicts[0].counts["bridges"] == 3, "both lives of the first one and the second one have delivered"


def _backends(kafka: Kafka, client: str, first: Where, second: Where) -> dict[Where, str]:
    """One bridge that restarts under one instance id, and another one that comes and goes."""
    options = {"client": client, "prefix": f"t{uuid4().hex[:8]}."}
    return {
        first: backend(kafka.bootstrap, instance=f"i{uuid4().hex[:8]}", **options),
        second: backend(kafka.bootstrap, **options),
    }


async def _kill_and_start(node: Node) -> None:
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
