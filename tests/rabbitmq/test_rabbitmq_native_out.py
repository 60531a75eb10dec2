"""What the bridge publishes is an ordinary message to a native consumer: plain pika, knowing nothing of the bridge."""

import asyncio
import gzip
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.conformance.conversation import Conversation, connection, now
from tests.launch import Bridge
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend, bridged
from tests.rabbitmq.natives import Got

PARTITIONS: Final = 3
KEYS: Final = ("", "order-1", "Zürich", "顧客", "K" * 300, "a b")
BODIES: Final = {
    "empty": b"",
    "text": b"one line",
    "binary": bytes(range(256)),
    "a newline at its end": b"\r\n",
    "larger than a frame": random.Random(7).randbytes(300 << 10),  # noqa: S311 - any bytes do
}
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
LONG: Final = "c" * 256


class Corpus(NamedTuple):
    """What was produced through the bridge, and what came to a native consumer."""

    answers: dict[str, dict[str, str]]
    """Headers of the bridge's answer, by the name of the message."""
    got: dict[str, Got]
    order: list[str]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, rabbitmq_url: str) -> Iterator[Bridge]:
    url = backend(rabbitmq_url, partitions=PARTITIONS)
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=url) as running:
        yield running


@pytest.fixture(scope="module")
def corpus(bridge: Bridge, rabbitmq_url: str) -> Corpus:
    """Produce it all once, and read it as a native program that has bound its own queue."""

    async def produce() -> tuple[str, dict[str, dict[str, str]]]:
        async with connection(bridge.url) as http:
            talk = Conversation(http)
            await talk.produce(b"so that there is an exchange")
            queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, "quorum", exchange=talk.destination)
            answers: dict[str, dict[str, str]] = {}

            async def one(name: str, body: bytes, pairs: list[tuple[bytes, bytes]], **fields: object) -> None:
                answer = await talk.produce(body, [(b"x-oms-p-name*", _extended(name)), *pairs], **fields)
                answers[name] = dict(answer.headers)

            for key in KEYS:
                await one(f"key {key}", key.encode(), [(b"x-oms-h-messagekey*", _extended(key))])
            for name, body in BODIES.items():
                await one(f"body {name}", body, [])
            everything = [
                (b"x-oms-p-region", b"eu"),
                (b"x-oms-p-%4frder%49d", b"4711"),
                (b"x-oms-p-city*", _extended("Zürich")),
                (b"content-type", b"application/json"),
                (b"traceparent", PARENT.encode()),
                (b"tracestate", b"vendor=1"),
            ]
            fields = {"messageid": "everything", "correlationid": "c-1", "transactionid": "t-1", "priority": 9}
            await one("everything", b"{}", everything, partition=2, expiretime=now() + 3_600_000, **fields)
            await one("plain", b"", [])
            await one("traced", b"", [], traceid=TRACE)
            await one("spilled", b"", [], correlationid=LONG)
            await one("transient", b"", [], durability=0)
            await one("packed", gzip.compress(b"text"), [(b"content-encoding", b"gzip")])
            for number in range(20):
                await one(f"in order {number}", b"", [], messagekey="k")
            return queue, answers

    queue, answers = asyncio.run(produce())
    got = natives.take(rabbitmq_url, queue, len(answers))
    names = [str(each.properties.headers["oms_p_name"]) for each in got]
    return Corpus(answers, dict(zip(names, got, strict=True)), names)


def test_every_message_comes_once(corpus: Corpus) -> None:
    assert corpus.got.keys() == corpus.answers.keys()
    assert len(corpus.order) == len(corpus.answers)


def test_messages_of_a_key_come_in_order(corpus: Corpus) -> None:
    assert [name for name in corpus.order if name.startswith("in order")] == [f"in order {n}" for n in range(20)]


def test_the_body_is_the_body(corpus: Corpus) -> None:
    assert {name: corpus.got[f"body {name}"].body for name in BODIES} == BODIES


def test_the_routing_key_is_the_partition_that_the_producer_was_told(corpus: Corpus) -> None:
    told = {name: f"p{headers['x-oms-h-partition']}" for name, headers in corpus.answers.items()}
    assert {name: got.key for name, got in corpus.got.items()} == told
    assert corpus.got["everything"].key == "p2"
    assert len(set(told.values())) == PARTITIONS


def test_properties_are_filled(corpus: Corpus) -> None:
    properties, told = corpus.got["everything"].properties, corpus.answers["everything"]
    assert properties.message_id == told["x-oms-h-messageid"] == "everything"
    assert (properties.correlation_id, properties.content_type) == ("c-1", "application/json")
    assert (properties.priority, properties.delivery_mode) == (8, 2)
    assert 3_500_000 < int(properties.expiration) <= 3_600_000
    assert properties.timestamp == properties.headers["oms_h_bornTimestamp"] // 1000
    assert abs(datetime.fromtimestamp(properties.timestamp, UTC).timestamp() * 1000 - now()) < 600_000
    assert (properties.content_encoding, properties.reply_to, properties.type, properties.app_id) == (None,) * 4


def test_fields_properties_and_trace_are_headers(corpus: Corpus) -> None:
    got, told = corpus.got["everything"], corpus.answers["everything"]
    wanted = {
        "oms_h_transactionId": "t-1",
        "oms_h_priority": 9,
        "oms_h_storeTimestamp": int(told["x-oms-h-storetimestamp"]),
        "oms_h_traceId": TRACE,
        "oms_p_region": "eu",
        "oms_p_OrderId": "4711",
        "oms_p_city": "Zürich",
        "traceparent": PARENT,
        "tracestate": "vendor=1",
    }
    assert {name: got.properties.headers.get(name) for name in wanted} == wanted
    assert not [name for name in got.properties.headers if name.startswith("x-")]


def test_a_plain_message_has_amqp_s_own_defaults(corpus: Corpus) -> None:
    properties = corpus.got["plain"].properties
    assert (properties.priority, properties.delivery_mode, properties.expiration) == (4, 2, None)
    assert properties.message_id == corpus.answers["plain"]["x-oms-h-messageid"]
    assert (properties.correlation_id, properties.content_encoding) == (None, None)
    assert "oms_h_priority" not in properties.headers


def test_what_amqp_has_a_place_for_is_there_and_the_rest_is_a_header(corpus: Corpus, subtests: pytest.Subtests) -> None:
    got = corpus.got
    with subtests.test("a key"):
        assert [got[f"key {key}"].properties.headers["oms_h_messageKey"] for key in KEYS] == list(KEYS)
        assert "oms_h_messageKey" not in got["plain"].properties.headers
    with subtests.test("a trace id"):
        assert got["traced"].properties.headers["traceparent"].startswith(f"00-{TRACE}-")
    with subtests.test("a correlation id that is too long for AMQP"):
        properties = got["spilled"].properties
        assert (properties.correlation_id, properties.headers["oms_h_correlationId"]) == (None, LONG)
    with subtests.test("a transient message"):
        assert got["transient"].properties.delivery_mode == 1
    with subtests.test("a compressed body"):
        packed = got["packed"]
        assert (packed.properties.content_encoding, gzip.decompress(packed.body)) == ("gzip", b"text")


async def test_delayed_messages_are_ordinary_ones_too(tmp_path: Path, rabbitmq_url: str) -> None:
    """They come when they are due, once, and with nothing on them of the way that they took."""
    async with bridged(tmp_path, backend(rabbitmq_url, partitions=PARTITIONS)) as (_, talk):
        await talk.produce(b"so that there is an exchange")
        queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, exchange=talk.destination)
        born = now()
        fields = {"messageid": "late", "borntimestamp": born, "delaytime": 700, "priority": 10}
        pairs = [(b"x-oms-h-messagekey*", _extended("Zürich")), (b"x-oms-p-region", b"eu")]
        await talk.produce(BODIES["binary"], pairs, **fields, expiretime=born + 3_600_000)
        [got] = await asyncio.to_thread(natives.take, rabbitmq_url, queue, 1)
        assert now() >= born + 700
    properties = got.properties
    assert (got.body, properties.message_id, properties.priority) == (BODIES["binary"], "late", 9)
    assert (properties.expiration, properties.delivery_mode) == (None, 2)
    assert properties.headers["oms_p_region"] == "eu"
    assert got.key.rpartition(".")[2] in {f"p{partition}" for partition in range(PARTITIONS)}


def _extended(text: str) -> bytes:
    return b"UTF-8''" + b"".join(b"%%%02X" % byte for byte in text.encode())
