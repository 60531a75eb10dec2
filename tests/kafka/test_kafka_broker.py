"""The Kafka that tests start keeps what it acknowledged, comes back where it was, and leaves nothing behind."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.broker import logs_of_running
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.kafka.clients import consume, copies, new_topic, produce


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


def test_what_is_produced_is_consumed(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    produce(kafka_servers, topic, b"one", b"two")
    assert consume(kafka_servers, topic, 2) == [b"one", b"two"]


@pytest.mark.extended
@pytest.mark.parametrize(("end", "cleanly"), [(Kafka.stop, True), (Kafka.kill, False)], ids=["stop", "kill"])
def test_data_and_address_outlive_the_process(kafka: Kafka, end: Callable[[Kafka], None], cleanly: bool) -> None:
    topic = new_topic(kafka.bootstrap)
    produce(kafka.bootstrap, topic, b"before")
    pid = kafka.nodes[0].pid
    end(kafka)
    assert not _runs(pid)
    assert (kafka.nodes[0].data / ".kafka_cleanshutdown").exists() == cleanly
    kafka.start()
    produce(kafka.bootstrap, topic, b"after")
    assert consume(kafka.bootstrap, topic, 2) == [b"before", b"after"]


@pytest.mark.extended
def test_the_port_of_a_stopped_broker_is_refused_and_given_to_nobody(kafka: Kafka) -> None:
    port = _port(kafka.bootstrap)
    kafka.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    kafka.start()
    socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.extended
def test_a_failure_shows_the_log_of_a_fixture(kafka: Kafka) -> None:
    kafka.restart()  # the end of the log is shown, and other tests have used this broker
    assert "Kafka Server started" in dict(logs_of_running())[f"log of Kafka's node-1, {kafka.bootstrap}"]


@pytest.mark.extended
def test_two_of_three_nodes_go_on_and_a_third_catches_up(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka", nodes=3) as kafka:
        first, second, _ = kafka.nodes
        topic = new_topic(kafka.bootstrap)
        assert copies(kafka.bootstrap, topic) == (3, 2)
        produce(kafka.bootstrap, topic, b"three")
        second.kill()
        produce(kafka.bootstrap, topic, b"two")
        second.start()
        first.stop()  # as two must be in sync, the one that was away is needed now
        produce(kafka.bootstrap, topic, b"two again")
        assert consume(kafka.bootstrap, topic, 3) == [b"three", b"two", b"two again"]


@pytest.mark.extended
def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka") as kafka:
        pid, port = kafka.nodes[0].pid, _port(kafka.bootstrap)
        assert _runs(pid)
    assert not _runs(pid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    assert not [title for title, _ in logs_of_running() if kafka.bootstrap in title]


@pytest.mark.extended
def test_a_failure_shows_the_log_of_a_broker_that_has_ended(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised, own_kafka(tmp_path / "kafka"):
        _ = 1 / 0
    assert "Kafka Server started" in "".join(raised.value.__notes__)


@pytest.mark.extended
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    kafka = own_kafka(tmp_path / "kafka")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", _port(kafka.bootstrap)))
        other.listen()
        with pytest.raises(AssertionError, match="Address already in use"), kafka:
            pass
    assert not [title for title, _ in logs_of_running() if kafka.bootstrap in title]


def _port(servers: str) -> int:
    return int(servers.rpartition(":")[2])


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
