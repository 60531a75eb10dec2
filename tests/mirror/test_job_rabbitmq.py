"""The job as its users run it, on RabbitMQ: processes, a bridge, from publishing to SQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mirror.deployment import Deployment, deployed
from tests.mirror.end_to_end import assert_mirrored_twice
from tests.mirror.killing import assert_kills_lose_nothing

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("quick_jvm")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    with deployed("rabbitmq", tmp_path) as found:
        yield found


@pytest.mark.usefixtures("commands_share_spark")
def test_from_publishing_to_sql(place: Deployment) -> None:
    assert_mirrored_twice(place)


@pytest.mark.usefixtures("archived_jvm")
def test_kills_lose_and_double_nothing(place: Deployment) -> None:
    assert_kills_lose_nothing(place, "group", "worker")
