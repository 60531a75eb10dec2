"""The bridge's own notes in a real Kafka: what was kept is there after a restart."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from adapters.kafka.admin import Admin
from adapters.kafka.options import Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, MetadataTopic, Topics
from bridge.errors import BackendUnavailable
from tests.http.callback_endpoint import Endpoint, listed, produce, register, wait_until
from tests.kafka.bridged import backend
from tests.kafka.each_client import EACH_CLIENT, EACH_CLIENT_FIXTURE
from tests.launch import Bridge


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[MetadataTopic]:
    """Notes of a bridge that has just started, with what they stand on."""
    admin, publisher = Admin(options), Publisher(options)
    topics = Topics(options, admin, publisher)
    try:
        await publisher.start()
        notes = MetadataTopic(Cluster(options, admin, topics, publisher))
        with pytest.raises(BackendUnavailable):
            notes.all()
        with pytest.raises(BackendUnavailable):
            await notes.put("early", "1")
        await notes.start()
        yield notes
    finally:
        await topics.close()
        await publisher.close()
        await admin.close()


@pytest.fixture(params=EACH_CLIENT_FIXTURE)
def options(request: pytest.FixtureRequest, kafka_servers: str) -> Options:
    return Options((kafka_servers,), prefix=f"t{uuid4().hex[:8]}.", client=request.param)


def topics_of(options: Options) -> list[str]:
    with closing(KafkaAdminClient(bootstrap_servers=list(options.servers))) as admin:
        return [topic for topic in admin.list_topics() if topic.startswith(options.prefix)]


async def test_notes_survive(options: Options) -> None:
    expected = {"a": "2", "b/c": "z\u00fcrich \ud800 '\"", "c": ""}
    async with opened(options) as notes:
        for key, value in {"a": "1", "b/c": "z\u00fcrich \ud800 '\"", "c": "", "d": "4"}.items():
            await notes.put(key, value)
        await notes.put("a", "2")
        await notes.put("d", None)
        assert notes.all() == expected
    async with opened(options) as notes:
        assert notes.all() == expected
        await notes.put("a", None)
        await notes.put("never", None)
        del expected["a"]
    async with opened(options) as notes:
        assert notes.all() == expected


async def test_the_last_of_many_at_once_counts(options: Options) -> None:
    values = [None, *(f"{n}" for n in range(200)), None, "last"]
    async with opened(options) as notes:
        await asyncio.gather(*(notes.put("k", value) for value in values))
        assert notes.all() == {"k": "last"}
    async with opened(options) as notes:
        assert notes.all() == {"k": "last"}


async def test_a_topic_is_made_for_the_first_note_and_keeps_the_newest_of_each_key(options: Options) -> None:
    async with opened(options) as notes:
        await notes.put("a", None)
        assert notes.all() == {}
        assert topics_of(options) == []
        await notes.put("a", "1")
    name = f"{options.prefix}notes"
    assert topics_of(options) == [name]
    resource = ConfigResource(ConfigResourceType.TOPIC, name, {"cleanup.policy": None})
    with closing(KafkaAdminClient(bootstrap_servers=list(options.servers))) as admin:
        [described] = admin.describe_topics([name])
        configs = admin.describe_configs([resource], config_filter="all")
    assert len(described["partitions"]) == 1
    assert configs["topic"][name]["cleanup.policy"]["value"] == "compact"


async def test_bridges_of_one_prefix_share_notes_unless_each_has_a_name(options: Options) -> None:
    one, two = options._replace(instance="one"), options._replace(instance="two")
    for number, each in enumerate((options, one, two, options)):
        async with opened(each) as notes:
            await notes.put("k", str(number))
            await notes.put(f"of {number}", "x")
    for each, expected in {
        options: {"k": "3", "of 0": "x", "of 3": "x"},
        one: {"k": "1", "of 1": "x"},
        two: {"k": "2", "of 2": "x"},
    }.items():
        async with opened(each) as notes:
            assert notes.all() == expected


async def test_what_others_write_into_the_topic_harms_nothing(options: Options) -> None:
    async with opened(options) as notes:
        await notes.put("a", "1")
    with closing(KafkaProducer(bootstrap_servers=list(options.servers))) as producer:
        strange = [(b"\xff", b"x"), (b"[1]", b"x"), (b"7", b'"x"'), (b'[null, "b"]', b"{"), (b'[null, "c"]', b"4")]
        for key, value in (*strange, (b"[null, 5]", b'"x"'), (b"[null, null]", b'"x"'), (b'[null, "a"]', b'"2"')):
            producer.send(f"{options.prefix}notes", value, key).get(20)
    async with opened(options) as notes:
        assert notes.all() == {"a": "2"}


async def test_a_caller_that_leaves_does_not_withdraw_its_note(options: Options) -> None:
    async with opened(options) as notes:
        await notes.put("first", "1")
        keeping = asyncio.create_task(notes.put("k", "v"))
        while not keeping.done():
            await asyncio.sleep(0.001)
            keeping.cancel()
        async with asyncio.timeout(60):
            await notes.put("after", "2")
        left = dict(notes.all())
    async with opened(options) as notes:
        assert notes.all() == left


@pytest.mark.extended
async def test_more_notes_than_one_fetch_brings_are_read(options: Options) -> None:
    long = "x" * 2000
    async with opened(options) as notes:
        for number in range(1200):
            await notes.put(str(number), long)
    async with opened(options) as notes:
        assert notes.all() == {str(number): long for number in range(1200)}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


@EACH_CLIENT
@pytest.mark.parametrize("how", [pytest.param("terminate", marks=pytest.mark.extended), "kill"])
def test_registrations_of_callbacks_survive(
    tmp_path: Path, kafka_servers: str, endpoint: Endpoint, how: str, client: str
) -> None:
    url = backend(kafka_servers, instance="it", client=client)
    orders, stopped, moved = (f"{name}-{uuid4().hex}" for name in ("orders", "stopped", "moved"))
    with Bridge(tmp_path / "1", backend=url, settings=endpoint.settings()) as bridge:
        assert register(bridge, orders, endpoint.url("/orders?token=1"), credit=3).json()["kept"] == "kafka"
        register(bridge, stopped, endpoint.url("/stopped"))
        register(bridge, stopped, "")
        register(bridge, moved, endpoint.url("/before"))
        register(bridge, moved, endpoint.url("/moved"))
        if how == "terminate":
            assert bridge.terminate() == 0
        else:
            bridge.kill()
    with Bridge(tmp_path / "2", backend=url, settings=endpoint.settings()) as bridge:
        wait_until(lambda: (listed(bridge, orders) or {}).get("state") == "delivering")
        entry = listed(bridge, orders)
        assert entry is not None
        assert (entry["credit"], entry["kept"]) == (3, "kafka")
        assert listed(bridge, stopped) is None
        for name in (orders, moved):
            produce(bridge, name, name.encode())
        endpoint.wait_for("/orders?token=1", 1)
        endpoint.wait_for("/moved", 1)
        assert not endpoint.to("/before")
