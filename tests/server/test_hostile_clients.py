"""Clients that stop reading, disconnect, cancel or stay silent cost a bounded amount, and harm no other client."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from bridge.server import connection_limits, granian
from bridge.server.connection_limits import Admission
from tests.server.frames import Client, connected
from tests.server.serving import BOTH, App, Kind, fails_on_stock, running, timeout_for, until_blocked, until_tasks

MEBIBYTE = 1 << 20


async def until_idle(app: App, seconds: float = 10.0) -> None:
    """Wait until no request of `app` is running."""
    for _ in range(int(seconds / 0.05)):
        if not app.active:
            return
        await asyncio.sleep(0.05)


async def assert_serves(port: int) -> None:
    async with connected(port) as client:
        assert (await client.answer(client.request("/size"))).status == 200


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


@fails_on_stock("1.38 GB in 2 s: a window of zero resumes the writer")
async def test_a_reader_that_stops_makes_the_writer_wait(kind: Kind) -> None:
    app = App()
    limit = 16 * MEBIBYTE  # enough to show an unbounded buffer without filling the machine
    async with running(kind, app) as server, connected(server.port, reading=False) as client:
        flood = client.request(f"/flood/{limit}")
        await client.until(lambda: len(client.answers[flood].body) == 65_535, timeout_for(kind))
        await until_blocked(app)
        assert app.sent - 65_535 <= MEBIBYTE


@BOTH
async def test_a_reader_that_stops_on_many_streams_costs_little_memory(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=0, reading=False) as client:
        for _ in range(100):
            client.request(f"/flood/{1 << 40}", flush=False)
        client.flush()
        await client.until(lambda: len(client.answers) == 100 and all(a.status for a in client.answers.values()))
        before = resident()
        await asyncio.sleep(0.5)
        assert resident() - before <= 100 * MEBIBYTE // 2
        await assert_serves(server.port)


@fails_on_stock("streams of a client that disconnected with unsent bytes wait without end")
async def test_a_client_that_disconnects_leaves_nothing_behind(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        tasks = len(asyncio.all_tasks())
        async with connected(server.port, window=0, reading=False) as client:
            for _ in range(100):
                client.request("/bytes/100000", flush=False)
                client.request("/endless", flush=False)
            client.flush()
            await asyncio.sleep(0.5)
        async with connected(server.port, reading=False) as client:
            client.request("/hold", method="POST", body=b"x" * 60_000, end=False)
            client.request(f"/flood/{1 << 24}")
            await asyncio.sleep(0.5)
        app.release.set()
        await until_idle(app, timeout_for(kind))
        assert app.active == 0
        await until_tasks(tasks, timeout_for(kind))


@BOTH
async def test_receive_reports_the_disconnect(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        async with connected(server.port) as client:
            stream = client.request("/endless")
            await client.until(lambda: bool(client.answers[stream].body))
            client.h2.reset_stream(stream, ErrorCodes.CANCEL)
            client.flush()
            await until_idle(app)
            assert app.active == 0
            stream = client.request("/endless")
            await client.until(lambda: bool(client.answers[stream].body))
        await until_idle(app)
        assert app.active == 0


def _cancel(client: Client) -> None:
    stream = client.request("/hold", flush=False)
    client.h2.reset_stream(stream, ErrorCodes.CANCEL)


def _overflow(client: Client) -> None:
    """Make the server reset the stream: a window beyond 2^31 - 1."""
    stream = client.request("/hold", flush=False)
    client.h2.increment_flow_control_window(2**30, stream)
    client.flush()
    raw = b"\x00\x00\x04\x08\x00" + stream.to_bytes(4, "big") + (2**31 - 1).to_bytes(4, "big")
    client.writer.write(raw)


@fails_on_stock("900 HEADERS + RST_STREAM at once ran 900 handlers")
async def test_rapid_resets_end_the_connection(kind: Kind) -> None:
    await _rapidly(kind, _cancel)


@fails_on_stock("900 HEADERS + RST_STREAM at once ran 900 handlers", ours=("hypercorn",))
async def test_rapid_resets_that_the_server_is_made_to_send_end_the_connection(kind: Kind) -> None:
    """hyper, below Granian, counts its own resets with a limit of 1024."""
    await _rapidly(kind, _overflow)


def _exceed(client: Client) -> None:
    """Open one stream more; those beyond the limit are refused."""
    client.request("/hold", flush=False)


def _malform(client: Client) -> None:
    client.request("/hold", headers=[("connection", "keep-alive")], flush=False)


@pytest.mark.parametrize("attack", [_exceed, _malform])
async def test_many_streams_that_are_refused_or_malformed_end_the_connection(attack: Callable[[Client], None]) -> None:
    await _rapidly("hypercorn", attack)


async def _rapidly(kind: Kind, attack: Callable[[Client], None]) -> None:
    app = App()
    async with running(kind, app) as server:
        async with connected(server.port) as client:
            for _ in range(900):
                attack(client)
            client.flush()
            await client.until(lambda: client.goaway is not None or client.closed, timeout_for(kind))
            if kind != "granian":  # it closes at once, and the reset may overtake the GOAWAY
                assert client.goaway == ErrorCodes.ENHANCE_YOUR_CALM
        assert app.started <= 400
        app.release.set()
        await assert_serves(server.port)


async def test_a_client_may_cancel_now_and_then() -> None:
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        for _ in range(150):
            _cancel(client)
        client.flush()
        assert (await client.answer(client.request("/size"))).status == 200


@fails_on_stock("the preface counts as a request, and stops the timer of the idle connection", ours=("hypercorn",))
async def test_a_preface_and_then_silence_is_closed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Granian pings every 30 s instead, and keeps a client that answers."""
    monkeypatch.setattr(connection_limits, "KEEP_ALIVE", 0.5)
    async with running(kind, App()) as server, connected(server.port) as client:
        await client.ended(6 if kind == "stock" else 15)  # stock: keep_alive_timeout is 5 s
        assert client.goaway == ErrorCodes.NO_ERROR


@pytest.mark.parametrize("kind", ["hypercorn", "granian"])
async def test_an_open_request_is_not_idle(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push stream on Granian once ended after 75 s: the watch did not recognize its client."""
    monkeypatch.setattr(connection_limits, "KEEP_ALIVE", 0.3)
    monkeypatch.setattr(granian, "INTERVAL", 0.05)
    app = App()
    async with running(kind, app, admission=Admission(9, 100, str)) as server, connected(server.port) as client:
        held = client.request("/hold")
        await asyncio.sleep(1)
        app.release.set()
        assert (await client.answer(held)).status == 200
        await client.ended()


@fails_on_stock("the 1001st request drops every answer in flight")
async def test_no_number_of_requests_ends_a_connection(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        held = [client.request("/hold") for _ in range(40)]
        for _ in range(22):
            streams = [client.request("/size", flush=False) for _ in range(50)]
            client.flush()
            for stream in streams:
                assert (await client.answer(stream, timeout_for(kind))).status == 200
        app.release.set()
        for stream in held:
            assert (await client.answer(stream, timeout_for(kind))).status == 200


@fails_on_stock("more streams than allowed end the connection, also before the client has seen the limit")
async def test_too_many_streams_are_refused_one_by_one(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        streams = [client.request("/hold", flush=False) for _ in range(200)]
        client.flush()
        await client.until(lambda: sum(a.reset == 7 for a in client.answers.values()) == 72, timeout_for(kind))
        app.release.set()
        answers = [await client.answer(stream) for stream in streams]
        assert sum(answer.status == 200 for answer in answers) == 128
        assert sum(answer.reset == ErrorCodes.REFUSED_STREAM for answer in answers) == 72
