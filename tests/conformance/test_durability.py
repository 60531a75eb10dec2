"""What survives the death of a bridge."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from .conversation import Conversation, connection, now

if TYPE_CHECKING:
    from tests.launch import Bridge

pytestmark = pytest.mark.needs("durable")


class Mortal:
    """A bridge that is killed and started again on what it has written, and a conversation that goes on."""

    def __init__(self, launch: Callable[..., "Bridge"]) -> None:
        self._launch = partial(launch, OMS_DRAIN="3000")  # else an idle connection may hold its end up for 20 s
        self.bridge = self._launch()
        self.talk = Conversation(connection(self.bridge.url))

    async def die(self, meanwhile: asyncio.Task[None] | None = None) -> None:
        """Kill it as `kill -9` does, wait for who was talking to it, and start the next one."""
        await asyncio.to_thread(self.bridge.kill)
        if meanwhile is not None:
            await meanwhile
        await self._next()

    async def stop(self) -> None:
        """Stop it politely, and start the next one."""
        assert await asyncio.to_thread(self.bridge.terminate) == 0
        await self._next()

    async def _next(self) -> None:
        await self.talk.http.aclose()
        self.bridge = await asyncio.to_thread(self._launch)
        self.talk.http = connection(self.bridge.url)


@pytest_asyncio.fixture
async def mortal(launch: Callable[..., "Bridge"]) -> AsyncIterator[Mortal]:
    """Start a durable bridge."""
    mortal = Mortal(launch)
    if not (await mortal.talk.http.get("/v1/capabilities")).json()["durable"]:
        await mortal.talk.http.aclose()
        pytest.skip("nothing survives the end of this bridge")
    yield mortal
    await mortal.talk.http.aclose()


@pytest.mark.slow_on_brokers
async def test_kill_loses_nothing_that_was_answered(mortal: Mortal) -> None:
    """
    > SIGKILL loses nothing that was answered 200.

    > | durability | 0 or 1 (1 = persisted before the 200) | client, default 1 | 400 |
    """
    talk = mortal.talk
    answered: list[bytes] = []
    some = asyncio.Event()

    async def produce_until_killed() -> None:
        for number in range(100_000):
            body = b"%d" % number + b"x" * 500
            try:
                answer = await talk.post(body)
            except Exception:  # noqa: BLE001 - whatever httpx says when the peer is killed
                return
            if answer.status_code == 200:
                answered.append(body)
            if len(answered) > 10:
                some.set()

    producing = asyncio.create_task(produce_until_killed())
    await asyncio.wait_for(some.wait(), 60)
    await asyncio.sleep(0.3)
    await mortal.die(meanwhile=producing)
    kept = []
    while (answer := await talk.get(waitmills=300)).status_code == 200:
        kept.append(answer.content)
        await talk.ack(answer.headers["x-oms-receipt"])
    assert set(answered) <= set(kept)
    assert len(kept) <= len(answered) + 1, "at most the message whose answer the kill cut off"


@pytest.mark.slow_on_brokers
async def test_what_was_acknowledged_does_not_come_back(mortal: Mortal) -> None:
    """
    > SIGKILL loses nothing that was answered 200.

    > Ack ends it;
    """
    talk = mortal.talk
    for number in range(6):
        await talk.produce(b"%d" % number, messagekey="one lane" if number % 2 else f"key {number}")
    settled = {t.body for t in await talk.take_all(3)}
    await mortal.die()
    assert {t.body for t in await talk.take_all(3)} == {b"%d" % number for number in range(6)} - settled
    await talk.nothing()


@pytest.mark.slow_on_brokers
async def test_the_death_of_the_bridge_makes_a_leased_message_ready_again(mortal: Mortal) -> None:
    """
    > or the death of the bridge makes the message ready again

    > a receipt whose lease ended is `410`, and the message may be delivered again.
    """
    talk = mortal.talk
    await talk.produce(b"leased")
    taken = await talk.take(leasemills=900_000)
    await asyncio.sleep(1)  # a delivery is recorded soon after it, not before it
    await mortal.die()
    assert (await talk.settle("ack", taken.receipt)).status_code == 410
    again = await talk.take()
    assert (again.body, again.count) == (b"leased", 2)


@pytest.mark.slow_on_brokers
async def test_a_delayed_message_survives_the_death_of_the_bridge(mortal: Mortal) -> None:
    """
    > survives a restart of the bridge

    > Never delivered early;
    """
    talk = mortal.talk
    born = now()
    await talk.produce(b"later", borntimestamp=born, delaytime=4_000)
    await mortal.die()
    assert (await talk.take()).body == b"later"
    assert now() >= born + 4_000


@pytest.mark.slow_on_brokers
async def test_everything_survives_a_polite_restart(mortal: Mortal) -> None:
    """
    > survives a restart of the bridge

    > → producer flushed → exit 0, inside the grace period.
    """
    talk = mortal.talk
    pairs = [("x-oms-p-%4frder%49d", "7"), ("x-oms-p-city*", "UTF-8''Z%C3%BCrich"), ("content-type", "text/x")]
    await talk.produce(bytes(range(256)), pairs, messagekey="k", priority=7, correlationid="c")
    before = await talk.take()
    await talk.nack(before.receipt)
    await mortal.stop()
    after = await talk.take()
    assert (after.body, after.count) == (before.body, 2)
    changing = ("x-oms-receipt", "x-oms-leaseuntil", "x-oms-h-deliverycount", "date", "server")
    first, second = ({n: v for n, v in t.headers.items() if n not in changing} for t in (before, after))
    assert first == second


@pytest.mark.slow_on_brokers
async def test_order_and_groups_survive_the_death_of_the_bridge(mortal: Mortal) -> None:
    """
    > SIGKILL loses nothing that was answered 200.

    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    talk = mortal.talk
    for number in range(5):
        await talk.produce(b"%d" % number, messagekey="k")
    await talk.take_all(2)
    await mortal.die()
    assert [t.body for t in await talk.take_all(3)] == [b"2", b"3", b"4"]
    assert [t.body for t in await talk.take_all(5, consumerid="late")] == [b"0", b"1", b"2", b"3", b"4"]
