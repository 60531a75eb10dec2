"""Clients that disappeared without a FIN or a reset, while nothing is sent."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from bridge.server import connection_limits
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, running
from tests.server.test_hostile_clients import until_idle


@BOTH
async def test_a_client_that_answers_no_ping_is_disconnected(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PING_INTERVAL", 0.3)
    monkeypatch.setattr(connection_limits, "PING_TIMEOUT", 1.0)
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        streams = [client.request("/push", flush=False) for _ in range(20)]
        client.flush()
        await client.until(lambda: all(client.answers[stream].status for stream in streams))
        await until_idle(app)  # the client reads no more, so it answers no ping
        assert (app.disconnects, app.active) == (20, 0)


@BOTH
async def test_a_client_that_answers_pings_stays(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PING_INTERVAL", 0.3)
    monkeypatch.setattr(connection_limits, "PING_TIMEOUT", 1.0)
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        for _ in range(20):
            client.request("/push", flush=False)
        client.flush()
        await client.until(lambda: client.pings == 1)
        seen = asyncio.get_running_loop().time()
        await client.until(lambda: client.pings >= 5)  # longer than it may be silent
        assert asyncio.get_running_loop().time() - seen > 1.0  # one timer for all streams, not one each
        assert (app.disconnects, app.active) == (0, 20)


async def test_a_client_without_requests_is_not_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PING_INTERVAL", 0.05)
    monkeypatch.setattr(connection_limits, "KEEP_ALIVE", 0.5)
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        await client.ended()
        assert (client.pings, client.goaway) == (0, ErrorCodes.NO_ERROR)


@BOTH
@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has no such options")
async def test_tcp_probes_silent_clients(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        stream = client.request("/push")
        await client.until(lambda: client.answers[stream].status == 200)
        assert _probes(server.port, client.writer.get_extra_info("sockname")) == (30, 10, 3)


def _probes(port: int, peer: tuple[str, int]) -> tuple[int, ...]:
    """Idle seconds, interval and number of the TCP probes of the accepted socket of `peer`."""
    for entry in Path("/dev/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as accepted:
                if (accepted.getsockname()[1:2], accepted.getpeername()) != ((port,), peer):
                    continue
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                return tuple(accepted.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        except OSError:
            continue  # no connected socket
    raise AssertionError("no such connection")
