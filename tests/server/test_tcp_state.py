"""What the kernel says of a connection whose other side has closed it, or half of it."""

import socket
from collections.abc import Iterator

import pytest

from bridge.server.tcp_state import TcpStates


@pytest.fixture
def states() -> Iterator[TcpStates]:
    states = TcpStates()
    yield states
    states.close()


@pytest.mark.parametrize(
    ("listening", "dialled"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")],
)
def test_a_half_close_and_a_close_are_seen(states: TcpStates, listening: str, dialled: str) -> None:
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    with socket.create_server((listening, 0), family=family, dualstack_ipv6=listening == "::") as server:
        client = socket.create_connection((dialled, server.getsockname()[1]))
        accepted, _ = server.accept()
        ends = accepted.getsockname()[:2], accepted.getpeername()[:2]
        assert states.is_open(*ends)
        client.shutdown(socket.SHUT_WR)
        assert not states.is_open(*ends)
        client.close()
        accepted.close()
        assert not states.is_open(*ends)


def test_what_the_kernel_does_not_say_counts_as_open(states: TcpStates) -> None:
    states.close()
    assert states.is_open(("127.0.0.1", 1), ("127.0.0.1", 2))
