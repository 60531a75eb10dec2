"""A broker that is not there yet, killed, frozen or full: right answers meanwhile, and automatic recovery."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers.rabbitmq import RabbitMQ
from tests.conformance.conversation import Conversation, refused
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import PATIENCE, accepted, back_to, held, probe, ready, stored, taken, until

PRODUCERS, PAUSE = 8, 0.05
NO_MEMORY, SOME_MEMORY = "0.000001", "0.4"
"""Parts of the machine's memory from which on RabbitMQ accepts no messages: always, and as it comes."""


@pytest.fixture
def rabbit(stoppable_rabbitmq: RabbitMQ) -> RabbitMQ:
    return stoppable_rabbitmq


@pytest.mark.extended
async def test_a_bridge_starts_without_its_broker(tmp_path: Path, rabbit: RabbitMQ) -> None:
    await asyncio.to_thread(rabbit.stop)
    async with bridged(tmp_path, backend(rabbit.url)) as (bridge, talk):
        status, reason = probe(bridge, "/readyz")
        assert status == 503
        assert f"{rabbit.url.partition('@')[2].partition('/')[0]}: nothing listens there" in reason, reason
        assert probe(bridge, "/livez") == (200, "alive\n")
        for answer in await talk.post(b"too early"), await talk.get():
            refused(answer, 503, "backend-unavailable")
            assert answer.headers["x-oms-retry-safe"] == "true"
        await asyncio.to_thread(rabbit.start)
        await ready(bridge)
        await talk.produce(b"in time")
        assert (await talk.take()).body == b"in time"


@pytest.mark.extended
async def test_the_broker_is_killed_under_load(tmp_path: Path, rabbit: RabbitMQ) -> None:
    """Posts and pulls are under way when it is killed, begin while it is away, and go on when it is back."""
    settings = {"OMS_TIMEOUTS__PRODUCE": "4000"}
    async with bridged(tmp_path, backend(rabbit.url), **settings) as (bridge, talk):
        await talk.join()
        await talk.produce(b"leased")
        before, lease = held(bridge), await talk.take()
        load = Load(talk)
        working = [asyncio.create_task(load.produce(number)) for number in range(PRODUCERS)]
        await load.answered(200, 100)
        await asyncio.to_thread(rabbit.kill)
        await load.answered(503, 20)
        ack = await talk.settle("ack", lease.receipt)
        assert ack.status_code in {410, 503, 504}, ack
        assert probe(bridge, "/livez") == (200, "alive\n")
        assert (await talk.get(waitmills=100)).status_code in {204, 503}
        await asyncio.to_thread(rabbit.start)
        await load.answered(200, load.count(200) + 100)
        load.enough = True
        await asyncio.gather(*working)
        await accepted(talk, b"after")
        bodies = await _everything(talk, {*load.bodies(200), b"after", b"leased"})
        assert bodies >= {*load.bodies(200), b"after", b"leased"}, "what was answered 200 is stored"
        assert not bodies & load.bodies(503), "what was answered 503 is not"
        await back_to(bridge, before)


@pytest.mark.extended
@pytest.mark.parametrize("given_up", [False, True], ids=["a moment", "until it is given up"])
async def test_the_broker_stands_still(given_up: bool, tmp_path: Path, rabbit: RabbitMQ) -> None:
    """Connections stay open without answers: until heartbeats have been missed, and then there is none."""
    settings = {"OMS_TIMEOUTS__PRODUCE": "1000"}
    url = backend(rabbit.url, heartbeat=1000 if given_up else 60_000)
    async with bridged(tmp_path, url, **settings) as (bridge, talk):
        await talk.join()
        before = held(bridge)
        rabbit.pause()
        try:
            refused(await talk.post(b"unsure"), 504, "outcome-unknown")
            assert (await talk.get(waitmills=100)).status_code in {204, 503}
            assert probe(bridge, "/livez") == (200, "alive\n")
            unsure = 1
            async with asyncio.timeout(PATIENCE):
                while given_up and (answer := await talk.post(b"unsure %d" % unsure)).status_code != 503:
                    refused(answer, 504, "outcome-unknown")
                    unsure += 1
        finally:
            rabbit.resume()
        await accepted(talk, b"after")
        bodies = [await taken(talk, meanwhile={503})]
        while b"after" not in bodies:
            bodies.append(await taken(talk, meanwhile={503}))
        while (answer := await talk.get(waitmills=1000)).status_code == 200:
            await talk.ack(answer.headers["x-oms-receipt"])
            bodies.append(answer.content)
        assert len(bodies) == len(set(bodies)) <= unsure + 1, "one copy each, and none of what was answered 503"
        assert given_up or set(bodies) == {b"unsure", b"after"}
        await back_to(bridge, before)


@pytest.mark.extended
async def test_the_broker_has_no_memory_left(tmp_path: Path, rabbit: RabbitMQ) -> None:
    """It takes nothing and says so: produces are 503, consumers go on; what was under way is stored or is not."""
    settings = {"OMS_TIMEOUTS__PRODUCE": "1000"}
    async with bridged(tmp_path, backend(rabbit.url), **settings) as (bridge, talk):
        await talk.join()
        for number in range(4):
            await talk.produce(b"before %d" % number)
        before = held(bridge)
        answers: dict[bytes, int] = {}
        await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", NO_MEMORY)
        try:
            # RabbitMQ stops reading when the next message has come, and what came after that one lies there.
            async with asyncio.timeout(PATIENCE):
                while 503 not in answers.values():
                    body = b"under way %d" % len(answers)
                    answer = await talk.post(body)
                    answers[body] = answer.status_code
                    assert answer.status_code in {200, 503, 504}, answer.text
            answer = await talk.post(b"refused")
            assert "memory" in refused(answer, 503, "backend-unavailable").lower()
            assert answer.headers["x-oms-retry-safe"] == "true"
            assert probe(bridge, "/readyz")[0] == 200, "consumers need it"
            seen = {await taken(talk, meanwhile=set()) for _ in range(4)}
            assert seen == {b"before %d" % number for number in range(4)}
        finally:
            await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", SOME_MEMORY)
        await stored(talk, b"after")
        expected = {body for body, status in answers.items() if status == 200} | {b"after"}
        bodies = await _everything(talk, expected)
        assert expected <= bodies
        assert bodies - expected <= {body for body, status in answers.items() if status == 504}
        await back_to(bridge, before)


class Load:
    """Producers that send one message after another, whatever the answers."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._answers: dict[bytes, int] = {}
        self.enough = False

    async def produce(self, number: int) -> None:
        """Send until there is enough."""
        for at in range(1_000_000):
            if self.enough:
                return
            body = b"%d of %d" % (at, number)
            answer = await self._talk.post(body, messagekey=number)
            assert answer.status_code in {200, 503, 504}, answer.text
            assert (answer.status_code == 503) == (answer.headers.get("x-oms-retry-safe") == "true"), answer.headers
            self._answers[body] = answer.status_code
            await asyncio.sleep(PAUSE)

    async def answered(self, status: int, times: int) -> None:
        """Wait until so many have been answered so."""
        await until(lambda: self.count(status) >= times, lambda: Counter(self._answers.values()))

    def count(self, status: int) -> int:
        """How many have been answered so."""
        return list(self._answers.values()).count(status)

    def bodies(self, status: int) -> set[bytes]:
        """Which have been answered so."""
        return {body for body, told in self._answers.items() if told == status}


async def _everything(talk: Conversation, expected: set[bytes]) -> set[bytes]:
    """Take until all of it has come, and then until nothing more comes; one copy of each."""
    bodies: list[bytes] = []
    while not expected <= set(bodies):
        bodies.append(await taken(talk, meanwhile={503}))
    while (answer := await talk.get(waitmills=1000)).status_code == 200:
        await talk.ack(answer.headers["x-oms-receipt"])
        bodies.append(answer.content)
    assert len(bodies) == len(set(bodies)), f"more than one copy: {Counter(bodies).most_common(3)}"
    return set(bodies)
