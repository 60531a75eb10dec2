"""Text beyond ASCII, and the longest and oddest names, on a real Kafka: natively and through the bridge the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.conformance.conversation import Conversation, connection
from tests.http import texts
from tests.kafka import natives
from tests.kafka.bridged import backend
from tests.launch import Bridge

CLIENTS = ["confluent", pytest.param("kafka-python", marks=pytest.mark.extended)]
NOT_UTF_8 = b"caf\xe9 \xff\x00\xfe"


@pytest.fixture(scope="module", params=CLIENTS)
def bridge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_servers: str
) -> Iterator[Bridge]:
    url = backend(kafka_servers, client=request.param, partitions=2)
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=url) as running:
        yield running


@pytest_asyncio.fixture
async def talk(bridge: Bridge) -> AsyncIterator[Conversation]:
    async with connection(bridge.url) as http:
        yield Conversation(http)


async def test_natively_and_through_the_bridge_it_is_what_was_sent(talk: Conversation, kafka_servers: str) -> None:
    sent = [message for form in texts.FORMS for message in texts.messages(form)]
    for form in texts.FORMS:
        await texts.produce(talk, form, texts.messages(form))
    records = await asyncio.to_thread(natives.read, kafka_servers, talk.destination, len(sent))
    stored = {record.value: record for record in records}
    for message in sent:
        record = stored[message.body]
        headers = {name: value.decode() for name, value in record.headers}
        assert record.key == message.fields["messageKey"].encode()
        others = {f"oms_h_{name}": message.fields[name] for name in texts.FIELDS if name != "messageKey"}
        assert others.items() <= headers.items(), message.body
        properties = {name.removeprefix("oms_p_"): text for name, text in headers.items() if name.startswith("oms_p_")}
        assert properties == message.properties, message.body
    await texts.come_back(talk, sent)


async def test_what_a_native_producer_writes_in_another_encoding_is_a_data_url(
    talk: Conversation, kafka_servers: str
) -> None:
    fields = [(f"oms_h_{name}", NOT_UTF_8) for name in ("correlationId", "traceId", "transactionId")]
    headers = [("oms_h_messageId", b"odd"), *fields, ("oms_p_city", NOT_UTF_8), ("region", NOT_UTF_8)]
    await talk.join()
    await asyncio.to_thread(natives.write, kafka_servers, talk.destination, [(NOT_UTF_8, NOT_UTF_8, headers)])
    taken = await talk.take()
    found, properties = texts.read_fields(taken.headers.multi_items())
    url = "data:;base64,Y2Fm6SD/AP4="
    assert taken.body == NOT_UTF_8
    assert (found["messageid"], found["messagekey"]) == ("odd", url)
    # a field that is no text has no value; what was written is kept under the header's name
    assert properties == {"city": url, "region": url} | {name: url for name, _ in fields}
    await talk.ack(taken.receipt)
    await talk.nothing()


async def test_the_longest_and_the_oddest_names_are_topics_and_groups(talk: Conversation, kafka_servers: str) -> None:
    unique = uuid4().hex
    names = [
        (unique + "._-" * 100)[:249],
        f"-{unique}",
        f"_{unique}_",
        f".{unique}..",
        f"{unique}.log",
        f"{unique}.DLQ",
    ]
    for name in names:
        talk.destination, talk.group = name, (name[::-1] if not name[::-1].startswith("_") else name)
        await talk.produce(name.encode(), messageid=name)
        taken = await talk.take()
        assert (taken.body, taken.headers["x-oms-h-destination"]) == (name.encode(), name)
        await talk.ack(taken.receipt)
        await talk.nothing()
        [record] = await asyncio.to_thread(natives.read, kafka_servers, name, 1)
        assert record.value == name.encode()
