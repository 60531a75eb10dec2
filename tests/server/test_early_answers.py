"""A response before the end of its request does not harm other requests."""

import asyncio
import socket
from contextlib import suppress

import pytest

from tests.server.frames import TIMEOUT, connected
from tests.server.serving import BOTH, App, Kind, fails_on_stock, running, timeout_for, until_tasks


@fails_on_stock("a full body queue freezes the connection: DATA is awaited in its read loop")
async def test_an_answer_before_the_body_leaves_the_connection_alive(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        held = client.request("/hold")
        for _ in range(3):
            early = client.request("/early/413", method="POST", end=False, flush=False)
            for _ in range(40):
                client.data(early, b"x" * 100, flush=False)
            client.flush()
            assert (await client.answer(early, timeout_for(kind))).status == 413
        echo = client.request("/echo", method="POST", body=b"still here")
        assert (await client.answer(echo, timeout_for(kind))).body == b"still here"
        app.release.set()
        assert (await client.answer(held, timeout_for(kind))).status == 200


@fails_on_stock("DATA for an answered stream raises KeyError, which cancels the other streams of the connection")
async def test_a_body_that_goes_on_after_its_answer_cancels_no_other_stream(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        held = client.request("/hold")
        early = client.request("/early/413", method="POST", end=False)
        await client.until(lambda: client.answers[early].status == 413, timeout_for(kind))
        if client.answers[early].reset is None:
            client.data(early, b"more")
        await asyncio.sleep(0.2)
        app.release.set()
        assert (await client.answer(held, timeout_for(kind))).status == 200


@BOTH
async def test_an_upload_of_any_size_may_be_answered_early(kind: Kind) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        for _ in range(5):
            early = client.request("/early/413", method="POST", end=False)
            await client.upload(early, b"x" * 3_000_000)
            answer = await client.answer(early)
            assert (answer.status, answer.ended) == (413, True)
            assert answer.reset in {None, 0}  # NO_ERROR: "stop sending, the response is valid"
        # The discarded bytes were given back to the connection's window.
        stream = client.request("/size", method="POST", end=False)
        await client.upload(stream, b"x" * 9_000_000)
        assert (await client.answer(stream)).body == b"2 9000000"


@BOTH
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_http_1_answers_early_and_closes(kind: Kind, framing: str) -> None:
    async with running(kind, App()) as server:
        tasks = len(asyncio.all_tasks())
        chunked = framing == "chunked"
        length = b"transfer-encoding: chunked" if chunked else b"content-length: 100000000"
        block = b"10000\r\n" + b"x" * 65536 + b"\r\n" if chunked else b"x" * 65536
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"POST /early/413 HTTP/1.1\r\nhost: localhost\r\n" + length + b"\r\n\r\n")
            with pytest.raises(ConnectionError):  # a client that sends first and reads later is cut off
                await asyncio.wait_for(_send_endlessly(client, block), TIMEOUT)
            answer = b""
            with suppress(ConnectionResetError):
                while data := await loop.sock_recv(client, 65536):
                    answer += data
            await until_tasks(tasks, timeout_for(kind))
        assert answer.startswith(b"HTTP/1.1 413")
        assert answer.endswith(b"too early")
        assert answer.count(b"HTTP/1.1") == 1


async def test_hypercorn_delivers_a_long_early_answer_to_a_slow_reader() -> None:
    async with running("hypercorn", App()) as server:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            head = b"POST /bytes/12000000 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000000\r\n\r\n"
            await loop.sock_sendall(client, head + b"x" * 500_000)
            size = 0
            while data := await loop.sock_recv(client, 50_000):
                size += len(data)
                await asyncio.sleep(0.02)  # 4 s in all: longer than LINGER
        assert size > 12_000_000


async def _send_endlessly(client: socket.socket, block: bytes) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(client, block)


async def test_hypercorn_says_that_it_closes() -> None:
    async with running("hypercorn", App()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /early/401 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n")
        assert b"connection: close" in await reader.read()
        writer.close()


@fails_on_stock("if the application fails in the middle of a response, the client waits without end")
async def test_a_failure_in_the_middle_of_an_answer_is_seen(kind: Kind) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        answer = await client.answer(client.request("/crash"), timeout_for(kind))
        assert (answer.status, answer.ended, answer.reset) == (200, False, 2)  # INTERNAL_ERROR
        assert (await client.answer(client.request("/size"))).status == 200


@BOTH
async def test_a_failure_before_the_answer_is_a_500(kind: Kind) -> None:
    async def broken(_scope: object, _receive: object, _send: object) -> None:
        raise ValueError("a bug in the application")

    async with running(kind, broken) as server, connected(server.port) as client:
        answer = await client.answer(client.request("/"))
        assert (answer.status, answer.headers["x-oms-error"]) == (500, "internal")


@BOTH
async def test_headers_within_the_limit_arrive(kind: Kind, subtests: pytest.Subtests) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        for size in (8_000, 30_000):
            with subtests.test(str(size)):
                answer = await client.answer(client.request("/size", headers=[("x-much", "y" * size)]))
                assert answer.status == 200


@BOTH
async def test_headers_over_the_limit_are_refused(kind: Kind, subtests: pytest.Subtests) -> None:
    async with running(kind, App()) as server:
        for size in (33_000, 100_000, 500_000):
            with subtests.test(str(size)):
                await _refuses_headers(server.port, size)


async def _refuses_headers(port: int, size: int) -> None:
    async with connected(port) as client:
        fields = [(f"x-{at}", "y" * 1000) for at in range(size // 1000)]
        stream = client.request("/size", headers=fields)
        answer = client.answers[stream]
        await client.until(lambda: answer.over or client.goaway is not None or client.closed)
        # what is still on its way when the server closes is answered by a reset, which may overtake the GOAWAY
        is_reset = size > 100_000 and client.closed and not answer.status
        assert answer.status == 431 or client.goaway == 11 or is_reset  # 11: ENHANCE_YOUR_CALM
        if size < 100_000:
            assert answer.status == 431
            assert (await client.answer(client.request("/size"))).status == 200


@BOTH
async def test_http_1_headers_over_the_limit_are_refused(kind: Kind, subtests: pytest.Subtests) -> None:
    async with running(kind, App()) as server:
        for size in (40_000, 300_000):
            with subtests.test(str(size)):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /size HTTP/1.1\r\nhost: localhost\r\nx-much: " + b"y" * size + b"\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 431")
                writer.close()
