"""The ledger of producers that send batches, against Kafka: broker and bridge are killed in the middle of them.

Every result line of a batch's answer is held to its word: what it calls stored is there, what it calls refused is not,
and only what had no answer may be there twice.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.provide import own_kafka
from tests.kafka.bridged import backend
from tests.ledger.client import Where
from tests.ledger.run import Progress, in_batches, run
from tests.ledger.stage import Stage
from tests.tiers import SOAK

pytestmark = pytest.mark.extended

MESSAGES = 60_000 if SOAK else 12_000
KILLS = 4 if SOAK else 1
"""Of each of broker and bridge."""


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
async def test_a_kill_in_the_middle_of_a_batch(client: str, tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka") as kafka, ExitStack() as closing:
        where = Where()
        backends = {where: backend(kafka.bootstrap, client=client, instance=f"i{uuid4().hex[:8]}")}
        stage = Stage(tmp_path, backends, closing)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            for kill in range(2 * KILLS):
                await progress.reach((kill + 1) / (2 * KILLS + 1))
                if kill % 2:
                    await stage.kill(where)
                    await stage.start(where)
                else:
                    await asyncio.to_thread(kafka.kill)
                    await asyncio.to_thread(kafka.start)

        verdicts = await run([where], f"ledger-{uuid4().hex}", MESSAGES, story, producers=in_batches)
        for verdict in verdicts:
            print(f"\n{client}, batches: {verdict}")  # noqa: T201 - the counts are the result
        for verdict in verdicts:
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
            assert verdict.counts["answered unknown"], "no kill fell into a batch"
