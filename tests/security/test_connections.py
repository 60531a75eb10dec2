"""Clients that open connections and send nothing: others are served, and so is the management port."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.http.asking import VERSION
from tests.launch import Bridge

FILES: Final = 256
LIMIT: Final = 20
GUARD: Final = 30.0
IDLE: Final = 75.0
"""Seconds after which a silent connection is closed."""


@pytest.fixture(params=["hypercorn", "granian"])
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def silent(bridge: Bridge, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that send nothing."""
    url = urlsplit(bridge.url)
    with ExitStack() as sockets:
        yield [
            sockets.enter_context(socket.create_connection((url.hostname, url.port), timeout=GUARD))
            for _ in range(count)
        ]


def is_closed(connection: socket.socket) -> bool:
    """Whether the bridge has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def until_open(connections: list[socket.socket], count: int, seconds: float = GUARD) -> None:
    """Wait until the bridge has closed all connections but `count`."""
    deadline = time.monotonic() + seconds
    while (found := sum(not is_closed(each) for each in connections)) != count:
        assert time.monotonic() < deadline, f"{found} connections are open, not {count}"
        time.sleep(0.05)


def alive(bridge: Bridge) -> int:
    return httpx.get(f"{bridge.management}/livez", trust_env=False, timeout=GUARD).status_code


def ask_as(address: str, bridge: Bridge) -> int:
    """Ask from another address of the loopback network."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), headers=[VERSION], timeout=GUARD) as client:
        return client.get(f"{bridge.url}/v1/capabilities").status_code


def test_one_address_has_its_share_of_connections(server: str, tmp_path: Path) -> None:
    with Bridge(tmp_path, server=server, settings={"OMS_LIMITS__CONNECTIONS": str(LIMIT)}) as bridge:
        with silent(bridge, 2 * LIMIT) as connections:
            until_open(connections, LIMIT // 2)
            assert alive(bridge) == ask_as("127.0.0.2", bridge) == httpx.codes.OK
            assert bridge.log.count("connections are refused") == 1
        deadline = time.monotonic() + GUARD
        while True:  # Granian's closed connections are counted until the next look at them
            try:
                assert ask_as("127.0.0.1", bridge) == httpx.codes.OK
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the address of the attacker is not served any more"
            else:
                break


def test_descriptors_are_left_for_the_management_port(server: str, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, limits[1]))
    try:
        bridge = Bridge(tmp_path, server=server, settings={"OMS_LIMITS__CLIENT_SHARE": "100"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    resource.prlimit(bridge.pid, resource.RLIMIT_NOFILE, (FILES, FILES))  # Granian raises its limit at the start
    with bridge, silent(bridge, FILES + 50):
        for _ in range(20):  # the bridge may need a moment to accept all it can
            assert alive(bridge) == httpx.codes.OK
            time.sleep(0.1)
        assert bridge.log.count("limits.connections is lowered") == 1


@pytest.mark.extended
def test_silent_connections_are_closed(server: str, tmp_path: Path) -> None:
    with Bridge(tmp_path, server=server) as bridge, silent(bridge, 100) as connections:
        until_open(connections, 0, IDLE + GUARD)
        assert ask_as("127.0.0.1", bridge) == httpx.codes.OK
