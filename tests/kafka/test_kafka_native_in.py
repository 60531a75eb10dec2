"""What native producers write is delivered, acknowledged, and never stops a group, whatever it looks like."""

import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from confluent_kafka import Producer
from kafka import KafkaProducer

from adapters.kafka.mapping import Headers
from tests.conformance.conversation import Conversation, Taken, connection
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.kafka.console import console_of
from tests.launch import Bridge

Row = tuple[bytes | None, bytes | None, Headers]

ROWS: Final[dict[str, Row]] = {
    "plain": (b"customer-7", b"body", ()),
    "no key": (None, b"body", ()),
    "empty key": (b"", b"body", ()),
    "a tombstone": (b"customer-7", None, ()),
    "empty value": (b"k", b"", ()),
    "binary value": (b"k", bytes(range(256)), ()),
    "value of white space": (b"k", b" \r\n\x00\t\n ", ()),
    "unicode key": ("Zürich 顧客".encode(), b"body", ()),
    "key that is no text": (b"\xff\xfe\x00\x01", b"body", ()),
    "key of control characters": (b"a\r\nx-oms-version: 9\r\n\r\n\x00", b"body", ()),
    "long key": (b"k" * 2_000, b"body", ()),
    "native headers": (b"k", b"body", [("region", b"eu"), ("Trace-Id", b"abc")]),
    "header that is no text": (b"k", b"body", [("blob", b"\xff\x00\xfe")]),
    "empty header": (b"k", b"body", [("nothing", b"")]),
    "repeated headers": (b"k", b"body", [("region", b"eu"), ("region", b"us"), ("region", b"\xff")]),
    "names that HTTP cannot carry": (
        b"k",
        b"body",
        [("Größe", b"1"), ("a b", b"2"), ("x:y", b"3"), ("a\r\nb", b"4"), ("", b"5"), ("n" * 400, b"6"), ("😀", b"7")],
    ),
    "control characters in a header": (b"k", b"body", [("evil", b"1\r\nx-oms-h-priority: 10\x00")]),
    "fields that are none": (b"k", b"body", [("oms_h_nonsense", b"1"), ("oms_h_", b"2"), ("oms_p_", b"3")]),
    "numbers that are none": (
        b"k",
        b"body",
        [
            (f"oms_h_{name}", value)
            for name, value in {
                "priority": b"high",
                "deliveryCount": b"-3",
                "bornTimestamp": b"\xff\xff",
                "storeTimestamp": b"",
                "expireTime": b"9" * 40,
                "delayTime": b"1e3",
                "qos": b"7",
                "durability": b"yes",
                "partition": b"99999999999",
            }.items()
        ],
    ),
    "texts that are none": (b"k", b"body", [("oms_h_messageId", b"\xff\xff"), ("oms_h_correlationId", b"\x00\r\n")]),
    "ids that clients may not send": (
        b"k",
        b"body",
        [("oms_h_messageId", b"\x00vk2\x1f\x7f\xc2\x85"), ("oms_h_transactionId", b"\x00\n")],
    ),
    "another destination": (b"k", b"body", [("oms_h_destination", b"../../etc"), ("oms_h_messageKey", b"other")]),
    "gzip that is none": (b"k", b"body", [("oms_h_compression", b"gzip")]),
    "a content type that is none": (b"k", b"body", [("content-type", b"\r\n\x00"), ("traceparent", b"junk")]),
    "many headers": (b"k", b"body", [(f"h{number}", b"v") for number in range(300)]),
    "large headers": (b"k", b"body", [("large", b"x" * 100_000)]),
}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, kafka_servers: str) -> Iterator[Bridge]:
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=backend(kafka_servers)) as running:
        yield running


@pytest_asyncio.fixture
async def talk(bridge: Bridge) -> AsyncIterator[Conversation]:
    async with connection(bridge.url) as http:
        yield Conversation(http)


async def test_every_record_is_delivered_again_and_acknowledged(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    for name, row in ROWS.items():
        natives.write(kafka_servers, talk.destination, [row, (None, b"the next", ())])
        first = await talk.take()
        assert first.body == (row[1] or b""), name
        assert (first.count, first.headers["x-oms-h-partition"]) == (1, "0"), name
        assert first.headers["x-oms-h-destination"] == talk.destination, name
        assert abs(int(first.headers["x-oms-h-storetimestamp"]) - time.time() * 1000) < 600_000, name
        assert field(first, "messageid"), name
        await talk.nack(first.receipt)
        again = await talk.take()
        assert again.count == 2, name
        assert dict(again.headers) | VARYING == dict(first.headers) | VARYING, name
        await talk.ack(again.receipt)
        following = await talk.take()
        assert following.body == b"the next", name
        await talk.ack(following.receipt)
    await talk.nothing()


VARYING: Final = dict.fromkeys(("x-oms-receipt", "x-oms-leaseuntil", "x-oms-h-deliverycount", "date"), "")


async def test_all_of_them_together_on_a_stream_and_in_json(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 3)
    natives.write(kafka_servers, talk.destination, list(ROWS.values()))
    asked = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group}
    asked |= {"maxmessages": str(len(ROWS)), "waitmills": "20000"}
    headers = {f"x-oms-{name}": value for name, value in asked.items()} | {"accept": "application/x-ndjson"}
    answer = await talk.http.get("/v1/push", headers=headers)
    *lines, end = [json.loads(line) for line in answer.text.splitlines() if line]
    assert end == {"end": "maxmessages"}
    assert len({line["header"]["messageId"] for line in lines}) == len(ROWS)


async def test_ids_are_the_same_for_every_group_and_different_for_every_record(
    talk: Conversation, kafka_servers: str
) -> None:
    talk.destination = natives.topic_of(kafka_servers, 2)
    natives.write(kafka_servers, talk.destination, [(None, b"%d" % number, ()) for number in range(20)])

    async def ids() -> dict[bytes, str | None]:
        return {taken.body: field(taken, "messageid") for taken in await talk.take_all(20)}

    first = await ids()
    talk.group += "-other"
    assert await ids() == first
    assert len(set(first.values())) == 20


async def test_a_native_key_keeps_its_order(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 2)
    key = b"\xff not text"
    natives.write(kafka_servers, talk.destination, [(key, b"%d" % number, ()) for number in range(3)])
    first = await talk.take()
    await talk.nothing()  # the next of its key waits
    await talk.ack(first.receipt)
    assert [taken.body for taken in await talk.take_all(2)] == [b"1", b"2"]


async def test_what_is_no_text_becomes_a_data_url(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    odd = ("key that is no text", "header that is no text", "repeated headers")
    natives.write(kafka_servers, talk.destination, [ROWS[name] for name in odd])
    key, header, repeated = await talk.take_all(3)
    assert field(key, "messagekey") == "data:;base64,//4AAQ=="
    assert properties(header.headers) == {"blob": "data:;base64,/wD+"}
    names = {"region#1": "eu", "region#2": "us", "region": "data:;base64,/w=="}
    assert properties(repeated.headers) == names


async def test_what_does_not_fit_is_left_out_and_said_so(talk: Conversation, kafka_servers: str) -> None:
    """An HTTP client ends its connection when more than 64 KiB of headers come: it could never take such a message."""
    talk.destination = natives.topic_of(kafka_servers, 1)
    headers = [("first", b"kept"), ("large", b"x" * 100_000), ("last", b"kept")]
    natives.write(kafka_servers, talk.destination, [(b"k" * 100_000, b"body", headers)])
    [taken] = await talk.take_all(1)
    assert properties(taken.headers) == {"first": "kept", "last": "kept", "oms_left_out": "1"}
    key = field(taken, "messagekey")
    assert key == "sha256:" + hashlib.sha256(b"k" * 100_000).hexdigest()


async def test_fields_that_cannot_be_are_properties(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    natives.write(kafka_servers, talk.destination, [ROWS["numbers that are none"], ROWS["another destination"]])
    numbers, other = await talk.take_all(2)
    found = properties(numbers.headers)
    assert {name: found[f"oms_h_{name}"] for name in ("priority", "deliveryCount", "delayTime", "durability")} == {
        "priority": "high",
        "deliveryCount": "-3",
        "delayTime": "1e3",
        "durability": "yes",
    }
    assert "x-oms-h-priority" not in numbers.headers
    assert properties(other.headers) == {"oms_h_destination": "../../etc"}


async def test_native_headers_are_properties(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    natives.write(kafka_servers, talk.destination, [ROWS["native headers"], ROWS["names that HTTP cannot carry"]])
    plain, odd = await talk.take_all(2)
    assert properties(plain.headers) == {"region": "eu", "Trace-Id": "abc"}
    found = properties(odd.headers)
    assert {name: found.get(name) for name in ("Größe", "a b", "x:y", "a\r\nb", "😀")} == {
        "Größe": "1",
        "a b": "2",
        "x:y": "3",
        "a\r\nb": "4",
        "😀": "7",
    }


async def test_fields_that_a_native_producer_sets_are_honoured(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    await talk.produce(b"so that the group is joined")
    await talk.take_all(1)
    now = int(time.time() * 1000)
    gone = [("oms_h_bornTimestamp", b"%d" % (now - 9_000)), ("oms_h_expireTime", b"%d" % (now - 1_000))]
    rows: Sequence[Row] = [
        (None, b"expired", gone),
        (None, b"low", [("oms_h_priority", b"1")]),
        (None, b"high", [("oms_h_priority", b"10"), ("oms_h_messageId", b"my-id")]),
    ]
    natives.write(kafka_servers, talk.destination, rows)
    taken = {each.body: each for each in await talk.take_all(2)}
    assert taken.keys() == {b"low", b"high"}
    assert taken[b"high"].headers["x-oms-h-messageid"] == "my-id"
    assert taken[b"low"].headers["x-oms-h-priority"] == "1"


async def test_what_the_java_client_writes(talk: Conversation, kafka_servers: str, tmp_path: Path) -> None:
    talk.destination = natives.topic_of(kafka_servers, 3)
    keys = ("", "order-1", "Zürich", None)
    console = console_of(tmp_path / "tools", kafka_servers)
    console.produce(talk.destination, [(key, f"value of {key}") for key in keys], "--compression-codec=zstd")
    taken = {each.body.decode(): each for each in await talk.take_all(len(keys))}
    assert taken.keys() == {f"value of {key}" for key in keys}
    assert {body: field(each, "messagekey") for body, each in taken.items()} == {f"value of {key}": key for key in keys}


async def test_a_header_whose_value_is_null(talk: Conversation, kafka_servers: str) -> None:
    """kafka-python cannot write one; librdkafka and the Java client can."""
    talk.destination = natives.topic_of(kafka_servers, 1)
    producer = Producer({"bootstrap.servers": kafka_servers})
    producer.produce(talk.destination, b"body", headers=[("nothing", None), ("oms_h_priority", None)])
    assert producer.flush(natives.SECONDS) == 0
    [taken] = await talk.take_all(1)
    assert taken.body == b"body"
    assert properties(taken.headers) == {"nothing": "", "oms_h_priority": ""}


async def test_of_transactions_only_what_was_committed_comes(talk: Conversation, kafka_servers: str) -> None:
    talk.destination = natives.topic_of(kafka_servers, 1)
    with closing(KafkaProducer(bootstrap_servers=kafka_servers, transactional_id=uuid4().hex)) as producer:
        producer.init_transactions()
        for number, commit in enumerate((True, False, True, False)):
            producer.begin_transaction()
            for half in "ab":
                producer.send(talk.destination, f"{number}{half}".encode(), b"one key")
            producer.commit_transaction() if commit else producer.abort_transaction()
        assert [taken.body for taken in await talk.take_all(4)] == [b"0a", b"0b", b"2a", b"2b"]
        await talk.nothing()
        producer.begin_transaction()
        producer.send(talk.destination, b"open", b"one key").get(natives.SECONDS)
        await talk.nothing()
        producer.commit_transaction()
    [last] = await talk.take_all(1)
    assert last.body == b"open"


@pytest.mark.extended
async def test_a_compacted_topic_with_gaps(tmp_path: Path, kafka_servers: str) -> None:
    """Gaps in the offsets are no messages: the group passes over them, also after a restart in their midst."""
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    topic = natives.topic_of(kafka_servers, 1, **compacted, **{"delete.retention.ms": "0"})
    alone = (0, 10, 20)
    rows: list[Row] = [(b"k%d" % (n if n in alone else n % 5 + 100), b"%d" % n, ()) for n in range(40)]
    natives.write(kafka_servers, topic, rows)
    deadline = time.monotonic() + natives.SECONDS
    while len(left := natives.everything(kafka_servers, topic)) > 12:
        assert time.monotonic() < deadline, "the log was not compacted"
        natives.write(kafka_servers, topic, [(b"roll", b"the segment", ())])  # the active one is never compacted
    offsets = [record.offset for record in left]
    assert offsets[:4] == [*alone, 35]
    url = backend(kafka_servers)
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        talk.destination, talk.group = topic, "compacted"
        came = [taken.body for taken in await talk.take_all(2)]
        assert bridge.terminate() == 0
    async with bridged(tmp_path / "second", url) as (_, talk):
        talk.destination, talk.group = topic, "compacted"
        while (answer := await talk.get(ack="false", waitmills=2_000)).status_code == 200:
            came.append(answer.content)
    newest = {b"%d" % number for number in (*alone, *range(35, 40))} | {b"the segment"}
    assert newest <= set(came) <= {record.value for record in left}
    assert len(came) <= len(left)


def field(taken: Taken, name: str) -> str | None:
    """Return a field as text, however it travelled."""
    plain, extended = taken.headers.get(f"x-oms-h-{name}"), taken.headers.get(f"x-oms-h-{name}*")
    return plain if extended is None else unquote(extended.removeprefix("UTF-8''"))


def properties(headers: httpx.Headers) -> dict[str, str]:
    """Return the properties by their unescaped names."""
    found = {}
    for name, value in headers.items():
        if name.startswith("x-oms-p-"):
            plain = name.removeprefix("x-oms-p-")
            text = unquote(value.removeprefix("UTF-8''")) if plain.endswith("*") else value
            found[unquote(plain.removesuffix("*"))] = text
    return found


async def test_a_record_with_150_headers_is_sent_in_the_json_form(talk: Conversation, kafka_servers: str) -> None:
    """Several HTTP libraries fail at 100 headers."""
    talk.destination = natives.topic_of(kafka_servers, 1)
    written = {f"h{number}": f"v{number}" for number in range(150)}
    headers = [(name, value.encode()) for name, value in written.items()]
    natives.write(kafka_servers, talk.destination, [(b"k", b"body", headers)])
    answer = await talk.get(waitmills=20_000)
    assert (answer.headers["x-oms-form"], answer.headers["content-type"]) == (
        "json",
        "application/vnd.oms.message+json",
    )
    assert len(answer.headers) < 20
    item = answer.json()
    assert item["properties"] == written
    assert (item["data"], item["receipt"]) == ("Ym9keQ==", answer.headers["x-oms-receipt"])
