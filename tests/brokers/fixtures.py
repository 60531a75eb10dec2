"""The Kafka that all tests of a worker share: each makes topics and groups of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers.provide import given_kafka, own_kafka


class _Shared:
    """Started when it is first asked for. Where none can be had, that is found out once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers = given_kafka()
        self._stack = ExitStack()
        self._failure: BaseException | None = None

    def servers(self) -> str:
        if self._failure is not None:
            raise self._failure
        if self._servers is None:
            try:
                self._servers = self._stack.enter_context(own_kafka(self._directory)).bootstrap
            except BaseException as failure:
                self._failure = failure
                raise
        return self._servers

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def kafka_at_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Bootstrap servers, for whoever may or may not need them."""
    shared = _Shared(tmp_path_factory.mktemp("brokers") / "kafka")
    yield shared.servers
    shared.stop()


@pytest.fixture(scope="session")
def kafka_servers(kafka_at_hand: Callable[[], str]) -> str:
    """Bootstrap servers."""
    return kafka_at_hand()
