"""The client's transport against sockets that answer as a test says."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bridge.client import Client, transport
from bridge.client.transport import (
    ClientRequest,
    ConnectionBroken,
    HttpTransport,
    NotConnected,
    ResponseTimedOut,
    TransportError,
)
from bridge.errors import BackendUnavailable, OutcomeUnknown
from bridge.message import Message

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GET = ClientRequest("GET", "/v1/messages", [])
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"
PATIENCE = 20.0


@asynccontextmanager
async def serving(talk: Talk, scheme: str = "http") -> AsyncIterator[HttpTransport]:
    """Serve each connection by `talk`, then close it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpTransport(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", verify=True)
    try:
        async with asyncio.timeout(PATIENCE):
            yield client
    finally:
        await client.close()
        server.close()


def answering(*pieces: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(piece)
        await writer.drain()

    return talk


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def closing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize(
    ("talk", "kind"),
    [
        (closing, ConnectionBroken),
        (answering(b""), ConnectionBroken),
        (answering(HEAD + b"\r\n{"), ConnectionBroken),
        (answering(b"\x15\x03\x03\x00\x02\x02\x28"), ConnectionBroken),
        (silent, ResponseTimedOut),
        (answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), ConnectionBroken),
    ],
    ids=["closed", "no response", "half a body", "a TLS alert", "silence", "half a chunk"],
)
async def test_a_request_that_may_have_been_executed(talk: Talk, kind: type[TransportError]) -> None:
    async with serving(talk) as client:
        with pytest.raises(kind):
            await client.send(GET, 0.2 if kind is ResponseTimedOut else PATIENCE)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid"])
async def test_a_request_that_was_not_sent(url: str) -> None:
    client = HttpTransport(url, verify=True)
    with pytest.raises(NotConnected):
        await client.send(GET, PATIENCE)
    with pytest.raises(NotConnected):
        async with client.stream(GET):
            pytest.fail("opened")
    await client.close()


async def test_a_handshake_that_does_not_end_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.1)
    async with serving(silent, "https") as client:
        with pytest.raises(NotConnected, match="ConnectionTimeoutError"):
            await client.send(GET, PATIENCE)


async def test_a_pull_is_not_repeated_when_an_idle_connection_breaks() -> None:
    """A pull with ack=False would lose the message of the first attempt."""
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(HEAD + b"\r\nok", b"")(reader, writer)

    async with serving(talk) as client:
        assert (await client.send(GET, PATIENCE)).body == b"ok"
        with pytest.raises(ConnectionBroken):
            await client.send(GET, PATIENCE)
    assert connections == 1


async def test_a_request_that_waits_does_not_delay_another() -> None:
    waiting, answered = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET"):
            waiting.set()
            await answered.wait()
        writer.write(HEAD + b"\r\nok")
        await writer.drain()

    async with serving(talk) as client:
        pull = asyncio.create_task(client.send(GET, PATIENCE))
        await waiting.wait()
        assert (await client.send(ClientRequest("POST", "/v1/ack", []), PATIENCE)).body == b"ok"
        answered.set()
        assert (await pull).body == b"ok"


async def test_a_response_may_have_many_and_long_headers_and_a_gzip_body() -> None:
    many = b"".join(b"X-OMS-P-%d: %b\r\n" % (number, b"v" * 1000) for number in range(300))
    body = gzip.compress(b"body")
    head = b"HTTP/1.1 200 OK\r\nx-oms-p-long: %b\r\n%bcontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    async with serving(answering(head % (b"v" * 100_000, many, len(body)) + body)) as client:
        response = await client.send(GET, PATIENCE)
    assert response.body == b"body"
    assert len(response.header(b"x-oms-p-long")) == 100_000
    assert response.header(b"x-oms-p-299") == "v" * 1000


async def test_a_large_body_is_sent_whole() -> None:
    body = bytes(range(256)) * 20_000
    received = bytearray()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        received.extend(await reader.readexactly(len(body)))
        writer.write(HEAD + b"\r\nok")
        await writer.drain()

    async with serving(talk) as client:
        await client.send(ClientRequest("POST", "/v1/messages", [], body), PATIENCE)
    assert received == body


async def test_leaving_a_stream_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
        await reader.read()
        closed.set()

    async with serving(talk) as client:
        async with client.stream(GET) as (head, chunks):
            assert (head.status, await anext(chunks)) == (200, b"ab")
        await closed.wait()


async def test_it_passes_any_proxy_and_notices_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    received = bytearray()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"\r\n"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with server, Client(f"http://127.0.0.1:{port}") as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.produce(Message("orders"))
    assert received == b"POST /v1/messages HTTP/1.1\r\n"
    async with Client(f"http://127.0.0.1:{port}") as bridge:
        with pytest.raises(BackendUnavailable):
            await bridge.produce(Message("orders"))


def test_the_context_of_the_program_is_used() -> None:
    context = ssl.create_default_context()
    assert transport._tls_context(context) is context
    assert transport._tls_context(verify=False).verify_mode == ssl.CERT_NONE
    assert transport._tls_context(verify=True).verify_mode == ssl.CERT_REQUIRED
