"""Clients that leave while the bridge joins their group, which takes Kafka seconds."""

from pathlib import Path

import pytest

from tests.kafka.bridged import backend
from tests.launch import Bridge
from tests.leaving import lose_no_message, lose_no_message_of_an_open_group


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def test_a_client_that_leaves_while_its_group_is_joined_loses_no_message(
    kafka_servers: str, tmp_path: Path, server: str
) -> None:
    with Bridge(tmp_path, server=server, backend=backend(kafka_servers)) as bridge:
        for path in (b"/v1/messages", b"/v1/push"):
            for ack in (b"true", b"false"):
                lose_no_message(bridge, path, ack, 0.1)
        assert bridge.terminate() == 0


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def test_a_client_that_leaves_an_open_group_loses_no_message(kafka_servers: str, tmp_path: Path, server: str) -> None:
    with Bridge(tmp_path, server=server, backend=backend(kafka_servers)) as bridge:
        for ack in (b"true", b"false"):
            lose_no_message_of_an_open_group(bridge, ack)
        assert bridge.terminate() == 0
