"""The stop: requests in flight are answered, and `serve` returns whatever the clients do."""

import asyncio
import json
import socket
import threading

import httpx
import pytest

from bridge.server import Listener, serve
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, fails_on_stock, running, timeout_for


async def until_started(app: App, number: int) -> None:
    while app.started < number:  # noqa: ASYNC110 - the application under test has no event for its tests
        await asyncio.sleep(0.01)


@BOTH
async def test_requests_in_flight_are_answered(kind: Kind) -> None:
    app = App()
    async with (
        running(kind, app, grace=10) as server,
        connected(server.port) as client,
        httpx.AsyncClient() as one,
        httpx.AsyncClient(http1=False, http2=True) as two,
    ):
        base = f"http://127.0.0.1:{server.port}"
        others = [asyncio.create_task(each.get(f"{base}/hold", timeout=30)) for each in (one, two)]
        held = [client.request("/hold") for _ in range(20)]
        await until_started(app, 22)
        server.stop.set()
        await asyncio.sleep(0.3)
        app.release.set()
        for stream in held:
            assert bytes((await client.answer(stream)).body) == b"held"
        for each in others:
            assert (await each).text == "held"


@BOTH
async def test_the_last_answer_over_http_1_says_that_the_connection_closes(kind: Kind) -> None:
    """Without it, a client sends its next request into a connection that ends: the outcome of a POST is unknown."""
    app = App()
    async with running(kind, app, grace=10) as server, httpx.AsyncClient() as client:
        base = f"http://127.0.0.1:{server.port}"
        assert "connection" not in (await client.get(f"{base}/size")).headers
        held = asyncio.create_task(client.get(f"{base}/hold", timeout=30))
        await until_started(app, 2)
        server.stop.set()
        app.release.set()  # at once, as the drain answers pulls
        assert (await held).headers["connection"] == "close"


async def test_granian_closes_a_kept_connection_with_its_503() -> None:
    app = App()
    async with running("granian", app, grace=10) as server, httpx.AsyncClient() as one, httpx.AsyncClient() as two:
        base = f"http://127.0.0.1:{server.port}"
        await two.get(f"{base}/size")
        held = asyncio.create_task(one.get(f"{base}/hold", timeout=30))
        await until_started(app, 2)
        server.stop.set()
        await asyncio.sleep(0.1)
        refused = await two.post(f"{base}/echo", content=b"message")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        app.release.set()
        await held


@BOTH
async def test_an_endless_answer_over_http_1_does_not_hold_the_stop(kind: Kind) -> None:
    await _endless(kind, "1.1")


@fails_on_stock("it waits for its clients before it looks at its timeout", since=(3, 12))
async def test_an_endless_answer_does_not_hold_the_stop(kind: Kind) -> None:
    await _endless(kind, "2")


async def _endless(kind: Kind, version: str) -> None:
    app = App()
    threads = threading.active_count()
    async with (
        running(kind, app, grace=0.5) as server,
        httpx.AsyncClient(http1=version == "1.1", http2=version == "2") as client,
        client.stream("GET", f"http://127.0.0.1:{server.port}/endless") as answer,
    ):
        assert await anext(answer.aiter_text()) == "tick\n"
        server.stop.set()
        async with asyncio.timeout(timeout_for(kind)):
            await server.task
        await asyncio.sleep(0)
        assert app.active == 0
        assert threading.active_count() == threads


@BOTH
async def test_idle_clients_do_not_hold_the_stop(kind: Kind) -> None:
    async with (
        running(kind, App(), grace=0.5) as server,
        httpx.AsyncClient() as one,
        httpx.AsyncClient(http1=False, http2=True) as two,
    ):
        for client in (one, two):
            assert (await client.get(f"http://127.0.0.1:{server.port}/size")).status_code == 200
        server.stop.set()
        async with asyncio.timeout(10):
            await server.task


@BOTH
async def test_an_application_that_ignores_its_end_does_not_hold_the_stop(kind: Kind) -> None:
    free = asyncio.Event()

    async def stubborn(_scope: object, _receive: object, _send: object) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with running(kind, stubborn, grace=0.2) as server, connected(server.port) as client:
        client.request("/")
        await asyncio.sleep(0.3)
        server.stop.set()
        async with asyncio.timeout(15):
            await server.task
        free.set()
        await asyncio.sleep(0.1)


@BOTH
async def test_the_port_is_free_again(kind: Kind) -> None:
    async with running(kind, App(), grace=0.2) as first, connected(first.port) as client:
        client.request("/endless")
        await asyncio.sleep(0.2)
        first.stop.set()
        await first.task
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        again = asyncio.create_task(
            serve(kind, App(), Listener("127.0.0.1", first.port), stop=stop, grace=0.2, ready=ready.set_result)  # type: ignore[arg-type]
        )
        await asyncio.wait({ready, again}, return_when=asyncio.FIRST_COMPLETED)
        async with connected(ready.result()) as another:
            assert (await another.answer(another.request("/size"))).status == 200
        stop.set()
        await again


async def test_hypercorn_refuses_new_streams_and_answers_the_old() -> None:
    app = App()
    async with running("hypercorn", app, grace=10) as server, connected(server.port) as client:
        held = client.request("/hold")
        await until_started(app, 1)
        server.stop.set()
        await asyncio.sleep(0.1)
        assert (await client.answer(client.request("/size"))).reset == 7  # REFUSED_STREAM: safe to send again
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port))
        app.release.set()
        assert (await client.answer(held)).ended
        await client.ended()
        assert (client.goaway, client.last_stream) == (0, 3)


async def test_granian_answers_503_to_new_requests_until_the_old_are_answered() -> None:
    app = App()
    async with running("granian", app, grace=10) as server, connected(server.port) as client:
        held = client.request("/hold")
        await until_started(app, 1)
        server.stop.set()
        await asyncio.sleep(0.1)
        assert (await client.answer(client.request("/size"))).status == 503
        app.release.set()
        assert (await client.answer(held)).ended
        await client.until(lambda: client.goaway == 0)


@BOTH
async def test_two_servers_share_a_loop_and_stop_apart(kind: Kind) -> None:
    async with running(kind, App(), grace=0.2) as data, running("hypercorn", App(), grace=0.2) as management:
        data.stop.set()
        await data.task
        async with connected(management.port) as client:
            assert (await client.answer(client.request("/size"))).status == 200


@BOTH
async def test_a_polite_goodbye_does_not_stop_the_answers(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server, connected(server.port) as client:
        held = client.request("/hold")
        await until_started(app, 1)
        client.writer.write(b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(8))  # GOAWAY, NO_ERROR
        await asyncio.sleep(0.2)
        app.release.set()
        assert (await client.answer(held)).status == 200


@BOTH
async def test_a_stream_that_outlives_the_grace_is_reset_and_not_just_cut(kind: Kind) -> None:
    async with running(kind, App(), grace=0.2) as server, connected(server.port) as client:
        stream = client.request("/endless")
        await client.until(lambda: bool(client.answers[stream].body))
        server.stop.set()
        answer = await client.answer(stream)
        assert (answer.ended, answer.reset) == (False, 2)  # INTERNAL_ERROR


@BOTH
async def test_a_request_that_outlives_the_grace_is_answered_504(kind: Kind) -> None:
    app = App()
    async with (
        running(kind, app, grace=0.2) as server,
        connected(server.port) as client,
        httpx.AsyncClient() as http_1,
    ):
        other = asyncio.create_task(http_1.get(f"http://127.0.0.1:{server.port}/hold", timeout=30))
        stream = client.request("/hold")
        await until_started(app, 2)
        server.stop.set()
        answer = await client.answer(stream)
        assert (answer.status, answer.headers["x-oms-error"], answer.ended) == (504, "outcome-unknown", True)
        assert json.loads(answer.body)["code"] == "outcome-unknown"
        assert answer.headers["cache-control"] == "no-store"
        assert ((await other).status_code, (await other).json()["status"]) == (504, 504)
