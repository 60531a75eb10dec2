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


@pytest.mark.parametrize(("listening", "dialled"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::", "::1")])
def test_a_close_is_seen_where_all_addresses_are_listened_on(states: TcpStates, listening: str, dialled: str) -> None:
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    with socket.create_server((listening, 0), family=family, dualstack_ipv6=listening == "::") as server:
        client = socket.create_connection((dialled, server.getsockname()[1]))
        accepted, remote = server.accept()
        reads_reply = states.watch((listening, server.getsockname()[1]), remote[:2])
        assert reads_reply()
        client.close()
        assert not reads_reply()
        accepted.close()
        assert not reads_reply()


def test_a_connection_to_an_address_that_is_not_known_counts_as_open(states: TcpStates) -> None:
    """Such as 127.0.0.2, to which a client with 127.0.0.1 has connected."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        client = socket.create_connection(("127.0.0.2", server.getsockname()[1]), source_address=("127.0.0.1", 0))
        accepted, remote = server.accept()
        reads_reply = states.watch(("0.0.0.0", server.getsockname()[1]), remote)
        assert reads_reply()
        client.close()
        accepted.close()
        assert reads_reply()


def test_what_the_kernel_does_not_say_counts_as_open(states: TcpStates) -> None:
    states.close()
    assert states.is_open(("127.0.0.1", 1), ("127.0.0.1", 2))
