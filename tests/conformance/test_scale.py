"""Several bridges in front of one backend, all serving one group."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import httpx
import pytest
import pytest_asyncio

from .conversation import PATIENCE, Conversation, Taken, connection

if TYPE_CHECKING:
    from tests.launch import Bridge

pytestmark = pytest.mark.needs("sharedGroups")

SETTLED: Final = {204, 504, None}
"""Answers to an acknowledgement after which a message may never come again: done, or unknown."""
TIMEOUT: Final = 60.0
"""Seconds in which the bridges must have shared out what there is. A guard: a test ends when they have."""
PARTITIONS: Final = 8


class Ledger:
    """What was delivered and acknowledged, by which consumer; each body is `key number`."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[int, Taken]] = []
        self.answers: dict[bytes, list[int | None]] = defaultdict(list)
        """What the bridges said to the acknowledgements of a message. None: the connection broke."""
        self._order: dict[bytes, int] = defaultdict(int)

    def delivered(self, replica: int, taken: Taken) -> None:
        """Note a delivery. What was acknowledged does not come back, and no message overtakes one of its key."""
        assert 204 not in self.answers[taken.body], f"{taken.body!r} was acknowledged and came back"
        key, _, number = taken.body.partition(b" ")
        assert int(number) >= self._order[key], f"{taken.body!r} after {self._order[key]}"
        self._order[key] = int(number)
        self.deliveries.append((replica, taken))

    def open(self, bodies: Iterable[bytes]) -> list[bytes]:
        """Return those that have to come, or to come again."""
        return [body for body in bodies if SETTLED.isdisjoint(self.answers[body])]

    def holders(self, bodies: Iterable[bytes]) -> dict[int, set[str]]:
        """Return who was given which partitions, of these messages."""
        found: dict[int, set[str]] = defaultdict(set)
        for replica, taken in self.deliveries:
            if taken.body in bodies:
                found[replica].add(taken.headers["x-oms-h-partition"])
        return dict(found)


class Replicas:
    """Bridges of one group on one backend, each with a consumer beside it that acknowledges what it gets."""

    def __init__(self, launch: Callable[..., "Bridge"], stack: AsyncExitStack) -> None:
        self.ledger = Ledger()
        self._launch = launch
        self._stack = stack
        self._names: Conversation | None = None
        self._bridges: dict[int, Bridge] = {}
        self._consuming: dict[int, asyncio.Task[None]] = {}

    async def add(self) -> Conversation:
        """Start one more bridge, and return a conversation with it."""
        number = len(self._bridges)
        # an idle connection may hold the end of a bridge up, by default for 20 s
        self._bridges[number] = await asyncio.to_thread(self._launch, number, OMS_DRAIN="3000")
        return await self.talk(number)

    async def talk(self, number: int) -> Conversation:
        """Return another conversation with a bridge, about the same destination and group."""
        talk = Conversation(await self._stack.enter_async_context(connection(self._bridges[number].url)))
        if self._names is None:
            self._names = talk
        talk.destination, talk.group = self._names.destination, self._names.group
        return talk

    async def consume(self, number: int) -> None:
        """Begin to take and acknowledge messages, until the bridge ends."""
        self._consuming[number] = asyncio.create_task(self._consume(number, await self.talk(number)))

    async def end(self, number: int, how: str) -> None:
        """Let a bridge end: `terminate` or `kill`."""
        await asyncio.to_thread(getattr(self._bridges[number], how))
        if number in self._consuming:
            await self._consuming.pop(number)

    async def all_done(self, bodies: Iterable[bytes]) -> None:
        """Wait until each message has come, and is acknowledged as far as the replies say."""
        await self.until(lambda: not self.ledger.open(bodies), lambda: f"open: {self.ledger.open(bodies)[:50]}")

    async def until(self, condition: Callable[[], object], state: Callable[[], str] = str) -> None:
        """Wait for something, and for whatever a consumer finds wrong meanwhile."""
        begun = time.monotonic()
        while not condition():
            for task in self._consuming.values():
                if task.done():
                    task.result()
            assert time.monotonic() < begun + TIMEOUT, state()
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        """Consume no more."""
        for task in self._consuming.values():
            task.cancel()

    async def _consume(self, number: int, talk: Conversation) -> None:
        while True:
            try:
                answer = await talk.get(waitmills=PATIENCE)
                if answer.status_code == 200:
                    await self._acknowledge(number, talk, Taken(answer.content, answer.headers))
            except httpx.HTTPError:
                return
            if answer.status_code >= 400:
                await asyncio.sleep(0.2)  # its backend is busy, or it is stopping: then the connection ends

    async def _acknowledge(self, number: int, talk: Conversation, taken: Taken) -> None:
        self.ledger.delivered(number, taken)
        answers = self.ledger.answers[taken.body]
        try:
            answers.append((await talk.settle("ack", taken.receipt)).status_code)
        except httpx.HTTPError:
            answers.append(None)
            raise
        assert answers[-1] in {204, 410, 503, 504}, answers


@pytest_asyncio.fixture
async def replicas(launch: Callable[..., "Bridge"]) -> AsyncIterator[Replicas]:
    """Start a first bridge, of a backend that several can share."""
    async with AsyncExitStack() as stack:
        replicas = Replicas(launch, stack)
        talk = await replicas.add()
        if not (await talk.http.get("/v1/capabilities")).json()["sharedGroups"]:
            pytest.skip("the bridge declares that its backend is its own")
        yield replicas
        replicas.stop()


@pytest.mark.slow_on_brokers
async def test_every_replica_gets_a_fair_share(replicas: Replicas) -> None:
    """
    > Every replica gets a fair share of the partitions, also on RabbitMQ (a bridge that holds more than its
    > share gives some up), and none stays idle while another drowns.
    """
    talk = await replicas.talk(0)
    await replicas.consume(0)
    for number in (1, 2):
        await replicas.add()
        await replicas.consume(number)

    shares: list[int] = []
    for number in range(1000):
        bodies = [b"%d %d" % (partition, number) for partition in range(PARTITIONS)]
        for partition, body in enumerate(bodies):
            await talk.produce(body, partition=partition)
        await replicas.all_done(bodies)
        shares = sorted(len(held) for held in replicas.ledger.holders(bodies).values())
        if shares == [2, 3, 3]:
            break
        await asyncio.sleep(0.2)
    assert shares == [2, 3, 3]


@pytest.mark.slow_on_brokers
@pytest.mark.parametrize("how", ["terminate", "kill"])
async def test_nothing_is_lost_doubled_or_overtaken_while_bridges_come_and_go(replicas: Replicas, how: str) -> None:
    """
    > - **Scale-out**: ten replicas of an application, each with its own bridge beside it, are one group.

    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while
    > others are in flight,
    """
    bodies: list[bytes] = []
    await replicas.consume(0)
    await replicas.add()
    talk = await replicas.talk(1)

    async def produce_while(going_on: asyncio.Task[None]) -> None:
        number = len(bodies)
        while not going_on.done() or len(bodies) < number + 200:
            key, count = b"key%d" % (len(bodies) % 12), len(bodies) // 12
            bodies.append(b"%s %d" % (key, count))
            await talk.produce(bodies[-1], messagekey=key.decode())
        going_on.result()

    async def second_joins() -> None:
        await replicas.consume(1)
        await replicas.until(lambda: any(replica == 1 for replica, _ in replicas.ledger.deliveries))

    async def first_ends() -> None:
        await replicas.end(0, how)

    await produce_while(asyncio.create_task(second_joins()))
    await produce_while(asyncio.create_task(first_ends()))
    await replicas.all_done(bodies)
    delivered = [taken.body for _, taken in replicas.ledger.deliveries]
    again = len(delivered) - len(bodies)
    assert set(delivered) == set(bodies)
    unacknowledged = sum(status != 204 for answers in replicas.ledger.answers.values() for status in answers)
    # beside those, what was on its way to a consumer whose bridge was killed before it had it
    assert again <= unacknowledged + 1


@pytest.mark.slow_on_brokers
async def test_a_lease_ends_with_the_move_of_its_partition_and_was_no_failure(replicas: Replicas) -> None:
    """
    > Every replica gets a fair share of the partitions, also on RabbitMQ (a bridge that holds more than its
    > share gives some up), and none stays idle while another drowns.

    > a receipt whose lease ended is `410`, and the message may be delivered again.
    """
    talk = await replicas.talk(0)
    for partition in range(PARTITIONS):
        await talk.produce(b"%d" % partition, partition=partition)
    held = [await talk.take(leasemills=900_000) for _ in range(PARTITIONS)]
    other = await replicas.add()
    moved = [await other.take(leasemills=900_000)]
    async with asyncio.timeout(TIMEOUT):
        while len(moved) < PARTITIONS // 2:
            moved.append(await other.take(leasemills=900_000))
    assert [taken.count for taken in moved] == [1] * len(moved), "it was not the consumer that gave them back"
    bodies = {taken.body for taken in moved}
    for taken in held:
        answer = await talk.settle("ack", taken.receipt)
        assert answer.status_code == (410 if taken.body in bodies else 204), answer.text
    for taken in moved:
        await other.ack(taken.receipt)
    await talk.nothing()
    await other.nothing()


@pytest.mark.parametrize(("how", "count"), [pytest.param("terminate", 1, marks=pytest.mark.extended), ("kill", 2)])
async def test_another_bridge_takes_over_what_was_not_acknowledged(replicas: Replicas, how: str, count: int) -> None:
    """
    > or the death of the bridge makes the message ready again

    > → leases released without counting as a failure
    """
    talk = await replicas.talk(0)
    for partition in range(PARTITIONS):
        await talk.produce(b"%d" % partition, partition=partition)
    held = [await talk.take(leasemills=900_000) for _ in range(PARTITIONS)]
    for taken in held[:3]:
        await talk.ack(taken.receipt)
    await asyncio.sleep(1)  # a delivery is recorded soon after it, not before it
    await replicas.end(0, how)
    other = await replicas.add()
    rest = await other.take_all(PARTITIONS - 3)
    assert {taken.body for taken in rest} == {taken.body for taken in held[3:]}
    assert {taken.count for taken in rest} == {count}
    await other.nothing()
