"""A broker that is not there yet, killed or frozen: right answers meanwhile, and recovery without a new bridge."""

import asyncio
import itertools
import signal
from pathlib import Path

import pytest

from tests.brokers.kafka import Kafka
from tests.conformance.conversation import Conversation, refused
from tests.kafka.trouble import with_both
from tests.trouble import PATIENCE, accepted, back_to, held, probe, ready, taken

POSTS = 20


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@pytest.mark.extended
async def test_a_bridge_starts_without_its_broker(tmp_path: Path, kafka: Kafka) -> None:
    kafka.stop()
    async with with_both(tmp_path, kafka.bootstrap, {}) as all_served:
        for _, bridge, talk in all_served:
            status, reason = probe(bridge, "/readyz")
            assert status == 503
            assert kafka.bootstrap in reason, reason
            assert "refused" in reason.lower(), reason
            assert probe(bridge, "/livez") == (200, "alive\n")
            for answer in await talk.post(b"too early"), await talk.get():
                refused(answer, 503, "backend-unavailable")
                assert answer.headers["x-oms-retry-safe"] == "true"
        await asyncio.to_thread(kafka.start)
        for _, bridge, talk in all_served:
            await ready(bridge)
            await talk.produce(b"in time")
            assert (await talk.take()).body == b"in time"


@pytest.mark.extended
async def test_the_only_broker_is_killed(tmp_path: Path, kafka: Kafka) -> None:
    """Posts and pulls are under way when it is killed, begin while it is away, and go on when it is back."""
    async with with_both(tmp_path, kafka.bootstrap, {}, OMS_TIMEOUTS__PRODUCE="4000") as all_served:
        before = {}
        for client, bridge, talk in all_served:
            await talk.join()
            await talk.produce(b"leased")
            before[client] = held(bridge)
        leases = [await talk.take() for _, _, talk in all_served]
        await asyncio.to_thread(kafka.kill)
        outcomes = await asyncio.gather(*(_posts(talk) for _, _, talk in all_served))
        acks = [await talk.settle("ack", one.receipt) for (_, _, talk), one in zip(all_served, leases, strict=True)]
        for _, bridge, talk in all_served:
            assert probe(bridge, "/livez") == (200, "alive\n")
            assert (await talk.get(waitmills=100)).status_code in {204, 503}
        await asyncio.to_thread(kafka.start)
        for (client, bridge, talk), answers, ack, lease in zip(all_served, outcomes, acks, leases, strict=True):
            assert set(answers.values()) <= {503, 504}, answers
            assert ack.status_code in {503, 504}, ack
            unsure = {body for body, status in answers.items() if status == 504}
            last = await _stored_at_last(talk, unsure)
            expected = {last}
            if await _settled(talk, lease.receipt) == 410:  # the partition went with the membership
                (expected if ack.status_code == 503 else unsure).add(b"leased")
            bodies: list[bytes] = []
            async with asyncio.timeout(PATIENCE):
                while not expected <= set(bodies):
                    bodies.append(await taken(talk, meanwhile={503}))
            while (answer := await talk.get(waitmills=1000)).status_code == 200:
                bodies.append(answer.content)
            assert len(bodies) == len(set(bodies)), "one copy each"
            # what was answered 503 is not stored, and what is acknowledged does not come again
            assert expected <= set(bodies) <= expected | unsure
            await back_to(bridge, before[client])


@pytest.mark.extended
async def test_the_only_broker_stands_still(tmp_path: Path, kafka: Kafka) -> None:
    """Connections stay open without answers."""
    async with with_both(tmp_path, kafka.bootstrap, {}, OMS_TIMEOUTS__PRODUCE="1000") as all_served:
        before = {}
        for client, bridge, talk in all_served:
            await talk.join()
            before[client] = held(bridge)
        kafka.nodes[0].send(signal.SIGSTOP)
        try:
            for _, bridge, talk in all_served:
                refused(await talk.post(b"unsure"), 504, "outcome-unknown")
                assert (await talk.get(waitmills=100)).status_code == 204
                assert probe(bridge, "/livez") == (200, "alive\n")
        finally:
            kafka.nodes[0].send(signal.SIGCONT)
        for client, bridge, talk in all_served:
            await accepted(talk, b"after")
            assert {await taken(talk, meanwhile={503}), await taken(talk, meanwhile={503})} == {b"unsure", b"after"}
            await talk.nothing()
            await back_to(bridge, before[client])


async def _posts(talk: Conversation) -> dict[bytes, int]:
    bodies = [b"%d" % number for number in range(POSTS)]
    answers = await asyncio.gather(*(talk.post(body) for body in bodies))
    for answer in answers:
        assert (answer.status_code == 503) == (answer.headers.get("x-oms-retry-safe") == "true"), answer.headers
    return {body: answer.status_code for body, answer in zip(bodies, answers, strict=True)}


async def _stored_at_last(talk: Conversation, unsure: set[bytes]) -> bytes:
    """Send one message after another until one is stored, and return it; those that may be stored join `unsure`."""
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            body = b"after %d" % number
            status = (await talk.post(body)).status_code
            if status == 200:
                return body
            assert status in {503, 504}, status
            if status == 504:
                unsure.add(body)
            await asyncio.sleep(0.1)
    raise AssertionError


async def _settled(talk: Conversation, receipt: str) -> int:
    """Acknowledge until that is answered for good, and return how: 204, or 410 if the lease is over."""
    async with asyncio.timeout(PATIENCE):
        while (status := (await talk.settle("ack", receipt)).status_code) not in {204, 410}:
            assert status in {503, 504}, status
            await asyncio.sleep(0.1)
    return status
