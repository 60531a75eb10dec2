"""More than a hundred groups come, leave and come again, on a real Kafka."""

from pathlib import Path

import pytest

from tests.kafka.bridged import backend
from tests.ledger.churn import churn

pytestmark = pytest.mark.extended

AT_ONCE = 15
"""Groups: each joins and leaves the broker's own group of its name, which takes both of them a while."""


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
async def test_each_gets_what_it_has_not_acknowledged(client: str, kafka_servers: str, tmp_path: Path) -> None:
    url = backend(kafka_servers, client=client, partitions=1)
    await churn(tmp_path / "bridge", url, rounds=2, at_once=AT_ONCE)
