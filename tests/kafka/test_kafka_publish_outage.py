"""The produce side while brokers are killed, frozen or too few: the loop goes on, and every answer is true."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from adapters.base import Stored
from adapters.kafka import topics
from adapters.kafka.admin import Admin
from adapters.kafka.mapping import Commit, Outgoing, Part
from adapters.kafka.options import Options
from adapters.kafka.produce import batch_sender, kafka_python_producer
from adapters.kafka.produce import publisher as publishing
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable, NotStored, OutcomeUnknown
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.kafka.clients import consume, new_topic
from tests.kafka.driven import STILL, topics_of

pytestmark = pytest.mark.extended

Result = Stored | BaseException


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_python_producer, "REQUEST_TIMEOUT", 700)
    monkeypatch.setattr(batch_sender, "UNSENT_TIMEOUT", 1500)
    monkeypatch.setattr(batch_sender, "DELIVERY_TIMEOUT", 4000)


async def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    async with _publisher(kafka) as publisher:
        sent = [publisher.send(_record(topic, b"%d" % each)) for each in range(1000)]
        await sent[0]
        killed = asyncio.create_task(asyncio.to_thread(kafka.kill))
        while not killed.done():  # under load
            sent.append(publisher.send(_record(topic, b"%d" % len(sent))))
            await asyncio.sleep(0.001)
        await asyncio.to_thread(kafka.start)
        results = await asyncio.gather(*sent)
    assert results == [Stored(0, each) for each in range(len(sent))]
    assert consume(kafka.bootstrap, topic, len(sent)) == [b"%d" % each for each in range(len(sent))]


@pytest.mark.usefixtures("_hasty")
async def test_a_broker_that_falls_silent(kafka: Kafka) -> None:
    """What it may have is unknown, what was never sent is not stored, and afterwards both can be seen to be true."""
    topic, other = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    async with _publisher(kafka) as publisher:
        for each in (topic, other):
            await publisher.send(_record(each, b"before"))
        kafka.nodes[0].send(signal.SIGSTOP)
        try:
            first = publisher.send(_record(topic, b"sent"))
            await asyncio.sleep(0.3)  # on its way now
            second = publisher.send(_record(topic, b"waiting"))
            early, late = await _results([second]), await _results([first])
        finally:
            kafka.nodes[0].send(signal.SIGCONT)
        assert [type(each) for each in early] == [BackendUnavailable]
        assert [type(each) for each in late] == [OutcomeUnknown]
        await _stored(publisher, topic, b"after")
        assert isinstance(await publisher.send(_record(other, b"after")), Stored)
    seen = Counter(consume(kafka.bootstrap, topic, 3))
    assert seen[b"waiting"] == 0
    assert seen[b"sent"] <= 1
    assert seen[b"before"] == seen[b"after"] == 1


@pytest.mark.usefixtures("_hasty")
async def test_an_outage_longer_than_every_patience_is_survived(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says once that nothing is stored, and once that it is again."""
    monkeypatch.setattr(publishing, "_WELL_AFTER", 0.5)
    topics_ = [new_topic(kafka.bootstrap) for _ in range(3)]
    async with _publisher(kafka) as publisher:
        await asyncio.gather(*(publisher.send(_record(topic, b"0")) for topic in topics_))
        sent = [publisher.send(_record(topic, b"1")) for topic in topics_]
        kafka.kill()
        sent += [publisher.send(_record(topic, b"2")) for topic in topics_]
        for result in await _results(sent):
            assert isinstance(result, (Stored, NotStored, OutcomeUnknown))
        sent = [publisher.send(_record(topic, b"3")) for topic in topics_]
        assert {type(result) for result in await _results(sent)} == {BackendUnavailable}
        await asyncio.to_thread(kafka.start)
        for topic in topics_:
            await _stored(publisher, topic, b"4")
        async with asyncio.timeout(60):
            while not _said(caplog, "Kafka stores messages again"):
                await asyncio.sleep(0.1)
                await publisher.send(_record(topics_[0], b"5"))
    assert [_said(caplog, text) for text in ("does not store messages now", "stores messages again")] == [1, 1]
    for topic in topics_:
        bodies = Counter(consume(kafka.bootstrap, topic, 2))
        assert bodies[b"0"] == bodies[b"4"] == 1
        assert bodies[b"3"] == 0


async def test_the_loop_goes_on_without_a_broker(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python's own `send` would stop it for a minute: for an unknown topic."""
    monkeypatch.setattr(topics, "METADATA_AGE", 0)
    known = new_topic(kafka.bootstrap)
    async with _all(kafka) as (publisher, catalogue, _):
        await catalogue.partitions(known)
        await publisher.send(_record(known, b"before"))
        kafka.kill()
        try:
            watch = asyncio.create_task(_longest_stop())
            sent = [publisher.send(_record(each, b"x")) for each in (known, "unheard-of")]
            assert await catalogue.partitions(known) == 1
            with pytest.raises(BackendUnavailable):
                await catalogue.partitions("unheard-of")
            await asyncio.sleep(1)
            assert await catalogue.partitions(known) == 1
            watch.cancel()
            assert await watch < STILL
        finally:
            await asyncio.to_thread(kafka.start)
        assert isinstance(await sent[0], Stored)
        for future in sent:
            future.cancel()


async def test_closing_without_a_broker_tells_what_became_of_each(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    publisher = Publisher(Options((kafka.bootstrap,), client="kafka-python"))
    await publisher.start()
    await publisher.send(_record(topic, b"before"))
    kafka.kill()
    try:
        sent = [publisher.send(_record(topic, b"x")) for _ in range(3)]
        await publisher.close(100)
        assert all(isinstance(result, (NotStored, OutcomeUnknown)) for result in await _results(sent))
        await publisher.close()
    finally:
        await asyncio.to_thread(kafka.start)


async def test_the_admin_connects_again(kafka: Kafka) -> None:
    async with _all(kafka) as (_, catalogue, admin):
        assert await catalogue.partitions("before-the-outage") == 8
        await asyncio.to_thread(kafka.kill)
        with pytest.raises(BackendUnavailable):
            await topics_of(admin, "before")
        await asyncio.to_thread(kafka.start)
        assert await topics_of(admin, "before") == ["before-the-outage"]
        part = Part("before-the-outage", 0)
        await admin.set_group_offsets("after-the-outage", {part: Commit(0, "note")})
        assert await admin.group_offsets("after-the-outage") == {part: Commit(0, "note")}


async def test_too_few_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a broker gone that `min.insync.replicas` needs, nothing is stored."""
    monkeypatch.setattr(batch_sender, "UNSENT_TIMEOUT", 2000)
    monkeypatch.setattr(batch_sender, "DELIVERY_TIMEOUT", 4000)
    with own_kafka(tmp_path / "kafka", nodes=3) as cluster:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
            configs = {"min.insync.replicas": "3"}
            admin.create_topics(
                {"all": {"num_partitions": 1, "replication_factor": 3, "configs": configs}}, wait_for_metadata=True
            )
        async with _publisher(cluster) as publisher:
            assert await publisher.send(_record("all", b"three")) == Stored(0, 0)
            await asyncio.to_thread(cluster.nodes[2].kill)
            result: Result | None = None
            async with asyncio.timeout(60):
                while not isinstance(result, BackendUnavailable):  # unknown, until the cluster has noticed
                    [result] = await _results([publisher.send(_record("all", b"two"))])
            refused = await _results([publisher.send(_record("all", b"refused"))])
            assert [type(each) for each in refused] == [BackendUnavailable]
            await asyncio.to_thread(cluster.nodes[2].start)
            await _stored(publisher, "all", b"last")
        bodies = _until_last(cluster.bootstrap)
    assert b"refused" not in bodies


def _until_last(servers: str) -> Sequence[bytes]:
    number = 1
    while (bodies := consume(servers, "all", number))[-1] != b"last":
        number += 1
    return bodies


async def _longest_stop() -> float:
    """Until cancelled, how long the loop was not there for others, in seconds."""
    longest, last = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest


async def _stored(publisher: Publisher, topic: str, body: bytes) -> None:
    """Send a record until it is stored."""
    async with asyncio.timeout(60):
        while not isinstance((await _results([publisher.send(_record(topic, body))]))[0], Stored):
            pass


async def _results(sent: Sequence["asyncio.Future[Stored]"]) -> list[Result]:
    return list(await asyncio.gather(*sent, return_exceptions=True))


@asynccontextmanager
async def _publisher(kafka: Kafka) -> AsyncIterator[Publisher]:
    async with _all(kafka) as (publisher, _, _):
        yield publisher


@asynccontextmanager
async def _all(kafka: Kafka) -> AsyncIterator[tuple[Publisher, Topics, Admin]]:
    options = Options(tuple(kafka.bootstrap.split(",")), client="kafka-python")
    publisher, admin = Publisher(options), Admin(options)
    await publisher.start()
    catalogue = Topics(options, admin, publisher)
    try:
        yield publisher, catalogue, admin
    finally:
        await catalogue.close()
        await publisher.close()
        await admin.close()


def _said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """Return how many lines of the bridge's own have the text."""
    return sum(text in record.getMessage() for record in caplog.records if record.name == "bridge.kafka")


def _record(topic: str, body: bytes) -> Outgoing:
    return Outgoing(topic, 0, time.time_ns() // 1_000_000, None, body, [])
