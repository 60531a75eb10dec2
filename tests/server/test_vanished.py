"""Clients that are gone without a word: no FIN, no reset, nothing being sent."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from bridge.server import listener
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, running
from tests.server.test_hostile_clients import settle


@BOTH
async def test_a_client_that_answers_no_ping_is_gone(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PING", 0.3)
    monkeypatch.setattr(listener, "PONG", 1.0)
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        streams = [client.request("/push", flush=False) for _ in range(20)]
        client.flush()
        await client.until(lambda: all(client.answers[stream].status for stream in streams))
        await settle(app)  # and it reads no more, so it answers nothing
        assert (app.heard, app.active) == (20, 0)


@BOTH
async def test_a_client_that_answers_stays(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PING", 0.3)
    monkeypatch.setattr(listener, "PONG", 1.0)
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        for _ in range(20):
            client.request("/push", flush=False)
        client.flush()
        await client.until(lambda: client.pings == 1)
        seen = asyncio.get_running_loop().time()
        await client.until(lambda: client.pings >= 5)  # longer than it may be silent
        assert asyncio.get_running_loop().time() - seen > 1.0  # one timer for all streams, not one each
        assert (app.heard, app.active) == (0, 20)


async def test_a_client_that_asks_nothing_is_not_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PING", 0.05)
    monkeypatch.setattr(listener, "KEEP_ALIVE", 0.5)
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        await client.ended()
        assert (client.pings, client.goaway) == (0, ErrorCodes.NO_ERROR)


@BOTH
@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has no such options")
async def test_tcp_asks_after_silent_clients(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        stream = client.request("/push")
        await client.until(lambda: client.answers[stream].status == 200)
        assert _probes(server.port, client.writer.get_extra_info("sockname")) == (30, 10, 3)


def _probes(port: int, peer: tuple[str, int]) -> tuple[int, ...]:
    """When, how often and how many times the accepted socket of `peer` asks."""
    for entry in Path("/dev/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if (one.getsockname()[1:2], one.getpeername()) != ((port,), peer):
                    continue
                assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                return tuple(one.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        except OSError:
            continue  # no connected socket
    raise AssertionError("no such connection")
