"""What the tests of the RabbitMQ source have in common."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from uuid import uuid4

from pyspark.sql.streaming.datasource import ReadMaxRows

from adapters.rabbitmq.options import parse
from bridge.errors import BackendUnavailable
from bridge.mirror.sources import OnDataLoss, Options
from bridge.mirror.sources.rabbitmq.source import _RabbitMQReader
from bridge.mirror.sources.range_source import ReaderOptions
from tests.rabbitmq.rooms import Rooms, rooms

GUARD: Final = 60.0
LIMIT: Final = 1_000_000
Row = Mapping[str, Any]


def own(url: str, **options: object) -> str:
    """Return the URL of a backend with its own prefix, and so its own book."""
    told = {"prefix": f"t{uuid4().hex[:8]}."} | options
    return f"{url}?" + "&".join(f"{name}={value}" for name, value in told.items())


@asynccontextmanager
async def bridge_rooms(backend: str) -> AsyncIterator[Rooms]:
    """The part of a bridge that stores."""
    async with rooms(parse(backend)) as found:
        yield found


def store(backend: str, destination: str, *batches: Sequence[bytes]) -> None:
    """Store messages; without any, a destination is made and nothing is stored."""

    async def run() -> None:
        async with bridge_rooms(backend) as found:
            await found.destinations.partitions(destination)
            for bodies in batches:
                await found.send(destination, bodies)

    asyncio.run(run())


def wait_until_served(backend: str, destination: str) -> None:
    """Wait for a broker that has just come back: its queues come later than it."""
    begun = time.monotonic()
    while True:
        try:
            return store(backend, destination)
        except BackendUnavailable:
            assert time.monotonic() < begun + GUARD
            time.sleep(0.1)


def store_large(backend: str, destination: str, count: int) -> None:
    """Store messages that fill a log: 100 kB each, one after another."""
    store(backend, destination, *([b"%d " % number + b"x" * 100_000] for number in range(count)))


def join_late(backend: str, destination: str) -> None:
    """Let a group come: what the log holds is copied for it, with marks in the log."""

    async def run() -> None:
        async with bridge_rooms(backend) as found:
            await found.sources(destination, "late")

    asyncio.run(run())


def reader_of(backend: str, on_data_loss: OnDataLoss = "fail", rows: int = LIMIT) -> _RabbitMQReader:
    """Return what Spark would make, without Spark."""
    return _RabbitMQReader(ReaderOptions(Options(backend, "", on_data_loss=on_data_loss, rows=rows), {}, 2))


@contextmanager
def planning(backend: str, on_data_loss: OnDataLoss = "fail") -> Iterator[_RabbitMQReader]:
    """Plan for as long as the block goes."""
    found = reader_of(backend, on_data_loss)
    try:
        yield found
    finally:
        found.stop()


def plan(reader: _RabbitMQReader, start: Mapping[str, Any] | None = None, limit: int = LIMIT) -> dict[str, Any]:
    """Return the next offset."""
    return reader.latestOffset(dict(start or {}), ReadMaxRows(limit))


def read(reader: _RabbitMQReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Row]:
    """Read what lies between two offsets as the tasks do, each with its own reader."""
    rows: list[Row] = []
    for partition in reader.partitions(dict(start), dict(end)):
        for batch in _RabbitMQReader(reader._ask).read(partition):
            rows += batch.to_pylist()
    return rows
