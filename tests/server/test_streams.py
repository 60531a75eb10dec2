"""Answers that go on for hours: what their clients do is heard at once, and costs a bounded amount."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from tests.server.frames import PATIENCE, Client, connected
from tests.server.serving import BOTH, App, Kind, back_to, blocked, running
from tests.server.test_hostile_clients import MEBIBYTE, resident, settle, works

SIZES = pytest.mark.parametrize("size", [0, 16384], ids=["silent", "pouring"])
NOTHING = struct.pack("ii", 1, 0)
"""SO_LINGER: a close resets the connection."""


def kernel() -> int:
    """Bytes that the two sockets of a connection may hold between them."""
    limits = (Path(f"/proc/sys/net/ipv4/tcp_{side}mem").read_text("ascii") for side in "rw")
    return sum(int(limit.split()[2]) for limit in limits)


async def pushing(client: Client, app: App, size: int) -> int:
    """Open a push stream and wait until it is silent, or blocked."""
    stream = client.request(f"/push/{size}")
    await client.until(lambda: client.answers[stream].status == 200)
    await blocked(app)
    return stream


async def heard(app: App, streams: int = 1) -> None:
    await settle(app)
    assert (app.heard, app.active) == (streams, 0)


def _reset(client: Client, stream: int) -> None:
    client.h2.reset_stream(stream, ErrorCodes.CANCEL)
    client.flush()


def _half_close(client: Client, _stream: int) -> None:
    client.writer.write_eof()


def _close(client: Client, _stream: int) -> None:
    client.writer.transport.abort()


@BOTH
@SIZES
@pytest.mark.parametrize("leave", [_reset, _half_close, _close])
@pytest.mark.parametrize("window", [0, 65535])
async def test_the_application_hears_that_its_client_left(
    kind: Kind, leave: Callable[[Client, int], None], size: int, window: int
) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=window, reading=False) as client:
        leave(client, await pushing(client, app, size))
        await heard(app)


@BOTH
@SIZES
@pytest.mark.parametrize("leave", ["half-close", "close", "reset"])
async def test_it_hears_so_over_http_1(kind: Kind, leave: str, size: int) -> None:
    app = App()
    async with running(kind, app) as server:
        client = await _pushing_http_1(server.port, app, size)
        _leave(client, leave)
        await heard(app)
        client.close()


@SIZES
@pytest.mark.parametrize("leave", ["half-close", "close", "reset"])
async def test_a_pipelined_request_does_not_hide_that_its_client_left(leave: str, size: int) -> None:
    app = App()  # hyper looks for the end only while nothing else has arrived: Granian hears a close at its next send
    async with running("hypercorn", app) as server:
        client = await _pushing_http_1(server.port, app, size)
        client.sendall(b"GET /size HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asyncio.sleep(0.1)
        _leave(client, leave)
        await heard(app)
        client.close()


async def _pushing_http_1(port: int, app: App, size: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET /push/%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % size)
    client.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        assert (await asyncio.get_running_loop().sock_recv(client, 15)).startswith(b"HTTP/1.1 200")
        await blocked(app)
    return client


def _leave(client: socket.socket, how: str) -> None:
    if how == "half-close":
        client.shutdown(socket.SHUT_WR)
        return
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOTHING)
    client.close()


@BOTH
async def test_a_socket_that_is_not_read_makes_small_parts_wait(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=1 << 26) as client:
        client.open_window(1 << 26)
        stream = client.request("/push/1000")
        async with asyncio.timeout(PATIENCE):
            while not app.sent:  # noqa: ASYNC110 - the application under test knows nothing of its tests
                await asyncio.sleep(0.01)
            await blocked(app)
        assert app.sent <= kernel() + MEBIBYTE
        if (
            kind == "hypercorn"
        ):  # Granian reads on only when a ping is answered: it would give up on it, like on a dead one
            client.h2.ping(bytes(8))
            client.flush()
            await asyncio.sleep(0.1)
        _reset(client, stream)
        await heard(app)


@BOTH
async def test_a_blocked_stream_holds_up_no_other(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, reading=False) as client:
        client.open_window(MEBIBYTE)
        flood = await pushing(client, app, 16384)
        await client.until(lambda: len(client.answers[flood].body) == 65535)
        assert app.sent - 65535 <= MEBIBYTE
        assert len((await client.answer(client.request("/bytes/50000"))).body) == 50000


@BOTH
async def test_large_parts_wait_too(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port, window=0, reading=False) as client:
        await pushing(client, app, MEBIBYTE)
        assert app.sent <= MEBIBYTE


@BOTH
async def test_many_blocked_streams_leave_nothing_behind(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        await works(server.port)
        tasks, files = len(asyncio.all_tasks()), _files()
        held = []
        for turn in (1, 2, 3, 4):
            async with connected(server.port, window=0, reading=False) as client:
                streams = [client.request("/push/16384", flush=False) for _ in range(100)]
                client.flush()
                await client.until(partial(_begun, client, streams))
                await blocked(app)
                await works(server.port)
            await heard(app, 100 * turn)
            await back_to(tasks, PATIENCE)
            async with asyncio.timeout(PATIENCE):
                while _files() > files:  # noqa: ASYNC110 - the kernel does not tell
                    await asyncio.sleep(0.05)
            held.append(resident())
        # Granian held 10 MiB each time. The first one fills the allocators.
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
        stream = client.request("/patience")
        await client.until(lambda: len(client.answers[stream].body) == 65535)
        await blocked(app)
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
        writer.write(b"GET /patience HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await blocked(app)
        app.release.set()
        body = bytearray()
        async with asyncio.timeout(PATIENCE):
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
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return answer
