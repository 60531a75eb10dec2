"""The ledger of producers that send batches, against RabbitMQ: broker and bridge are killed in the middle of them.

Every result line of a batch's answer is held to its word: what it calls stored is there, what it calls refused is not,
and only what had no answer may be there twice.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.ledger.client import Where, ask, http
from tests.ledger.run import AUDIT, GROUP, Producers, Progress, in_batches, one_by_one, run
from tests.ledger.stage import Stage
from tests.rabbitmq.bridged import backend
from tests.tiers import SOAK

pytestmark = pytest.mark.extended

MESSAGES = 60_000 if SOAK else 12_000
KILLS = 4 if SOAK else 1
"""Of each of broker and bridge."""
YOUNG = 8
"""Seconds after which a quorum queue survives a kill; see `test_rabbitmq_ledger`."""


async def test_a_kill_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit, ExitStack() as closing:
        where = Where()
        stage = Stage(tmp_path, {where: backend(rabbit.url, instance=f"i{uuid4().hex[:8]}")}, closing)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            for kill in range(2 * KILLS):
                await progress.reach((kill + 1) / (2 * KILLS + 1))
                if kill % 2:
                    await stage.kill(where)
                    await stage.start(where)
                else:
                    await asyncio.to_thread(rabbit.kill)
                    await asyncio.to_thread(rabbit.start)

        destination = f"ledger-{uuid4().hex}"
        await _make_groups(await where.url(), destination)
        verdicts = await run([where], destination, MESSAGES, story, producers=in_batches)
        for verdict in verdicts:
            print(f"\nRabbitMQ, batches: {verdict}")  # noqa: T201 - the counts are the result
        for verdict in verdicts:
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
            assert verdict.counts["answered unknown"], "no kill fell into a batch"


@pytest.mark.parametrize("producers", [in_batches, one_by_one])
async def test_no_outcome_is_unknown_after_a_kill_of_the_broker(tmp_path: Path, producers: Producers) -> None:
    """What was sent and not confirmed is sent again, and each group gets it once."""
    with own_rabbitmq(tmp_path / "rabbit") as rabbit, ExitStack() as closing:
        where = Where()
        stage = Stage(tmp_path, {where: backend(rabbit.url)}, closing)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            for kill in range(KILLS):
                await progress.reach((kill + 1) / (KILLS + 1))
                await asyncio.to_thread(rabbit.kill)
                await asyncio.to_thread(rabbit.start)

        destination = f"ledger-{uuid4().hex}"
        await _make_groups(await where.url(), destination)
        for verdict in await run([where], destination, MESSAGES, story, producers=producers):
            print(f"\nRabbitMQ, {producers.__name__}: {verdict}")  # noqa: T201 - the counts are the result
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
            assert verdict.counts["answered unknown"] < MESSAGES / 1000


async def _make_groups(url: str, destination: str) -> None:
    """Make both groups' queues beforehand: a stream may lose what it confirmed just before a kill (3.10, one node)."""
    async with http() as client:
        for group in (GROUP, AUDIT):
            asking = {"x-oms-source": destination, "x-oms-consumerid": group, "x-oms-waitmills": "0"}
            assert (await ask(client, "GET", f"{url}/v1/messages", asking)).status == 204
    await asyncio.sleep(YOUNG)
