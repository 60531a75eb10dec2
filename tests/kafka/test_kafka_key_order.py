"""Messages of one key keep their order, whatever durability and qos their clients ask for."""

from uuid import uuid4

import pytest

from adapters.kafka.adapter import KafkaAdapter
from adapters.kafka.options import Client, Options
from bridge.message import Message
from tests.kafka.each_client import EACH_CLIENT
from tests.kafka.members import make
from tests.kafka.natives import read

COUNT = 2000


@pytest.fixture
def topic(kafka_servers: str) -> str:
    return make(kafka_servers)


@EACH_CLIENT
async def test_messages_of_one_key_with_different_wishes_keep_their_order(
    kafka_servers: str, client: Client, topic: str
) -> None:
    adapter = KafkaAdapter(Options((kafka_servers,), client=client, prefix=f"t{uuid4().hex[:8]}."))
    await adapter.start()
    try:
        assert await adapter.partitions(topic) == 1
        stored = [adapter.publish(_message(topic, number)) for number in range(COUNT)]
        assert [(await each).offset for each in stored] == list(range(COUNT))
    finally:
        await adapter.close()
    assert [int(record.value or b"") for record in read(kafka_servers, topic, COUNT)] == list(range(COUNT))


def _message(topic: str, number: int) -> Message:
    message = Message(topic, b"%d" % number, message_key="one", message_id=f"m{number}", partition=0, store_timestamp=1)
    return (message, message._replace(durability=0), message._replace(qos=1))[number % 3]
