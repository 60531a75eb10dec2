"""For the adapters that are judged by the kit."""

from collections.abc import Iterator

import pytest

from tests.brokers.ports import held_port


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port at which nothing listens."""
    with held_port() as port:
        yield port
