"""Both protocols on one port, bodies of every size, nothing lost."""

import asyncio

import httpx
import pytest

from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, running

SIZES = [0, 1, 100, 16384, 65535, 65536, 1_000_000, 10_000_000]


@BOTH
@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_the_port_speaks_both_protocols(kind: Kind, version: str) -> None:
    async with (
        running(kind, App()) as server,
        httpx.AsyncClient(http1=version == "1.1", http2=version == "2", timeout=60) as client,
    ):
        for size in SIZES:
            answer = await client.post(f"http://127.0.0.1:{server.port}/size", content=b"x" * size)
            assert answer.text == f"{version} {size}"
            answer = await client.get(f"http://127.0.0.1:{server.port}/bytes/{size}")
            assert len(answer.content) == size
            answer = await client.get(f"http://127.0.0.1:{server.port}/chunks/{size}")
            assert len(answer.content) == size


@BOTH
@pytest.mark.parametrize("path", ["bytes", "chunks"])
async def test_every_answer_ends(kind: Kind, path: str) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        for size in (0, 1, 9_999, 10_000, 16_383, 16_384, 16_385, 65_535, 65_536, 131_071, 2_000_000):
            answer = await client.answer(client.request(f"/{path}/{size}"))
            assert (answer.status, len(answer.body), answer.ended) == (200, size, True)


@BOTH
async def test_a_connection_carries_thousands_of_requests(kind: Kind) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        for _ in range(30):
            streams = [client.request("/size", method="POST", body=b"x" * 10, flush=False) for _ in range(100)]
            client.flush()
            for stream in streams:
                assert (await client.answer(stream)).body == b"2 10"


@BOTH
async def test_an_upload_waits_for_its_own_reader_only(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        unread = client.request("/hold", method="POST", body=b"x" * 65_535, end=False)
        for _ in range(4):
            stream = client.request("/size", method="POST", end=False)
            await client.upload(stream, b"x" * 300_000)
            assert (await client.answer(stream)).body == b"2 300000"
        app.release.set()
        assert (await client.answer(unread)).status == 200


@BOTH
@pytest.mark.parametrize(
    "upgrade",
    [
        b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        (
            b"connection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZQ==\r\nsec-websocket-version: 13\r\n"
        ),
    ],
)
async def test_a_request_to_upgrade_is_answered_over_http_1(kind: Kind, upgrade: bytes) -> None:
    async with running(kind, App()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /size HTTP/1.1\r\nhost: localhost\r\n" + upgrade + b"\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


@BOTH
async def test_a_head_request_has_no_body(kind: Kind) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        answer = await client.answer(client.request("/bytes/100", method="HEAD"))
        assert (answer.status, answer.headers["content-length"], bytes(answer.body)) == (200, "100", b"")


async def test_hypercorn_does_not_name_itself() -> None:
    async with running("hypercorn", App()) as server, connected(server.port) as client:
        assert "server" not in (await client.answer(client.request("/size"))).headers


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running("hypercorn", App()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"".join(b"GET /bytes/%d HTTP/1.1\r\nhost: a\r\n\r\n" % size for size in (1, 2, 3)))
        for size in (1, 2, 3):
            assert b"content-length: %d\r\n" % size in await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(size)
        writer.close()
