"""Clients that leave while the bridge joins their group, which takes RabbitMQ some tenths of a second."""

from pathlib import Path

import pytest

from tests.launch import Bridge
from tests.leaving import lose_no_message, lose_no_message_of_an_open_group
from tests.rabbitmq.bridged import backend


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def test_a_client_that_leaves_while_its_group_is_joined_loses_no_message(
    rabbitmq_url: str, tmp_path: Path, server: str
) -> None:
    with Bridge(tmp_path, server=server, backend=backend(rabbitmq_url)) as bridge:
        for path in (b"/v1/messages", b"/v1/push"):
            for ack in (b"true", b"false"):
                lose_no_message(bridge, path, ack, 0.02)
        assert bridge.terminate() == 0


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def test_a_client_that_leaves_an_open_group_loses_no_message(rabbitmq_url: str, tmp_path: Path, server: str) -> None:
    with Bridge(tmp_path, server=server, backend=backend(rabbitmq_url)) as bridge:
        for ack in (b"true", b"false"):
            lose_no_message_of_an_open_group(bridge, ack)
        assert bridge.terminate() == 0
