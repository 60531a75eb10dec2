"""The RabbitMQ that the tests of a worker may stop, kill and pause, beside the shared one; names for delays."""

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.waiting import levels_of_their_own


@pytest.fixture(scope="module")
def prefix(rabbitmq_at_hand: Callable[[], str]) -> Iterator[str]:
    """The delay levels of all tests of a module; they are gone after them."""
    with levels_of_their_own(rabbitmq_at_hand()) as found:
        yield found


@pytest.fixture(scope="session")
def _stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / "stoppable") as rabbit:
        yield rabbit


@pytest.fixture
def stoppable_rabbitmq(_stoppable: RabbitMQ) -> Iterator[RabbitMQ]:
    """One that runs at the start of each test. Queues and users of earlier tests are there: use names of your own."""
    _stoppable.resume()
    if not _stoppable.nodes[0].running:
        _stoppable.start()
    yield _stoppable
    _stoppable.nodes[0].send(signal.SIGCONT)
