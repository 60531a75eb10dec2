"""Text beyond ASCII, and the longest and oddest names, on a real RabbitMQ: natively and through the bridge the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio
from pika import BasicProperties

from tests.conformance.conversation import Conversation, connection
from tests.http import texts
from tests.launch import Bridge
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.natives import Foreign, Got, Sent

NOT_UTF_8 = b"caf\xe9 \xff\x00\xfe"
SLOTS = {"messageId": "message_id", "correlationId": "correlation_id"}
"""Fields for which AMQP has a property: a header stands for them only where that has no room."""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, rabbitmq_url: str) -> Iterator[Bridge]:
    with Bridge(tmp_path_factory.mktemp("bridge"), backend=backend(rabbitmq_url, partitions=2)) as running:
        yield running


@pytest_asyncio.fixture
async def talk(bridge: Bridge) -> AsyncIterator[Conversation]:
    async with connection(bridge.url) as http:
        yield Conversation(http)


async def test_natively_and_through_the_bridge_it_is_what_was_sent(talk: Conversation, rabbitmq_url: str) -> None:
    await talk.nothing()  # makes the exchange
    queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, "quorum", exchange=talk.destination)
    sent = [message for form in texts.FORMS for message in texts.messages(form)]
    for form in texts.FORMS:
        await texts.produce(talk, form, texts.messages(form))
    got = await asyncio.to_thread(natives.take, rabbitmq_url, queue, len(sent))
    stored = {each.body: each for each in got}
    for message in sent:
        each = stored[message.body]
        assert {name: _read(each, name) for name in texts.FIELDS} == message.fields, message.body
        headers = each.properties.headers
        properties = {name.removeprefix("oms_p_"): text for name, text in headers.items() if name.startswith("oms_p_")}
        assert properties == message.properties, message.body
    await texts.come_back(talk, sent)


async def test_what_a_native_producer_writes_in_another_encoding_is_a_data_url(
    talk: Conversation, rabbitmq_url: str
) -> None:
    await talk.join()
    raw = b"S" + len(NOT_UTF_8).to_bytes(4, "big") + NOT_UTF_8
    names = [b"oms_h_messageKey", b"oms_h_traceId", b"oms_h_transactionId", b"oms_p_city", b"region"]
    properties = Foreign(*((name, raw[:1], raw[1:]) for name in names))
    await asyncio.to_thread(natives.write, rabbitmq_url, talk.destination, [Sent(NOT_UTF_8, "p0", properties)])
    taken = await talk.take()
    _, found = texts.read_fields(taken.headers.multi_items())
    url = "data:;base64,Y2Fm6SD/AP4="
    assert taken.body == NOT_UTF_8
    # a field that is no text has no value; what was written is kept under the header's name
    assert found == {name.decode().removeprefix("oms_p_"): url for name in names}
    await talk.ack(taken.receipt)
    await talk.nothing()


async def test_the_longest_and_the_oddest_names_are_exchanges_and_groups(talk: Conversation, rabbitmq_url: str) -> None:
    unique = uuid4().hex
    names = [(unique + "._-" * 100)[:249], f"-{unique}", f"_{unique}_", f".{unique}..", f"{unique}.p0", f"{unique}.DLQ"]
    for name in names:
        talk.destination, talk.group = name, (name[::-1] if not name[::-1].startswith("_") else name)
        await talk.join()
        queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, "quorum", exchange=name)
        await talk.produce(name.encode(), messageid=name)
        taken = await talk.take()
        assert (taken.body, taken.headers["x-oms-h-destination"]) == (name.encode(), name)
        await talk.ack(taken.receipt)
        await talk.nothing()
        [got] = await asyncio.to_thread(natives.take, rabbitmq_url, queue, 1)
        assert got.body == name.encode()


def _read(got: Got, name: str) -> str | None:
    """Return a field as a native consumer reads it."""
    properties: BasicProperties = got.properties
    slot = SLOTS.get(name)
    text: str | None = getattr(properties, slot) if slot else None
    return text if text is not None else properties.headers.get(f"oms_h_{name}")
