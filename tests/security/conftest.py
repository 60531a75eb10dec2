"""A trap for every test that wants one."""

from collections.abc import Iterator

import pytest

from tests.security.endpoint import Trap


@pytest.fixture
def trap() -> Iterator[Trap]:
    """Hold a port on which nothing may connect."""
    trap = Trap()
    yield trap
    trap.close()
