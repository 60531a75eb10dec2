"""For the tests that delay messages."""

from collections.abc import Callable, Iterator

import pytest

from tests.rabbitmq.waiting import ladder_of_its_own


@pytest.fixture(scope="module")
def prefix(rabbitmq_at_hand: Callable[[], str]) -> Iterator[str]:
    """One ladder for all tests of a module; it is gone after them."""
    with ladder_of_its_own(rabbitmq_at_hand()) as found:
        yield found
