"""Why no connection came about, as the operator reads it."""

from types import SimpleNamespace
from typing import Any

from kafka.errors import KafkaConnectionError

from adapters.kafka.connections import Connections
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
