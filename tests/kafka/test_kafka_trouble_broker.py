"""A broker that is not there yet, killed or frozen: right answers meanwhile, and recovery without a new bridge."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.conformance.conversation import Conversation, refused
from tests.kafka.trouble import with_both
from tests.trouble import accepted, back_to, held, probe, ready, taken

POSTS = 20


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka") as started:
        yield started


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


async def test_the_only_broker_is_killed(tmp_path: Path, kafka: Kafka) -> None:
    """Posts and pulls are under way when it dies, begin while it is away, and go on when it is back."""
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
        for (client, bridge, talk), answers, ack in zip(all_served, outcomes, acks, strict=True):
            assert set(answers.values()) <= {503, 504}, answers
            assert ack.status_code in {503, 504}, ack
            await accepted(talk, b"after")
            bodies = [await taken(talk, meanwhile={503})]
            while bodies[-1] != b"after":
                bodies.append(await taken(talk, meanwhile={503}))
            while (answer := await talk.get(waitmills=1000)).status_code == 200:
                bodies.append(answer.content)
            unsure = {body for body, status in answers.items() if status == 504}
            assert sorted(bodies) == sorted(set(bodies)), "one copy each"
            assert set(bodies) - unsure <= {b"after", b"leased"}, "what was answered 503 is not stored"
            await back_to(bridge, before[client])


async def test_the_only_broker_stands_still(tmp_path: Path, kafka: Kafka) -> None:
    """Connections live, and nobody answers."""
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
