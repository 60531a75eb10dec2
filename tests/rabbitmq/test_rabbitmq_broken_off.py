"""A delete or purge in a real RabbitMQ that is broken off at any of its requests is finished by repeating it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.rabbitmq.options import Options, parse
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.deleting import Deletion
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.records import Kind
from tests.breaking import Steps, check_each_step
from tests.rabbitmq.bridged import backend, bridged


class _Raw:
    """Breaks off before a request whose answer is not waited for."""

    def __init__(self, channel: Channel, steps: Steps) -> None:
        self._channel, self._steps = channel, steps

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - pika's
        self._steps.take()
        return getattr(self._channel.raw, method)


class _Channel(Channel):
    """Breaks off before or after a request."""

    def __init__(self, channel: Channel, steps: Steps) -> None:
        super().__init__(channel.raw)
        self.raw = _Raw(channel, steps)
        self._channel, self._steps = channel, steps

    async def ask(self, subject: str, method: str, **arguments: object) -> Any:  # noqa: ANN401 - pika's
        self._steps.take()
        answer = await self._channel.ask(subject, method, **arguments)
        self._steps.take()
        return answer

    async def close(self) -> None:
        await self._channel.close()


class _Link(Link):
    def __init__(self, options: Options, steps: Steps) -> None:
        super().__init__(options, "declaring")
        self._steps = steps

    async def channel(self) -> Channel:
        return _Channel(await super().channel(), self._steps)


class _Catalogue(Catalogue):
    """Breaks off before or after an entry."""

    steps = Steps()

    async def enter(self, kind: Kind, *fields: object) -> None:
        if kind != "read":
            self.steps.take()
        await super().enter(kind, *fields)
        if kind != "read":
            self.steps.take()


@pytest.mark.extended
@pytest.mark.parametrize("what", ["delete", "purge"])
async def test_it_is_finished_by_repeating_it(rabbitmq_url: str, tmp_path: Path, what: str) -> None:
    url = backend(rabbitmq_url, partitions=2)
    options = parse(url)

    async def change(destination: str, steps: Steps) -> None:
        async with _deletion(options, steps) as deletion:
            await getattr(deletion, what)(destination, None)

    async with bridged(tmp_path, url) as (_, talk):
        await check_each_step(talk, change)


@pytest.mark.extended
async def test_what_many_broken_purges_have_left_is_dropped(rabbitmq_url: str, tmp_path: Path) -> None:
    """Each of them counts in the routing key of the messages after it."""
    url = backend(rabbitmq_url, partitions=1)
    async with bridged(tmp_path, url) as (_, talk), _deletion(parse(url), Steps()) as deletion:
        await talk.produce(b"old", delaytime=20_000)
        for number in range(1, 10):
            await deletion._catalogue.enter("purged", talk.destination, None, number)
        await deletion.purge(talk.destination, None)
        await talk.produce(b"new", delaytime=21_000)
        assert (await talk.take(waitmills=60_000)).body == b"new"


@asynccontextmanager
async def _deletion(options: Options, steps: Steps) -> AsyncIterator[Deletion]:
    declaring, consuming, publishing = _Link(options, steps), Link(options, "consuming"), Link(options, "publishing")
    publisher = Publisher(options, publishing)
    catalogue = _Catalogue(options, consuming, publisher)
    catalogue.steps = steps
    destinations = Destinations(options, declaring, catalogue)
    own = Own(options.prefix)
    try:
        for link in declaring, consuming, publishing:
            await link.start()
        await catalogue.start()
        yield Deletion(own, declaring, catalogue, destinations)
    finally:
        await catalogue.close()
        await destinations.close()
        await publisher.close()
        for link in declaring, consuming, publishing:
            await link.close()
