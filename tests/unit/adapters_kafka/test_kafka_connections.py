"""Why no connection came about, as the operator reads it; and how one is closed."""

import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from adapters.kafka.connections import Client, Connections, _TcpTransport
from adapters.kafka.errors import no_connection
from adapters.kafka.options import Options

REFUSED = "Kafka at k:9092: the connection is refused: nothing listens there."
SILENT = "Kafka at k:9092: it does not answer."


def said(*failures: str, bootstrapped: bool = False) -> str:
    connections: Any = SimpleNamespace(failure=None, bootstrapped=bootstrapped)
    for failure in failures:
        Connections._failed(connections, KafkaConnectionError(failure))
    return no_connection(Options(("k:9092",)), connections.failure).detail


def test_an_attempt_that_was_cut_short_hides_no_reason() -> None:
    assert said("111 ECONNREFUSED", "Connection timed out") == REFUSED
    assert said("Connection timed out", "111 ECONNREFUSED") == REFUSED
    assert said("Connection timed out") == SILENT
    assert said("111 ECONNREFUSED", "Connection timed out", bootstrapped=True) == SILENT


def test_a_socket_is_not_taken_away_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads = threading.Event()
    read = _TcpTransport._sock_recv

    def slowly(transport: _TcpTransport) -> tuple[bytes, Exception | None]:
        reads.set()
        end = time.monotonic() + 0.3
        while transport._sock is not None and time.monotonic() < end:  # the other thread has time to take it
            time.sleep(0.001)
        return read(transport)

    monkeypatch.setattr(_TcpTransport, "_sock_recv", slowly)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        client = Client(bootstrap_servers=[f"127.0.0.1:{broker.getsockname()[1]}"])
        client._net.start()
        client.connections.call_soon(client.connections.bootstrap_async, 5_000)
        served, _ = broker.accept()
        with served:
            assert served.recv(4096)
            (transport,) = client.connections._transports
            served.sendall(b"half of an answer")
            assert reads.wait(5)
            client.close()
            assert served.recv(4096) == b""
    assert transport._sock is None
    assert not [each for each in caplog.records if each.exc_info]
