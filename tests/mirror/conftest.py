"""One Spark for all tests of a worker that need no job of their own."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from bridge.mirror.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests of the mirror") as found:
        yield found
