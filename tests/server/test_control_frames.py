"""Frames that advance no request have a budget for each connection; a flood of them delays no other client."""

import asyncio
from typing import Any, Final, cast

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame

from bridge.server.hypercorn.connection import Connection, Server
from bridge.server.hypercorn.h2_connection import (
    EARNED_BY_DATA,
    FRAME_BURST,
    SETTINGS_COST,
    SMALL_DATA,
    TokenBucket,
    frame_cost,
)
from bridge.server.hypercorn.http1 import Http1
from bridge.server.hypercorn.http2 import SLICE, Http2
from bridge.server.hypercorn.stream import PIECES
from tests.server.raw_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WHOLE,
    WINDOW_UPDATE,
    connected,
    frame,
    number,
    request,
    setting,
)
from tests.server.serving import BOTH, App, Kind, running

FLOODS: Final = {
    "empty DATA": frame(DATA, 0, 1),
    "DATA of one byte": frame(DATA, 0, 1, b"x"),
    "DATA with padding alone": frame(DATA, PADDED, 1, b"\x0a" + bytes(10)),
    "PING": frame(PING, payload=bytes(8)),
    "answers to no PING": frame(PING, ACK, 0, bytes(8)),
    "SETTINGS": frame(SETTINGS),
    "acknowledgements": frame(SETTINGS, ACK),
    "WINDOW_UPDATE": frame(WINDOW_UPDATE, payload=number(1)),
    "WINDOW_UPDATE of a stream": frame(WINDOW_UPDATE, 0, 1, number(1)),
    "PRIORITY": frame(PRIORITY, 0, 3, number(0) + b"\x0f"),
    "unknown frames": frame(UNKNOWN, 0, 0, b"?"),
    "RST_STREAM of an ended stream": frame(RST_STREAM, 0, 1, number(8)),
}
UPLOAD = frame(HEADERS, END_HEADERS, 1, request("/echo", method="POST"))


async def test_a_flood_ends_its_connection(subtests: pytest.Subtests) -> None:
    app = App()
    async with running("hypercorn", app) as server, connected(server.port) as stranger:
        for name, flood in FLOODS.items():
            with subtests.test(name):
                async with connected(server.port) as client:
                    client.send(UPLOAD + flood * (3 * FRAME_BURST))
                    codes = [each.code async for each in client.frames() if each.kind == GOAWAY]
                    assert codes == [ErrorCodes.ENHANCE_YOUR_CALM]
                await stranger.alive()


@BOTH
async def test_a_flood_leaves_the_server_well(kind: Kind, subtests: pytest.Subtests) -> None:
    async with running(kind, App()) as server:
        for name, flood in FLOODS.items():
            with subtests.test(name):
                async with connected(server.port) as client, connected(server.port) as stranger:
                    client.send(UPLOAD + flood * (3 * FRAME_BURST))
                    await stranger.alive()
                    stranger.send(frame(HEADERS, WHOLE, 1, request()))
                    await stranger.until(DATA, 1, END_STREAM)


async def test_a_client_that_reads_a_long_response_may_open_its_windows() -> None:
    """It sends more frames than the budget has at first, but not more than the response allows."""
    frames = 2 * FRAME_BURST // EARNED_BY_DATA
    async with running("hypercorn", App()) as server, connected(server.port, setting(4, 1 << 30)) as client:
        client.send(frame(WINDOW_UPDATE, payload=number(1 << 30)))
        client.send(frame(HEADERS, WHOLE, 1, request(f"/chunks/{frames * 10_000}")))
        for _ in range(frames):
            await client.until(DATA, 1)
            client.send(frame(WINDOW_UPDATE, payload=number(1)) + frame(WINDOW_UPDATE, 0, 1, number(1)))
            client.send(frame(PING, payload=bytes(8)))
        await client.until(DATA, 1, END_STREAM)
        await client.alive()


async def test_a_body_of_many_frames_is_read() -> None:
    pieces = 3 * FRAME_BURST
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        client.send(frame(HEADERS, END_HEADERS, 1, request("/size", method="POST")))
        client.send(frame(DATA, 0, 1, b"x" * SMALL_DATA) * pieces + frame(DATA, END_STREAM, 1))
        assert (await client.until(DATA, 1)).payload == b"2 %d" % (pieces * SMALL_DATA)


async def test_unknown_settings_are_not_stored() -> None:
    connection = cast("Any", _Socket())
    protocol = Http2(connection)
    codes = b"".join(setting(code, 1) for code in range(0x100, 0xA00))
    await protocol.receive(PREFACE + frame(SETTINGS, payload=codes))
    assert len(protocol._h2.remote_settings) < 10
    await protocol.disconnected()


class _Socket:
    """As much of a Connection as the protocols need to receive."""

    closing = False
    unsent = 0
    tls_and_addresses = (False, None, None)

    class server:  # noqa: N801 - an attribute of Connection
        header_limit = 32768

    def write(self, data: bytes) -> None:
        """Drop it."""

    def set_idle(self, idle: bool) -> None:
        """Do nothing."""


async def test_other_tasks_have_their_turn_between_slices() -> None:
    """One read can hold thousands of frames."""
    turns: list[int] = []
    protocol = Http2(cast("Connection", _Socket()))
    await protocol.receive(PREFACE + frame(SETTINGS))
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await protocol.receive(frame(PING, payload=bytes(8)) * (SLICE - 1))
    assert not turns
    await protocol.receive(frame(PING, payload=bytes(8)) * SLICE)
    assert turns
    await protocol.disconnected()


async def test_other_tasks_have_their_turn_between_chunks() -> None:
    turns: list[int] = []
    connection = cast("Any", _Socket())
    connection.server = Server(App(), 32768, Http1, Http2)
    protocol = Http1(connection)
    await protocol.receive(b"POST /size HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await protocol.receive(b"1\r\nx\r\n" * (PIECES - 1))
    assert not turns
    await protocol.receive(b"1\r\nx\r\n")
    assert turns
    await protocol.disconnected()


def test_what_a_frame_counts_as() -> None:
    assert frame_cost(HeadersFrame(1)) == 0
    assert frame_cost(DataFrame(1, b"x" * SMALL_DATA)) == 0
    assert frame_cost(DataFrame(1, b"", flags=["END_STREAM"])) == 0
    assert frame_cost(DataFrame(1, b"x" * (SMALL_DATA - 1))) == 1
    assert frame_cost(PingFrame(0)) == 1
    assert frame_cost(SettingsFrame(0)) == SETTINGS_COST


def test_a_bucket_holds_its_burst_and_what_was_earned() -> None:
    bucket = TokenBucket(10, 0, 20)
    assert bucket.take(10)
    assert not bucket.take()
    bucket.earn(15)
    bucket.earn(15)
    assert bucket.take(20)
    assert not bucket.take()
