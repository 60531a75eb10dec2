"""How requests reach the application under Granian: with their body if it arrives soon."""

import asyncio

import httpx
import pytest
from h2.errors import ErrorCodes
from starlette.types import Receive, Scope, Send

from bridge.server import connection_limits, granian, granian_dispatcher
from bridge.server.connection_limits import Admission
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, read_body, reply, running

ANSWER = b"\r\n\r\n1.1 5"
HEAD = b"POST /size HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n"


class Noted:
    """Answers with the body, and notes when each request begins; fails for DELETE."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["method"])
        if scope["method"] == "DELETE":
            raise ValueError("a bug in the application")
        await reply(send, b"read " + await read_body(receive))


async def test_over_http_2_a_request_arrives_with_the_end_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response before it resets the stream: httpx and others, which send the end on its own, lose the response."""
    monkeypatch.setattr(granian_dispatcher, "ARRIVAL", 60)
    app = Noted()
    async with running("granian", app) as server, connected(server.port) as client:
        post = client.request("/", method="POST", headers=[("content-length", "5")], end=False)
        client.data(post, b"hello")
        for _ in range(10):
            await client.answer(client.request("/"))
        assert app.begun == ["GET"] * 10
        client.data(post, b"", end=True)
        answer = await client.answer(post)
    assert (answer.status, bytes(answer.body), answer.reset) == (200, b"read hello", None)


async def test_over_http_1_the_event_with_all_declared_bytes_is_the_last_one() -> None:
    """Granian reports the end in a separate event, which would have to be waited for."""
    ends: list[bool] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        ends.append((await receive())["more_body"])
        await reply(send, b"")

    async with running("granian", app) as server, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.port}/"
        for body in (b"", b"hello", bytes(1000)):
            await client.post(url, content=body, headers={"content-length": str(len(body))})
        await client.post(url, content=body, headers={"transfer-encoding": "chunked"})
    assert ends == [False, False, False, True]


@pytest.mark.parametrize("arrival", [60, 0.02])
@pytest.mark.parametrize("headers", [[], [("content-length", "13")]])
async def test_over_http_2_a_body_of_several_parts_is_read(
    monkeypatch: pytest.MonkeyPatch, arrival: float, headers: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(granian_dispatcher, "ARRIVAL", arrival)
    async with running("granian", App()) as server, connected(server.port) as client:
        post = client.request("/echo", method="POST", headers=headers, end=False)
        for part in (b"one ", b"two ", b"three"):
            client.data(post, part)
            await asyncio.sleep(0.1)
        client.data(post, b"", end=True)
        answer = await client.answer(post)
        assert (answer.status, bytes(answer.body), answer.reset) == (200, b"one two three", None)


async def test_over_http_2_a_body_beyond_its_content_length_is_reset() -> None:
    """So at most `UNCOUNTED` bytes of it are received before it is counted."""
    async with running("granian", App()) as server, connected(server.port) as client:
        post = client.request("/", method="POST", headers=[("content-length", "5")], end=False)
        client.data(post, b"hello")
        client.data(post, b" and more", end=True)
        answer = await client.answer(post)
    assert (answer.status, answer.reset) == (0, ErrorCodes.PROTOCOL_ERROR)


async def test_an_application_that_fails_answers_500() -> None:
    async with running("granian", Noted()) as server, httpx.AsyncClient() as client:
        answer = await client.delete(f"http://127.0.0.1:{server.port}/")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")


class Waits:
    """Answers a POST when the backend has answered."""

    def __init__(self) -> None:
        self.stored: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        self.begun.set()
        await reply(send, await self.stored)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_request_that_waits_for_the_backend_at_the_stop_is_answered(*, stored: bool) -> None:
    app = Waits()
    async with running("granian", app, grace=10 if stored else 0.2) as server, httpx.AsyncClient() as client:
        post = asyncio.ensure_future(client.post(f"http://127.0.0.1:{server.port}/", content=b"hello"))
        await app.begun.wait()
        server.stop.set()
        await asyncio.sleep(0.1)
        if stored:
            app.stored.set_result(b"stored")
        answer = await post
    assert (answer.status_code, answer.text[:6]) == (200, "stored") if stored else answer.status_code == 504


async def test_a_connection_that_waits_for_the_backend_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "KEEP_ALIVE", 0.3)
    monkeypatch.setattr(granian, "INTERVAL", 0.05)
    app = Waits()
    async with running("granian", app, admission=Admission(9, 100, str)) as server, connected(server.port) as client:
        post = client.request("/", method="POST", headers=[("content-length", "5")], end=False)
        client.data(post, b"hello", end=True)
        await app.begun.wait()
        await asyncio.sleep(1)
        app.stored.set_result(b"stored")
        assert (await client.answer(post)).body == b"stored"
        await client.ended()


@BOTH
async def test_a_body_that_begins_late_is_read(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granian_dispatcher, "ARRIVAL", 0.02)
    app = App()
    async with running(kind, app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD)
        async with asyncio.timeout(15):
            while not app.started:  # noqa: ASYNC110 - the application has no event for its tests
                await asyncio.sleep(0.01)
            writer.write(b"hello")
            assert await _read_until(reader, ANSWER)
        writer.close()


@BOTH
async def test_a_request_that_waits_for_its_body_at_the_stop_is_answered(kind: Kind) -> None:
    async with running(kind, App(), grace=10) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD)
        await asyncio.sleep(0.1)
        server.stop.set()
        await asyncio.sleep(0.1)
        writer.write(b"hello")
        async with asyncio.timeout(15):
            assert await _read_until(reader, ANSWER)
        writer.close()


async def _read_until(reader: asyncio.StreamReader, end: bytes) -> bool:
    answer = b""
    while end not in answer and (part := await reader.read(65536)):
        answer += part
    return end in answer
