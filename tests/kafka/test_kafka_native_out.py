"""What the bridge stores is an ordinary record to native consumers: kafka-python's and the Java client's."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pytest

from adapters.kafka.mapping import Record
from tests.conformance.conversation import Conversation, connection, now
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.kafka.console import Console, console_of
from tests.kafka.natives import COMPRESSIONS
from tests.launch import Bridge

PARTITIONS: Final = 7
KEYS: Final = ("", "order-1", "order-2", "Zürich", "顧客", "😀", "a b", "K" * 300, "7", "ключ", "x:y=z", "\u00a0")
BODIES: Final = {
    "empty": b"",
    "text": b"one line",
    "binary": bytes(range(256)),
    "a newline at its end": b"\r\n",
    "900 KiB": random.Random(7).randbytes(900 << 10),  # noqa: S311 - any bytes do
}
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT: Final = f"00-{TRACE}-00f067aa0ba902b7-01"

Reader = Callable[[str, int], list[Record]]


class Told(NamedTuple):
    """The reply to a producer about its message."""

    partition: int
    offset: int | None
    stored: int


class Corpus(NamedTuple):
    """A topic, and what was said about each message in it, by its messageId."""

    topic: str
    told: dict[str, Told]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, kafka_servers: str) -> Console:
    return console_of(tmp_path_factory.mktemp("tools") / "console", kafka_servers)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, kafka_servers: str) -> Iterator[Bridge]:
    url = backend(kafka_servers, partitions=PARTITIONS)
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=url) as running:
        yield running


@pytest.fixture(scope="module")
def corpus(bridge: Bridge) -> Corpus:
    """Produce it all once: keys, bodies, and one message with everything."""

    async def produce() -> Corpus:
        async with connection(bridge.url) as http:
            talk = Conversation(http)
            told: dict[str, Told] = {}

            async def one(message_id: str, body: bytes, pairs: list[tuple[bytes, bytes]], **fields: object) -> None:
                answer = await talk.produce(body, pairs, messageid=message_id, **fields)
                at = {name: int(answer.headers[name]) for name in ("x-oms-h-partition", "x-oms-h-storetimestamp")}
                told[message_id] = Told(
                    at["x-oms-h-partition"], int(answer.headers["x-oms-offset"]), at["x-oms-h-storetimestamp"]
                )

            for at, key in enumerate(KEYS):
                await one(f"key-{at}", key.encode(), [(b"x-oms-h-messagekey*", _extended(key))])
            for name, body in BODIES.items():
                await one(f"body-{name}", body, [], messagekey="of bodies")
            await one("without a key", b"", [])
            everything = [
                (b"x-oms-p-region", b"eu"),
                (b"x-oms-p-%4frder%49d", b"4711"),
                (b"x-oms-p-city*", _extended("Zürich")),
                (b"content-type", b"application/json"),
                (b"traceparent", PARENT.encode()),
                (b"tracestate", b"vendor=1"),
            ]
            fields = {"correlationid": "c-1", "transactionid": "t-1", "priority": 9, "durability": 1, "qos": 0}
            await one("everything", b"{}", everything, messagekey="k", expiretime=now() + 3_600_000, **fields)
            return Corpus(talk.destination, told)

    return asyncio.run(produce())


@pytest.fixture(scope="module", params=["kafka-python", pytest.param("java", marks=pytest.mark.extended)])
def records(request: pytest.FixtureRequest, corpus: Corpus, kafka_servers: str) -> dict[str, Record]:
    """Return the records by their messageId, as either client reads them."""
    return _by_id(_reader(request, kafka_servers, request.param)(corpus.topic, len(corpus.told)))


def test_every_message_is_there_once(records: dict[str, Record], corpus: Corpus) -> None:
    assert records.keys() == corpus.told.keys()


def test_it_is_where_the_producer_was_told(records: dict[str, Record], corpus: Corpus) -> None:
    places = {message_id: (told.partition, told.offset) for message_id, told in corpus.told.items()}
    assert {message_id: (record.partition, record.offset) for message_id, record in records.items()} == places


def test_a_topic_is_made_with_the_partitions_of_the_settings(corpus: Corpus, kafka_servers: str) -> None:
    with natives.member(kafka_servers, corpus.topic, f"g-{uuid4().hex}") as consumer:
        assert consumer.partitions_for_topic(corpus.topic) == set(range(PARTITIONS))


def test_the_key_is_the_records_key(records: dict[str, Record]) -> None:
    assert [records[f"key-{at}"].key for at in range(len(KEYS))] == [key.encode() for key in KEYS]
    assert records["without a key"].key is None


def test_the_body_is_the_records_value(records: dict[str, Record]) -> None:
    assert {name: records[f"body-{name}"].value for name in BODIES} == BODIES


def test_fields_properties_and_trace_are_headers(records: dict[str, Record]) -> None:
    headers = dict(records["everything"].headers)
    assert len(headers) == len(records["everything"].headers), "a header came twice"
    wanted = {
        "oms_h_messageId": "everything",
        "oms_h_correlationId": "c-1",
        "oms_h_transactionId": "t-1",
        "oms_h_priority": "9",
        "oms_p_region": "eu",
        "oms_p_OrderId": "4711",
        "oms_p_city": "Zürich",
        "content-type": "application/json",
        "traceparent": PARENT,
        "tracestate": "vendor=1",
    }
    assert {name: headers.get(name) for name in wanted} == {name: text.encode() for name, text in wanted.items()}
    assert headers["oms_h_traceId"] == TRACE.encode()


def test_the_timestamp_is_when_it_was_stored(records: dict[str, Record], corpus: Corpus) -> None:
    stored = {message_id: told.stored for message_id, told in corpus.told.items()}
    assert {message_id: record.timestamp for message_id, record in records.items()} == stored


def test_a_key_lies_where_the_java_client_would_put_it(
    records: dict[str, Record], console: Console, kafka_servers: str
) -> None:
    topic = natives.topic_of(kafka_servers, PARTITIONS)
    console.produce(topic, [(key, f"key-{at}") for at, key in enumerate(KEYS)])
    java = {bytes(r.value or b"").decode(): r.partition for r in natives.read(kafka_servers, topic, len(KEYS))}
    assert {name: records[name].partition for name in java} == java
    assert len(set(java.values())) > 1


def test_a_key_lies_where_kafka_python_would_put_it(records: dict[str, Record], kafka_servers: str) -> None:
    topic = natives.topic_of(kafka_servers, PARTITIONS)
    places = natives.write(kafka_servers, topic, [(key.encode(), b"", ()) for key in KEYS])
    assert [records[f"key-{at}"].partition for at in range(len(KEYS))] == [partition for partition, _ in places]


@pytest.mark.parametrize("client", ["kafka-python", pytest.param("java", marks=pytest.mark.extended)])
async def test_delayed_and_prioritised_messages_are_ordinary_records_too(
    client: str, request: pytest.FixtureRequest, tmp_path: Path, kafka_servers: str
) -> None:
    """One delay is waited out in the bridge, the other in the delay topics: `hold` lies between them."""
    async with bridged(tmp_path, backend(kafka_servers, partitions=3, hold=1_000)) as (_, talk):
        born, stored = now(), []
        for delay in (200, 2_500):
            fields = {"messageid": f"after {delay}", "borntimestamp": born, "delaytime": delay, "priority": 10}
            pairs = [(b"x-oms-h-messagekey*", _extended("Zürich")), (b"x-oms-p-region", b"eu")]
            answer = await talk.produce(BODIES["binary"], pairs, **fields)
            stored.append(int(answer.headers["x-oms-h-storetimestamp"]))
        found = _by_id(_reader(request, kafka_servers, client)(talk.destination, 2))
    early, late = found["after 200"], found["after 2500"]
    assert early.timestamp == stored[0], "stored at once"
    assert late.timestamp >= born + 1_500, "moved to its topic when `hold` is left"
    for record in early, late:
        headers = dict(record.headers)
        assert (record.key, record.value) == ("Zürich".encode(), BODIES["binary"])
        assert headers["oms_h_priority"] == b"10"
        assert headers["oms_p_region"] == b"eu"
    assert early.partition == late.partition
    assert (early.offset, late.offset) == (0, 1)


@pytest.mark.parametrize("codec", COMPRESSIONS)
async def test_natives_see_nothing_of_the_compression_of_batches(
    codec: str, request: pytest.FixtureRequest, tmp_path: Path, kafka_servers: str, console: Console
) -> None:
    body = b"the same again and again " * 20_000
    async with bridged(tmp_path, backend(kafka_servers, partitions=1, compression=codec)) as (_, talk):
        await talk.produce(body, messageid="long")
        for client in "kafka-python", "java":
            record = _by_id(_reader(request, kafka_servers, client)(talk.destination, 1))["long"]
            assert record.value == body
    on_disk = console.run("kafka-log-dirs.sh", "--describe", f"--topic-list={talk.destination}").decode()
    size = int(on_disk.partition('"size":')[2].partition(",")[0])
    assert size < len(body) / 10


def _reader(request: pytest.FixtureRequest, servers: str, client: str) -> Reader:
    if client == "java":
        console: Console = request.getfixturevalue("console")
        return console.consume
    return lambda topic, count: natives.read(servers, topic, count)


def _by_id(records: list[Record]) -> dict[str, Record]:
    return {dict(record.headers)["oms_h_messageId"].decode(): record for record in records}


def _extended(text: str) -> bytes:
    return b"UTF-8''" + b"".join(b"%%%02X" % byte for byte in text.encode())
