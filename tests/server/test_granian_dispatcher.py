"""How requests reach the application under Granian: at once with their body, or in a task that waits for it."""

import asyncio
from collections.abc import Awaitable

import httpx
import pytest
from h2.errors import ErrorCodes
from starlette.types import Message, Receive, Scope, Send

from bridge.continuation import Continuation, Timeouts
from bridge.server import connection_limits, granian, granian_dispatcher
from bridge.server.connection_limits import Admission
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, read_body, reply, running

ANSWER = b"\r\n\r\n1.1 5"
HEAD = b"POST /size HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n"


class AtOnce:
    """Answers POST at once, GET later, and fails for DELETE."""

    def __init__(self) -> None:
        self.events: list[Message | None] = []
        self.in_task: list[bool] = []

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"later " + await read_body(receive))

    def begin(self, scope: Scope, event: Message | None, receive: Receive, send: Send) -> Awaitable[None] | None:
        self.events.append(event)
        self.in_task.append(asyncio.current_task() is not None)
        if scope["method"] == "DELETE":
            raise ValueError("a bug in the application")
        if event is None:
            return self(scope, receive, send)
        send({"type": "http.response.start", "status": 200, "headers": []})
        send({"type": "http.response.body", "body": b"at once " + event["body"]})
        return None


async def test_a_request_with_its_body_needs_no_task() -> None:
    app = AtOnce()
    async with running("granian", app) as server:
        url = f"http://127.0.0.1:{server.port}/"
        for two in (False, True):
            async with httpx.AsyncClient(http1=not two, http2=two) as client:
                assert (await client.post(url, content=b"hello")).text == "at once hello"
                assert (await client.get(url)).text == "later "
    assert [event and event["body"] for event in app.events] == [b"hello", None] * 2
    assert app.in_task == [False] * 4


async def test_over_http_2_a_request_arrives_with_the_end_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response before it resets the stream: httpx and others, which send the end on its own, lose the response."""
    monkeypatch.setattr(granian_dispatcher, "ARRIVAL", 60)
    app = AtOnce()
    async with running("granian", app) as server, connected(server.port) as client:
        post = client.request("/", method="POST", headers=[("content-length", "5")], end=False)
        client.data(post, b"hello")
        for _ in range(10):
            await client.answer(client.request("/"))
        assert app.events == [None] * 10
        client.data(post, b"", end=True)
        answer = await client.answer(post)
    assert (answer.status, bytes(answer.body), answer.reset) == (200, b"at once hello", None)


async def test_over_http_2_a_body_in_one_frame_needs_no_task() -> None:
    app = AtOnce()
    async with running("granian", app) as server, connected(server.port) as client:
        post = client.request("/", method="POST", headers=[("content-length", "5")], end=False)
        client.h2.send_data(post, b"hello", end_stream=True)
        client.flush()
        assert (await client.answer(post)).body == b"at once hello"
    assert app.events == [{"type": "http.request", "body": b"hello", "more_body": False}]
    assert app.in_task == [False]


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


async def test_an_application_that_fails_before_it_has_begun_answers_500() -> None:
    async with running("granian", AtOnce()) as server, httpx.AsyncClient() as client:
        answer = await client.delete(f"http://127.0.0.1:{server.port}/")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")


class Continues:
    """Answers a POST when the backend has answered, without a task."""

    def __init__(self) -> None:
        self.stored: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        self.in_task: list[bool] = []

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"later " + await read_body(receive))

    def begin(self, _scope: Scope, _event: Message | None, _receive: Receive, send: Send) -> Awaitable[None]:
        def answer() -> None:
            self.in_task.append(asyncio.current_task() is not None)
            body = self.stored.result()
            send({"type": "http.response.start", "status": 200, "headers": []})
            send({"type": "http.response.body", "body": body})

        self.begun.set()
        return Continuation(self.stored, Timeouts(60), answer)


@pytest.mark.parametrize("two", [False, True])
async def test_an_answer_of_the_backend_is_waited_for_without_a_task(*, two: bool) -> None:
    app = Continues()
    async with running("granian", app) as server, httpx.AsyncClient(http1=not two, http2=two) as client:
        posts = [asyncio.ensure_future(client.post(f"http://127.0.0.1:{server.port}/", content=b"5")) for _ in range(3)]
        await app.begun.wait()
        app.stored.set_result(b"stored")
        assert {(await post).text for post in posts} == {"stored"}
    assert app.in_task == [False] * 3


async def test_an_answer_of_the_backend_that_is_a_defect_is_500() -> None:
    app = Continues()
    app.stored.set_exception(ValueError("a bug in the application"))
    async with running("granian", app) as server, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{server.port}/", content=b"hello")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")


@pytest.mark.parametrize("stored", [True, False])
async def test_a_request_that_waits_for_the_backend_at_the_stop_is_answered(*, stored: bool) -> None:
    app = Continues()
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
    app = Continues()
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
