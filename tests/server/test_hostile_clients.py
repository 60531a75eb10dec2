"""Clients that stop reading, leave, cancel and say nothing cost a bounded amount, and nobody else."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from bridge.server import listener
from tests.server.frames import Client, connected
from tests.server.serving import BOTH, App, Kind, back_to, blocked, cured, patience, running

MEBIBYTE = 1 << 20


async def settle(app: App, seconds: float = 10.0) -> None:
    """Wait until no request of `app` is running."""
    for _ in range(int(seconds / 0.05)):
        if not app.active:
            return
        await asyncio.sleep(0.05)


async def works(port: int) -> None:
    async with connected(port) as client:
        assert (await client.answer(client.request("/size"))).status == 200


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


@cured("1.38 GB in 2 s: a window of zero resumes the writer")
async def test_a_reader_that_stops_makes_the_writer_wait(kind: Kind) -> None:
    app = App()
    limit = 16 * MEBIBYTE  # that an unbounded buffer takes the machine down proves nothing more
    async with running(kind, app) as server, connected(server.port, reading=False) as client:
        flood = client.request(f"/flood/{limit}")
        await client.until(lambda: len(client.answers[flood].body) == 65_535, patience(kind))
        await blocked(app)
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
        await works(server.port)


@cured("streams of a client that left with unsent bytes wait for ever")
async def test_a_client_that_leaves_leaves_nothing_behind(kind: Kind) -> None:
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
        await settle(app, patience(kind))
        assert app.active == 0
        await back_to(tasks, patience(kind))


@BOTH
async def test_a_listener_for_the_disconnect_hears_it(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        async with connected(server.port) as client:
            stream = client.request("/endless")
            await client.until(lambda: bool(client.answers[stream].body))
            client.h2.reset_stream(stream, ErrorCodes.CANCEL)
            client.flush()
            await settle(app)
            assert app.active == 0
            stream = client.request("/endless")
            await client.until(lambda: bool(client.answers[stream].body))
        await settle(app)
        assert app.active == 0


def _cancel(client: Client) -> None:
    stream = client.request("/hold", flush=False)
    client.h2.reset_stream(stream, ErrorCodes.CANCEL)


def _overflow(client: Client) -> None:
    """Make the server reset the stream itself: a window beyond 2^31 - 1."""
    stream = client.request("/hold", flush=False)
    client.h2.increment_flow_control_window(2**30, stream)
    client.flush()
    raw = b"\x00\x00\x04\x08\x00" + stream.to_bytes(4, "big") + (2**31 - 1).to_bytes(4, "big")
    client.writer.write(raw)


@cured("900 HEADERS + RST_STREAM at once ran 900 handlers")
@pytest.mark.parametrize("attack", [_cancel, _overflow])
async def test_rapid_resets_end_the_connection(kind: Kind, attack: Callable[[Client], None]) -> None:
    if kind == "granian" and attack is _overflow:
        pytest.skip("hyper counts local resets with a higher limit of its own (1024)")
    app = App()
    async with running(kind, app) as server:
        async with connected(server.port) as client:
            for _ in range(900):
                attack(client)
            client.flush()
            await client.until(lambda: client.goaway is not None or client.closed, patience(kind))
            if kind != "granian":  # it closes at once, which may overtake the GOAWAY
                assert client.goaway == ErrorCodes.ENHANCE_YOUR_CALM
        assert app.started <= 400
        app.release.set()
        await works(server.port)


async def test_a_client_that_cancels_now_and_then_is_welcome() -> None:
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        for _ in range(150):
            _cancel(client)
        client.flush()
        assert (await client.answer(client.request("/size"))).status == 200


@cured("the preface counts as a request, and stops the timer of the idle connection")
async def test_a_preface_and_then_silence_is_closed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "granian":
        pytest.skip("Granian pings instead, every 30 s: a client that answers may stay")
    monkeypatch.setattr(listener, "KEEP_ALIVE", 0.5)
    async with running(kind, App()) as server, connected(server.port) as client:
        await client.ended(6 if kind == "stock" else 15)  # stock: keep_alive_timeout is 5 s
        assert client.goaway == ErrorCodes.NO_ERROR


async def test_an_open_request_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "KEEP_ALIVE", 0.3)
    app = App()
    async with running("hypercorn", app) as server, connected(server.port) as client:
        held = client.request("/hold")
        await asyncio.sleep(1)
        app.release.set()
        assert (await client.answer(held)).status == 200
        await client.ended()


@cured("the 1001st request drops every answer in flight")
async def test_no_number_of_requests_ends_a_connection(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        held = [client.request("/hold") for _ in range(40)]
        for _ in range(22):
            streams = [client.request("/size", flush=False) for _ in range(50)]
            client.flush()
            for stream in streams:
                assert (await client.answer(stream, patience(kind))).status == 200
        app.release.set()
        for stream in held:
            assert (await client.answer(stream, patience(kind))).status == 200


@cured("more streams than allowed end the connection, also before the client has seen the limit")
async def test_too_many_streams_are_refused_one_by_one(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        streams = [client.request("/hold", flush=False) for _ in range(200)]
        client.flush()
        await client.until(lambda: sum(a.reset == 7 for a in client.answers.values()) == 72, patience(kind))
        app.release.set()
        answers = [await client.answer(stream) for stream in streams]
        assert sum(answer.status == 200 for answer in answers) == 128
        assert sum(answer.reset == ErrorCodes.REFUSED_STREAM for answer in answers) == 72
