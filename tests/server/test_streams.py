"""Responses that last for hours: the application learns at once what their clients do, which costs a bounded amount."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from tests.server.frames import TIMEOUT, Client, connected
from tests.server.serving import BOTH, App, Kind, running, until_blocked, until_tasks
from tests.server.test_hostile_clients import MEBIBYTE, assert_serves, resident, until_idle

SIZES = pytest.mark.parametrize(
    "size", [pytest.param(0, id="silent", marks=pytest.mark.extended), pytest.param(16384, id="sending")]
)
ZERO_LINGER = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing resets the connection."""


def kernel_buffers() -> int:
    """Bytes that the two sockets of a connection may hold."""
    limits = (Path(f"/proc/sys/net/ipv4/tcp_{side}mem").read_text("ascii") for side in "rw")
    return sum(int(limit.split()[2]) for limit in limits)


async def open_push(client: Client, app: App, size: int) -> int:
    """Open a push stream and wait until it is silent, or blocked."""
    stream = client.request(f"/push/{size}")
    await client.until(lambda: client.answers[stream].status == 200)
    await until_blocked(app)
    return stream


async def until_disconnected(app: App, streams: int = 1) -> None:
    await until_idle(app)
    assert (app.disconnects, app.active) == (streams, 0)


def _reset(client: Client, stream: int) -> None:
    client.h2.reset_stream(stream, ErrorCodes.CANCEL)
    client.flush()


def _half_close(client: Client, _stream: int) -> None:
    client.writer.write_eof()


def _close(client: Client, _stream: int) -> None:
    client.writer.transport.abort()


@BOTH
@pytest.mark.parametrize("leave", [_reset, _half_close, _close])
@pytest.mark.parametrize(
    ("size", "window"),
    [
        pytest.param(0, 65535, id="silent"),
        pytest.param(16384, 0, id="sending-no-window"),
        pytest.param(0, 0, id="silent-no-window", marks=pytest.mark.extended),
        pytest.param(16384, 65535, id="sending", marks=pytest.mark.extended),
    ],
)
async def test_the_application_learns_that_its_client_disconnected(
    kind: Kind, leave: Callable[[Client, int], None], size: int, window: int
) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=window, reading=False) as client:
        leave(client, await open_push(client, app, size))
        await until_disconnected(app)


@BOTH
@SIZES
@pytest.mark.parametrize("leave", ["half-close", "close", "reset"])
async def test_the_application_learns_it_over_http_1(kind: Kind, leave: str, size: int) -> None:
    app = App()
    async with running(kind, app) as server:
        client = await _open_push_http_1(server.port, app, size)
        _leave(client, leave)
        await until_disconnected(app)
        client.close()


@SIZES
@pytest.mark.parametrize("leave", ["half-close", "close", "reset"])
async def test_a_pipelined_request_does_not_hide_the_disconnect(leave: str, size: int) -> None:
    app = App()  # hyper reads the end only if nothing else has arrived: Granian notices a close at its next send
    async with running("hypercorn", app) as server:
        client = await _open_push_http_1(server.port, app, size)
        client.sendall(b"GET /size HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asyncio.sleep(0.1)
        _leave(client, leave)
        await until_disconnected(app)
        client.close()


async def _open_push_http_1(port: int, app: App, size: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET /push/%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % size)
    client.setblocking(False)
    async with asyncio.timeout(TIMEOUT):
        assert (await asyncio.get_running_loop().sock_recv(client, 15)).startswith(b"HTTP/1.1 200")
        await until_blocked(app)
    return client


def _leave(client: socket.socket, how: str) -> None:
    if how == "half-close":
        client.shutdown(socket.SHUT_WR)
        return
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ZERO_LINGER)
    client.close()


@BOTH
async def test_a_socket_that_is_not_read_makes_small_parts_wait(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=1 << 26) as client:
        client.open_window(1 << 26)
        stream = client.request("/push/1000")
        async with asyncio.timeout(TIMEOUT):
            while not app.sent:  # noqa: ASYNC110 - the application under test has no event for its tests
                await asyncio.sleep(0.01)
            await until_blocked(app)
        assert app.sent <= kernel_buffers() + MEBIBYTE
        if kind == "hypercorn":  # Granian reads on only after the answer to a ping, and would take this client for dead
            client.h2.ping(bytes(8))
            client.flush()
            await asyncio.sleep(0.1)
        _reset(client, stream)
        await until_disconnected(app)


@BOTH
async def test_a_blocked_stream_holds_up_no_other(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, reading=False) as client:
        client.open_window(MEBIBYTE)
        flood = await open_push(client, app, 16384)
        await client.until(lambda: len(client.answers[flood].body) == 65535)
        assert app.sent - 65535 <= MEBIBYTE
        assert len((await client.answer(client.request("/bytes/50000"))).body) == 50000


@BOTH
async def test_large_parts_wait_too(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=0, reading=False) as client:
        await open_push(client, app, MEBIBYTE)
        assert app.sent <= MEBIBYTE


@BOTH
@pytest.mark.extended
async def test_many_blocked_streams_leave_nothing_behind(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        await assert_serves(server.port)
        tasks, files = len(asyncio.all_tasks()), _files()
        held = []
        for turn in (1, 2, 3, 4):
            async with connected(server.port, window=0, reading=False) as client:
                streams = [client.request("/push/16384", flush=False) for _ in range(100)]
                client.flush()
                await client.until(partial(_begun, client, streams))
                await until_blocked(app)
                await assert_serves(server.port)
            await until_disconnected(app, 100 * turn)
            await until_tasks(tasks, TIMEOUT)
            async with asyncio.timeout(TIMEOUT):
                while _files() > files:  # noqa: ASYNC110 - the kernel has no event for it
                    await asyncio.sleep(0.05)
            held.append(resident())
        # Granian held 10 MiB more each time. The first round fills the allocators.
        assert held[-1] - held[0] <= 16 * MEBIBYTE


def _begun(client: Client, streams: list[int]) -> bool:
    return all(client.answers[stream].status for stream in streams)


def _files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


@BOTH
async def test_a_send_given_up_leaves_the_stream_and_its_connection_usable(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, reading=False) as client:
        client.open_window(MEBIBYTE)
        stream = client.request("/interrupt")
        await client.until(lambda: len(client.answers[stream].body) == 65535)
        await until_blocked(app)
        app.release.set()
        assert (await client.answer(client.request("/size"))).status == 200
        client.open_window(4 * MEBIBYTE, stream)
        answer = await client.answer(stream)
        assert (answer.ended, bytes(answer.body[-7:])) == (True, b"the end")


@BOTH
async def test_a_send_given_up_leaves_http_1_whole(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /interrupt HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await until_blocked(app)
        app.release.set()
        body = bytearray()
        async with asyncio.timeout(TIMEOUT):
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            assert await reader.readline() == b"\r\n"  # after the last chunk
            assert body[-7:] == b"the end"
            writer.write(b"GET /size HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


@BOTH
async def test_an_end_is_an_end(kind: Kind) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        answer = await client.answer(client.request("/chunks/30000"))
        assert (answer.ended, answer.reset, len(answer.body)) == (True, None, 30000)
        assert (await _read_http_1(server.port, b"/chunks/30000")).endswith(b"x\r\n0\r\n\r\n")


@BOTH
async def test_a_failure_is_no_end_over_http_1(kind: Kind) -> None:
    async with running(kind, App()) as server:
        answer = await _read_http_1(server.port, b"/crash")
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"4\r\nhalf\r\n")


async def _read_http_1(port: int, path: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    async with asyncio.timeout(TIMEOUT):
        answer = await reader.read()
    writer.close()
    return answer
