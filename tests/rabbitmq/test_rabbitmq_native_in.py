"""What native producers publish is delivered once to each group, and never stops one, whatever it looks like."""

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import httpx
import pytest
import pytest_asyncio
from pika import BasicProperties

from tests.conformance.conversation import Conversation, Taken, connection
from tests.launch import Bridge
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend, bridged
from tests.rabbitmq.natives import Foreign, Sent

PARTITIONS: Final = 4
ROUTING_KEYS: Final = (
    *("p3", "p0", "p9", "orders.eu", "orders.eu.p3", "p3.eu", "", "#", "*", "P3", "größe", "k" * 255, "..", ".p1"),
)


def of(**slots: Any) -> Sent:  # noqa: ANN401 - handed on
    return Sent(properties=BasicProperties(**slots))


def with_headers(**headers: object) -> Sent:
    return of(headers=headers)


def _deep(levels: int) -> bytes:
    inner = b""
    for _ in range(levels):
        inner = b"\1aF" + struct.pack(">I", len(inner)) + inner
    return struct.pack(">I", len(inner)) + inner


def _long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


ROWS: Final[dict[str, Sent]] = {
    "plain": Sent(),
    "empty": Sent(b""),
    "binary": Sent(bytes(range(256))),
    "white space": Sent(b" \r\n\x00\t\n "),
    "all slots": of(
        content_type="text/plain",
        content_encoding="utf-8",
        delivery_mode=1,
        priority=9,
        correlation_id="c",
        reply_to="rpc",
        message_id="m",
        timestamp=1_700_000_000,
        type="order.created",
        app_id="shop",
        expiration="600000",
    ),
    "native headers": with_headers(region="eu", **{"Trace-Id": "abc"}),
    "types": with_headers(
        yes=True,
        n=-5,
        large=2**62,
        raw=b"\xff",
        at=datetime(2026, 11, 21, tzinfo=UTC),
        nothing=None,
        items=["a", 1, {"b": None}],
        table={"a": {"b": [True]}},
    ),
    "a time in milliseconds": Sent(properties=Foreign((b"at", b"T", struct.pack(">Q", 1_700_000_000_000)))),
    "a time without sense": Sent(properties=Foreign((b"at", b"T", b"\xff" * 8))),
    "floats": Sent(
        properties=Foreign((b"half", b"d", struct.pack(">d", 0.5)), (b"quarter", b"f", struct.pack(">f", 0.25)))
    ),
    "small numbers": Sent(properties=Foreign((b"a", b"b", b"\xff"), (b"b", b"B", b"\xff"), (b"c", b"s", b"\xff\xff"))),
    "text that is none": Sent(properties=Foreign((b"blob", b"S", _long(b"\xff\xfe")))),
    "a name that is no text": Sent(properties=Foreign((b"\xff\xfe", b"S", _long(b"x")))),
    "one name twice": Sent(properties=Foreign((b"a", b"S", _long(b"1")), (b"a", b"S", _long(b"2")))),
    "no name": Sent(properties=Foreign((b"", b"S", _long(b"x")))),
    "tables without end": Sent(properties=Foreign((b"deep", b"F", _deep(3_000)))),
    "names that HTTP cannot carry": with_headers(
        **{"Größe": "1", "a b": "2", "a\r\nb": "4", "n" * 255: "6", "😀": "7"}
    ),
    "control characters in a header": with_headers(evil="1\r\nx-oms-h-priority: 10\x00"),
    "what the broker notes": with_headers(
        **{
            "x-delivery-count": 99,
            "x-acquired-count": 99,
            "x-stream-offset": 5,
            "x-death": [{"queue": "q", "count": 99, "reason": "rejected"}],
            "x-first-death-queue": "q",
        }
    ),
    "what the bridge notes": with_headers(oms_d_x="1", oms_d_routing_key=5),
    "fields that are none": with_headers(oms_h_nonsense="1", oms_h_="2", oms_p_="3"),
    "numbers that are none": with_headers(
        oms_h_priority="high",
        oms_h_deliveryCount=-3,
        oms_h_bornTimestamp=b"\xff\xff",
        oms_h_storeTimestamp="",
        oms_h_expireTime="9" * 40,
        oms_h_delayTime=True,
        oms_h_qos=7,
        oms_h_durability=None,
        oms_h_partition=99,
    ),
    "texts that are none": with_headers(oms_h_messageId=[1], oms_h_correlationId="\x00\r\n", oms_h_messageKey=5),
    "ids that clients may not send": with_headers(oms_h_messageId="\x00vk2\x1f\x7f\x85", oms_h_transactionId="\x00\n"),
    "another destination": with_headers(oms_h_destination="../../etc", oms_h_messageKey="other"),
    "gzip that is none": of(content_encoding="gzip", headers={"oms_h_compression": "gzip"}),
    "a content type that is none": of(content_type="\r\n\x00", headers={"traceparent": "junk", "tracestate": "x"}),
    "many headers": with_headers(**{f"h{number}": "v" for number in range(300)}),
    "large headers": with_headers(large="x" * 100_000),
    "a user": of(user_id="guest"),
    "more routing keys": with_headers(CC=["another"], BCC=["p1"]),
}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, rabbitmq_url: str) -> Iterator[Bridge]:
    url = backend(rabbitmq_url, partitions=PARTITIONS)
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=url) as running:
        yield running


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory, rabbitmq_url: str) -> Iterator[Bridge]:
    """A bridge whose destinations have one partition."""
    with Bridge(tmp_path_factory.mktemp("single"), backend=backend(rabbitmq_url, partitions=1)) as running:
        yield running


@pytest_asyncio.fixture
async def talk(bridge: Bridge) -> AsyncIterator[Conversation]:
    async with connection(bridge.url) as http:
        yield Conversation(http)


@pytest_asyncio.fixture
async def line(single: Bridge) -> AsyncIterator[Conversation]:
    """Talk about a destination with one partition: what comes, comes in order."""
    async with connection(single.url) as http:
        yield Conversation(http)


async def publish(url: str, talk: Conversation, *messages: Sent) -> None:
    """Publish natively, where the bridge has made the group's queues."""
    await talk.nothing(wait=0)
    await asyncio.to_thread(natives.write, url, talk.destination, messages)


async def test_every_message_is_delivered_again_and_acknowledged(line: Conversation, rabbitmq_url: str) -> None:
    for name, sent in ROWS.items():
        await publish(rabbitmq_url, line, sent)
        first = await line.take()
        assert first.body == sent.body, name
        assert (first.count, first.headers["x-oms-h-partition"]) == (1, "0"), name
        assert first.headers["x-oms-h-destination"] == line.destination
        assert field(first, "messageid"), name
        await line.nack(first.receipt)
        again = await line.take()
        assert again.count == 2, name
        assert dict(again.headers) | VARYING == dict(first.headers) | VARYING, name
        await line.ack(again.receipt)
    await line.nothing()


VARYING: Final = dict.fromkeys(("x-oms-receipt", "x-oms-leaseuntil", "x-oms-h-deliverycount", "date"), "")


async def test_all_of_them_together_on_a_stream_and_in_json(talk: Conversation, rabbitmq_url: str) -> None:
    await publish(rabbitmq_url, talk, *ROWS.values())
    asked = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group}
    asked |= {"maxmessages": str(len(ROWS)), "waitmills": "20000"}
    headers = {f"x-oms-{name}": value for name, value in asked.items()} | {"accept": "application/x-ndjson"}
    answer = await talk.http.get("/v1/push", headers=headers)
    *lines, end = [json.loads(each) for each in answer.text.splitlines() if each]
    assert end == {"end": "maxmessages"}
    assert len(lines) == len(ROWS)


async def test_whatever_the_routing_key_each_group_gets_it_once(talk: Conversation, rabbitmq_url: str) -> None:
    other = Conversation(talk.http)
    other.destination = talk.destination
    await other.nothing(wait=0)
    await publish(rabbitmq_url, talk, *(Sent(key.encode(), key) for key in ROUTING_KEYS))
    for each in talk, other:
        taken = {one.body.decode(): one for one in await each.take_all(len(ROUTING_KEYS))}
        assert taken.keys() == set(ROUTING_KEYS)
        partitions = {key: taken[key].headers["x-oms-h-partition"] for key in ROUTING_KEYS}
        assert partitions == dict.fromkeys(ROUTING_KEYS, "0") | {"p3": "3", "orders.eu.p3": "3", ".p1": "1"}
        shown = {key: properties(one.headers).get("amqp_routing_key", "") for key, one in taken.items()}
        assert shown == {key: key for key in ROUTING_KEYS} | {"p3": "", "p0": ""}
        await each.nothing()


async def test_a_late_group_gets_them_once_and_the_same(talk: Conversation, rabbitmq_url: str) -> None:
    messages = [Sent(key.encode(), key, of(headers={"half": key}).properties) for key in ROUTING_KEYS]
    await publish(rabbitmq_url, talk, *messages, *(sent._replace(key="x.y") for sent in ROWS.values()))
    count = len(ROUTING_KEYS) + len(ROWS)

    async def seen() -> list[tuple[bytes, str | None, dict[str, str]]]:
        taken = await talk.take_all(count)
        await talk.nothing()
        kept = [
            {name: text for name, text in properties(each.headers).items() if text[:1] not in {"[", "{"}}
            for each in taken  # the log of 3.10.8 keeps no lists and no tables
        ]
        return sorted(
            ((each.body, field(each, "messageid"), shown) for each, shown in zip(taken, kept, strict=True)), key=str
        )

    first = await seen()
    talk.group += "-late"
    assert await seen() == first


async def test_ids_are_the_same_for_every_group(talk: Conversation, rabbitmq_url: str) -> None:
    other = Conversation(talk.http)
    other.destination = talk.destination
    await other.nothing(wait=0)
    await publish(rabbitmq_url, talk, *(Sent(b"%d" % number, "x.y") for number in range(20)))
    ids = [{each.body: field(each, "messageid") for each in await one.take_all(20)} for one in (talk, other)]
    assert ids[0] == ids[1]
    assert len(set(ids[0].values())) == 20


async def test_native_slots_are_fields(line: Conversation, rabbitmq_url: str) -> None:
    await publish(rabbitmq_url, line, ROWS["all slots"])
    [taken] = await line.take_all(1)
    wanted = {
        "messageid": "m",
        "correlationid": "c",
        "priority": "10",
        "borntimestamp": "1700000000000",
        "storetimestamp": "1700000000000",
    }
    assert {name: field(taken, name) for name in wanted} == wanted
    assert taken.headers["content-type"] == "text/plain"
    assert properties(taken.headers) == {
        "amqp_reply_to": "rpc",
        "amqp_type": "order.created",
        "amqp_app_id": "shop",
        "amqp_content_encoding": "utf-8",
    }


async def test_native_headers_are_properties(line: Conversation, rabbitmq_url: str) -> None:
    names = ("native headers", "types", "floats", "a time in milliseconds", "what the broker notes")
    await publish(rabbitmq_url, line, *(ROWS[name] for name in names))
    found = [properties(taken.headers) for taken in await line.take_all(len(names))]
    assert found == [
        {"region": "eu", "Trace-Id": "abc"},
        {
            "yes": "true",
            "n": "-5",
            "large": str(2**62),
            "raw": "data:;base64,/w==",
            "at": "2026-11-21T00:00:00Z",
            "nothing": "",
            "items": '["a",1,{"b":null}]',
            "table": '{"a":{"b":[true]}}',
        },
        {"half": "0.5", "quarter": "0.25"},
        {"at": "1700000000000"},
        {},
    ]


async def test_what_does_not_fit_is_left_out_and_said_so(line: Conversation, rabbitmq_url: str) -> None:
    """An HTTP client ends its connection when more than 64 KiB of headers come: it could never take such a message."""
    await publish(rabbitmq_url, line, with_headers(first="kept", large="x" * 100_000, last="kept"))
    [taken] = await line.take_all(1)
    assert properties(taken.headers) == {"first": "kept", "last": "kept", "oms_left_out": "1"}


async def test_fields_that_a_native_producer_sets_are_honoured(line: Conversation, rabbitmq_url: str) -> None:
    await line.join()
    now = int(time.time() * 1000)
    gone = {"oms_h_bornTimestamp": now - 9_000, "oms_h_expireTime": now - 1_000}
    rows = {
        b"expired": BasicProperties(headers=gone),
        b"low": BasicProperties(priority=0),
        b"high": BasicProperties(priority=0, headers={"oms_h_priority": 10, "oms_h_messageId": "my-id"}),
    }
    await publish(rabbitmq_url, line, *(Sent(body, "", slots) for body, slots in rows.items()))
    taken = {each.body: each for each in await line.take_all(2)}
    assert taken.keys() == {b"low", b"high"}
    assert taken[b"high"].headers["x-oms-h-messageid"] == "my-id"
    assert taken[b"low"].headers["x-oms-h-priority"] == "1"
    await line.nothing()


async def test_a_redelivery_counts_whatever_a_producer_claims(tmp_path: Path, rabbitmq_url: str) -> None:
    url = backend(rabbitmq_url, partitions=1)
    forged = {"x-delivery-count": 99, "x-acquired-count": 99, "x-death": [{"queue": "q", "count": 99}]}
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        await publish(rabbitmq_url, talk, Sent(b"forged", "x", BasicProperties(headers=forged)))
        destination, group = talk.destination, talk.group
        assert (await talk.take()).count == 1
        bridge.kill()
    async with bridged(tmp_path / "second", url) as (_, talk):
        talk.destination, talk.group = destination, group
        taken = await talk.take()
        assert (taken.body, taken.count) == (b"forged", 2)
        assert properties(taken.headers) == {"amqp_routing_key": "x"}


async def test_a_native_key_keeps_its_order(line: Conversation, rabbitmq_url: str) -> None:
    keyed = BasicProperties(headers={"oms_h_messageKey": "k"})
    await publish(rabbitmq_url, line, *(Sent(b"%d" % number, "any", keyed) for number in range(3)))
    first = await line.take()
    await line.nothing()  # the next of its key waits
    await line.ack(first.receipt)
    assert [taken.body for taken in await line.take_all(2)] == [b"1", b"2"]


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
