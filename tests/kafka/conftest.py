"""The Kafka that the tests of a worker may stop, kill and pause, beside the shared one that always runs."""

import signal
from collections.abc import Iterator

import pytest

from adapters.kafka.consume import poller
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security
from tests.kafka.clients import PASSWORD, USER


@pytest.fixture(scope="session")
def _stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    security = Security({USER: PASSWORD})
    with own_kafka(tmp_path_factory.mktemp("brokers") / "stoppable", security=security) as kafka:
        yield kafka


@pytest.fixture
def stoppable_kafka(_stoppable: Kafka) -> Iterator[Kafka]:
    """One node that runs at the start of each test, with the listeners of `tests.brokers.security` for `USER`.

    PLAINTEXT needs no login and may do everything. Topics and groups of earlier tests are there: use names of your own.
    """
    for node in _stoppable.nodes:
        node.send(signal.SIGCONT)
        if not node.running:
            node.start()
    yield _stoppable
    _stoppable.nodes[0].send(signal.SIGCONT)


@pytest.fixture
def patient_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let joining wait for the first record of each partition as long as that takes: the tests look at them at once.

    The consumer waits 3 s, which a busy machine may need for less.
    """
    monkeypatch.setattr(poller, "_FIRST", 600.0)
