"""Native programs of Kafka and RabbitMQ get the context of a span, and spans have the context of native messages."""

from pathlib import Path

import httpx
import pika
import pytest

from tests.kafka import bridged as on_kafka
from tests.kafka import natives as kafka
from tests.launch import Bridge
from tests.rabbitmq import bridged as on_rabbitmq
from tests.rabbitmq import natives as rabbitmq
from tests.tracing.receiver import PATIENCE, QUICK, Receiver

pytestmark = pytest.mark.extended

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
VERSION = {"x-oms-version": "1.0.0"}


def produce(bridge: Bridge, destination: str) -> None:
    headers = VERSION | {"x-oms-h-destination": destination}
    sent = httpx.post(f"{bridge.url}/v1/messages", headers=headers, content=b"1", trust_env=False, timeout=PATIENCE)
    assert sent.status_code == 200, sent.text


def pull(bridge: Bridge, source: str, wait: int) -> int:
    headers = VERSION | {"x-oms-source": source, "x-oms-consumerid": "billing", "x-oms-waitmills": str(wait)}
    return httpx.get(f"{bridge.url}/v1/messages", headers=headers, trust_env=False, timeout=PATIENCE).status_code


def check(receiver: Receiver, destination: str, system: str, found: str) -> None:
    """Compare the span of a produce with the traceparent that a native program found, and that of a pull."""
    send, *pulls = receiver.wait_for(f"send {destination}", f"pull {destination}")
    version, trace, span, flags = found.split("-")
    assert (version, trace, span, int(flags, 16) & 1) == ("00", send.trace, send.id, 1)
    assert (TRACE, PARENT) in {(each.trace, each.parent) for each in pulls}
    assert {each.attributes["messaging.system"] for each in (send, *pulls)} == {system}


def test_kafka(kafka_servers: str, tmp_path: Path) -> None:
    topic = kafka.topic_of(kafka_servers, 1)
    kafka.write(kafka_servers, topic, [(None, b"0", [("traceparent", TRACEPARENT.encode())])])
    with Receiver.over_http() as receiver:
        settings = {"OMS_TRACING__ENDPOINT": receiver.url, **QUICK}
        with Bridge(tmp_path, backend=on_kafka.backend(kafka_servers), settings=settings) as bridge:
            assert pull(bridge, topic, 50_000) == 200
            produce(bridge, topic)
            headers = dict(kafka.read(kafka_servers, topic, 2)[1].headers)
            check(receiver, topic, "kafka", headers["traceparent"].decode())


def test_rabbitmq(rabbitmq_url: str, tmp_path: Path) -> None:
    exchange = rabbitmq.exchange_of(rabbitmq_url, "topic")
    queue = rabbitmq.queue_of(rabbitmq_url, exchange=exchange)
    with Receiver.over_http() as receiver:
        settings = {"OMS_TRACING__ENDPOINT": receiver.url, **QUICK}
        with Bridge(tmp_path, backend=on_rabbitmq.backend(rabbitmq_url), settings=settings) as bridge:
            assert pull(bridge, exchange, 0) == 204  # makes the group's queues
            properties = pika.BasicProperties(headers={"traceparent": TRACEPARENT})
            rabbitmq.write(rabbitmq_url, exchange, [rabbitmq.Sent(b"0", "0", properties)])
            assert pull(bridge, exchange, 50_000) == 200
            produce(bridge, exchange)
            check(
                receiver,
                exchange,
                "rabbitmq",
                rabbitmq.take(rabbitmq_url, queue, 2)[1].properties.headers["traceparent"],
            )
