"""The pages about moving run the mirror's commands, and so Spark."""

import pytest

from tests.mirror.jvm import quick_start


@pytest.fixture(scope="session")
def archived_jvm() -> None:
    """Let every Spark start quickly."""
    quick_start(make_archive=True)
