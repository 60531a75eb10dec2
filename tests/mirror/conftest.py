"""One Spark for all tests of a worker that need no job of their own."""

import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from bridge.mirror.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests of the mirror") as found:
        yield found


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Wait until something holds; a guard, no measure."""

    def wait(condition: Callable[[], object]) -> None:
        until = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.1)

    return wait
