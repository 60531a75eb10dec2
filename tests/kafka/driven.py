"""What the tests of the drivers share: both clients, a consumer's listener, and what a client leaves behind."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from adapters.kafka.admin import Admin
from adapters.kafka.consume.group_member import GroupMember
from adapters.kafka.mapping import Commit, Commits, Headers, Outgoing, Part, Record
from adapters.kafka.options import Client, Options
from adapters.kafka.produce.publisher import Producer, producer_of
from bridge.errors import BridgeError

STILL = 9.0
"""Seconds for which the event loop may stand still: a guard against calls that block, which last as long as a client's
own time limits, 10 s and more; not a measurement. 9,000 records sent at once took 0.5 s of a busy machine."""
SECONDS = 60.0


def outgoing(  # noqa: PLR0913, PLR0917 - the fields of a record
    topic: str,
    value: bytes | None = b"",
    partition: int = 0,
    key: bytes | None = None,
    headers: Headers = (),
    timestamp: int | None = None,
) -> Outgoing:
    """Return a record to be written, of now unless a time is given.

    A broker forgets a producer whose newest record is a day old, by the record's own time: after a kill it then takes a
    repetition for something new. Of 5 kills under load 2 doubled a batch of records of 2023, of 19 none of records of
    now; of 14 again 3, with a broker set to forget producers after a second.
    """
    when = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return Outgoing(topic, partition, when, key, value, headers)


@asynccontextmanager
async def producing(servers: str, client: Client, **options: object) -> AsyncIterator[Producer]:
    """Start a produce side, and close it at the end."""
    producer = producer_of(options_of(servers, client=client, **options))
    await producer.start()
    try:
        yield producer
    finally:
        await producer.close(10_000)


def options_of(servers: str, **options: object) -> Options:
    """Return the options of a driver."""
    return Options(tuple(servers.split(",")))._replace(**options)  # type: ignore[arg-type] # by name


class Listener(GroupMember):
    """Remembers everything, and commits the same for whatever is revoked."""

    def __init__(self, options: Options, topic: str, group: str | None = None) -> None:
        super().__init__(options, Admin(options), group or new_group(), [topic], {})
        self.held: dict[Part, Commit | None] = {}
        self.records: dict[Part, list[Record]] = {}
        self.parting: Commits = {}
        self.went: list[Part] = []
        self.losses: list[Part] = []
        self.troubles: list[BridgeError] = []

    def commit(self, commits: Commits) -> asyncio.Future[None]:
        return self._write(commits)

    async def close(self, commits: Commits) -> None:
        await self._disconnect(commits)

    def set_paused(self, parts: Collection[Part], *, paused: bool) -> None:
        self._set_paused(parts, paused=paused)

    def assigned(self, part: Part, committed: Commit | None) -> None:
        assert part not in self.held
        self.held[part] = committed
        self.records[part] = []

    def arrived(self, records: Sequence[Record]) -> None:
        for each in records:
            of_part = self.records[Part(each.topic, each.partition)]
            assert Part(each.topic, each.partition) in self.held
            assert not of_part or of_part[-1].offset < each.offset
            of_part.append(each)

    def revoked(self, parts: Collection[Part]) -> Commits:
        self.went += parts
        for part in parts:
            del self.held[part]
        return {part: commit for part, commit in self.parting.items() if part in parts}

    def lost(self, parts: Collection[Part]) -> None:
        self.losses += parts
        for part in parts:
            del self.held[part]

    def failed(self, error: BridgeError) -> None:
        self.troubles.append(error)

    def ended(self, error: BridgeError) -> None:
        raise AssertionError(error)

    def _release(self, parts: Collection[Part]) -> None:
        raise AssertionError(parts)

    @property
    def count(self) -> int:
        """Number of records of the partitions that were ever held, since they were last assigned."""
        return sum(map(len, self.records.values()))


@asynccontextmanager
async def consuming(servers: str, topic: str, group: str | None = None, **options: object) -> AsyncIterator[Listener]:
    """Join a group, and leave it at the end."""
    listener = Listener(options_of(servers, **options), topic, group)
    await listener.join()
    try:
        yield listener
    finally:
        await listener.close({})


async def topics_of(admin: Admin, prefix: str) -> list[str]:
    """Return every topic whose name has this prefix."""
    return await admin._do(lambda client: [each for each in client.list_topics() if each.startswith(prefix)], "topics")


def new_group() -> str:
    """Return a name that no group has."""
    return f"g-{uuid4().hex[:12]}"


@asynccontextmanager
async def lively() -> AsyncIterator[None]:
    """Fail if the event loop stood still meanwhile."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
    assert longest < STILL


@asynccontextmanager
async def leaving_nothing() -> AsyncIterator[None]:
    """Fail if threads or sockets of a client are still there some time afterwards."""
    threads, sockets = _threads(), _sockets()
    yield
    deadline = time.monotonic() + SECONDS
    while _threads() - threads or _sockets() - sockets:
        assert time.monotonic() < deadline, (_threads() - threads, _sockets() - sockets)
        await asyncio.sleep(0.02)


def _threads() -> set[str]:
    """Ids of the threads of the libraries and of the drivers, also of those unknown to Python."""
    of_the_loop = {str(each.native_id) for each in threading.enumerate() if each.name.startswith("asyncio")}
    return {each.name for each in Path("/proc/self/task").iterdir()} - of_the_loop


def _sockets() -> set[str]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(each.readlink()))
    return {name for name in found if name.startswith("socket:")}
