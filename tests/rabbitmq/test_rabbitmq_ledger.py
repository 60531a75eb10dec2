"""The ledger against RabbitMQ: a second bridge joins the group and leaves it, the broker is killed, a bridge beside it.

Nothing that was answered is lost, nothing comes that was not sent, nothing comes twice without a reason, and each key
keeps its order.
"""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.ledger.client import Where
from tests.ledger.run import Progress, run
from tests.ledger.stage import Stage
from tests.rabbitmq.bridged import backend

SOAK = os.environ.get("OMS_TEST_SOAK") == "1"
MESSAGES = 100_000 if SOAK else 20_000

UNABLE = 0.5
"""Seconds in which a bridge without its broker could answer what it must not answer, before it is killed."""


async def test_the_ledger(tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit, ExitStack() as closing:
        first, second = Where(), Where()
        stage = Stage(tmp_path, _backends(rabbit, first, second), closing)
        await stage.start(first)

        async def story(progress: Progress) -> None:
            await progress.reach(0.1)
            await stage.start(second)
            await progress.served(await second.url())
            await asyncio.to_thread(rabbit.kill)
            await asyncio.to_thread(rabbit.start)
            await progress.reach(0.5)
            await stage.stop(second)
            await progress.reach(0.7)
            await asyncio.to_thread(rabbit.kill)
            await asyncio.sleep(UNABLE)
            await stage.kill(first)
            await asyncio.to_thread(rabbit.start)
            await stage.start(first)

        verdicts = await run([first, second], f"ledger-{uuid4().hex}", MESSAGES, story)
        for verdict in verdicts:
            print(f"\nRabbitMQ: {verdict}")  # noqa: T201 - the counts are what one wants to see
        for verdict in verdicts:
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
        assert verdicts[0].counts["repeated"], "the killed bridge held leases"
        assert verdicts[0].counts["bridges"] == 3, "both lives of the first one and the second one have delivered"


def _backends(rabbit: RabbitMQ, first: Where, second: Where) -> dict[Where, str]:
    """One bridge that lives again under one instance id, and another one that comes and goes."""
    prefix = f"t{uuid4().hex[:8]}."
    return {
        first: backend(rabbit.url, prefix=prefix, instance=f"i{uuid4().hex[:8]}"),
        second: backend(rabbit.url, prefix=prefix),
    }
