"""The brokers that all tests of a worker share: each test makes its own topics, queues and groups."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers.broker import Broker
from tests.brokers.provide import given_kafka, given_rabbitmq, own_kafka, own_rabbitmq


class _Shared:
    """Started when it is first asked for. Where none can be had, that is found out once."""

    def __init__(self, given: str | None, own: Callable[[Path], Broker], directory: Path) -> None:
        self._address = given
        self._own = own
        self._directory = directory
        self._stack = ExitStack()
        self._failure: BaseException | None = None

    def address(self) -> str:
        if self._failure is not None:
            raise self._failure
        if self._address is None:
            try:
                self._address = self._stack.enter_context(self._own(self._directory)).address
            except BaseException as failure:
                self._failure = failure
                raise
        return self._address

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def kafka_at_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Bootstrap servers; the broker starts only when a test asks for them."""
    shared = _Shared(given_kafka(), own_kafka, tmp_path_factory.mktemp("brokers") / "kafka")
    yield shared.address
    shared.stop()


@pytest.fixture(scope="session")
def kafka_servers(kafka_at_hand: Callable[[], str]) -> str:
    """Bootstrap servers."""
    return kafka_at_hand()


@pytest.fixture(scope="session")
def rabbitmq_at_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """`amqp://…/vhost`; the broker starts only when a test asks for it."""
    shared = _Shared(given_rabbitmq(), own_rabbitmq, tmp_path_factory.mktemp("brokers") / "rabbitmq")
    yield shared.address
    shared.stop()


@pytest.fixture(scope="session")
def rabbitmq_url(rabbitmq_at_hand: Callable[[], str]) -> str:
    """`amqp://…/vhost`."""
    return rabbitmq_at_hand()
