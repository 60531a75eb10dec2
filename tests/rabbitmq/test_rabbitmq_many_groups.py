"""More than a hundred groups come, leave and come again, on a RabbitMQ of their own: it keeps queues for each."""

from pathlib import Path

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.ledger.churn import churn
from tests.rabbitmq.bridged import backend

pytestmark = pytest.mark.extended

AT_ONCE = 15
"""Groups: the broker makes quorum queues for each."""


async def test_each_gets_what_it_has_not_acknowledged(tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit:
        await churn(tmp_path / "bridge", backend(rabbit.url, partitions=1), rounds=2, at_once=AT_ONCE)
