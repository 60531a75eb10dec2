"""The listeners of a Kafka with security accept only clients that are allowed."""

import socket
import ssl

import pytest
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from tests.brokers.kafka import Kafka
from tests.kafka.clients import PASSWORD, USER, allow, consume, new_topic, produce

pytestmark = pytest.mark.extended

UNHEARD = {"api_version": (4, 3), "max_block_ms": 2000}
"""For a client that is refused: kafka-python tries until its time is up, whatever the reason.

Without the version its constructor would, for 30 s, and then leave sockets open.
"""


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = new_topic(kafka.bootstrap)
    allow(kafka.bootstrap, USER, name)
    return name


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_is_let_in(kafka: Kafka, topic: str, listener: str, mechanism: str) -> None:
    settings = _sasl(kafka, listener, mechanism, PASSWORD)
    servers = kafka.bootstrap_of(listener)
    produce(servers, topic, b"known", **settings)
    assert b"known" in consume(servers, topic, 1, **settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_not(kafka: Kafka, topic: str, mechanism: str) -> None:
    before = len(kafka.nodes[0].log)
    settings = _sasl(kafka, "SASL_PLAINTEXT", mechanism, "wrong") | UNHEARD
    with pytest.raises(KafkaTimeoutError):
        produce(kafka.bootstrap_of("SASL_PLAINTEXT"), topic, b"unknown", **settings)
    assert "Failed authentication" in kafka.nodes[0].log[before:]


def test_a_client_that_trusts_the_authority_speaks_tls(kafka: Kafka) -> None:
    name = new_topic(kafka.bootstrap)
    servers = kafka.bootstrap_of("SSL")
    settings = {"security_protocol": "SSL", "ssl_cafile": str(kafka.authority)}
    produce(servers, name, b"in private", **settings)
    assert consume(servers, name, 1, **settings) == [b"in private"]


def test_a_client_that_does_not_trust_it_refuses(kafka: Kafka) -> None:
    # Not with kafka-python, which leaves the socket of a refused handshake open.
    host, _, port = kafka.bootstrap_of("SSL").partition(":")
    with socket.create_connection((host, int(port))) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def test_a_topic_without_a_permission_is_closed(kafka: Kafka, topic: str) -> None:
    settings = _sasl(kafka, "SASL_PLAINTEXT", "PLAIN", PASSWORD)
    servers = kafka.bootstrap_of("SASL_PLAINTEXT")
    with pytest.raises(TopicAuthorizationFailedError):
        produce(servers, new_topic(kafka.bootstrap), b"forbidden", **settings)
    produce(servers, topic, b"allowed", **settings)


def _sasl(kafka: Kafka, listener: str, mechanism: str, password: str) -> dict[str, object]:
    return {
        "security_protocol": listener,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
        "ssl_cafile": str(kafka.authority),
    }
