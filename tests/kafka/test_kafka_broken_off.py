"""A delete or purge in a real Kafka that is broken off at any of its requests is finished by repeating it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from kafka import KafkaAdminClient

from adapters.base import Stored
from adapters.kafka.admin import Admin
from adapters.kafka.deletion import Deletion, Purges
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, Topics
from tests.breaking import Steps, check_each_step
from tests.kafka.bridged import backend, bridged
from tests.kafka.driven import options_of

T = TypeVar("T")


class _Admin(Admin):
    """Breaks off before or after a request."""

    def __init__(self, options: Options, steps: Steps) -> None:
        super().__init__(options)
        self._steps = steps

    async def _do(self, ask: Callable[[KafkaAdminClient], T], what: str) -> T:
        self._steps.take()
        answer = await super()._do(ask, what)
        self._steps.take()
        return answer


class _Publisher(Publisher):
    """Breaks off before or after a record is stored."""

    def __init__(self, options: Options, steps: Steps) -> None:
        super().__init__(options)
        self._steps = steps

    def send(self, record: Outgoing) -> asyncio.Future[Stored]:
        return asyncio.ensure_future(self._send(record))

    async def _send(self, record: Outgoing) -> Stored:
        self._steps.take()
        stored = await super().send(record)
        self._steps.take()
        return stored


@pytest.mark.extended
@pytest.mark.parametrize("what", ["delete", "purge"])
async def test_it_is_finished_by_repeating_it(kafka_servers: str, tmp_path: Path, what: str) -> None:
    prefix = f"broken-{what}-{tmp_path.name[-8:]}."
    url = backend(kafka_servers, prefix=prefix, partitions=1, lanes="true", hold=200)
    options = options_of(kafka_servers, prefix=prefix, partitions=1, lanes=True)

    async def change(destination: str, steps: Steps) -> None:
        async with _deletion(options, steps) as deletion:
            await getattr(deletion, what)(destination, None)

    async with bridged(tmp_path, url) as (_, talk):
        await check_each_step(talk, change)


@asynccontextmanager
async def _deletion(options: Options, steps: Steps) -> AsyncIterator[Deletion]:
    publisher, admin = _Publisher(options, steps), _Admin(options, steps)
    await publisher.start()
    topics = Topics(options, admin, publisher)
    cluster = Cluster(options, admin, topics, publisher)
    delayed = Purges(cluster)
    try:
        yield Deletion(cluster, delayed)
    finally:
        await delayed.close()
        await topics.close()
        await publisher.close()
        await admin.close()
