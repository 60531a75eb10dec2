"""What reaches the bridge and its clients behind nginx and HAProxy with their default settings."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from bridge.client import Client
from bridge.message import Message
from tests.trouble import PATIENCE

FRAMINGS: Final = ("application/x-ndjson", "text/event-stream", "multipart/mixed")
VERSION: Final = {"x-oms-version": "1.0.0"}
PRODUCE_STREAM: Final = "POST /v1/stream HTTP/1.1\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked"
LINE: Final = b'{"header":{"destination":"proxied"}}\n'
NAMES: Final = {"under_score": "1", "dot.ted": "2", "OrderId": "3", "Stadt": "Zürich", "a b": "4"}


@pytest.fixture
def destination() -> str:
    """Return a destination that no other test uses."""
    return f"proxied-{uuid4().hex}"


class Stream:
    """One response without end, read from its socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.text = b""

    def until(self, part: bytes, count: int = 1) -> None:
        """Read until a part has come so many times. Fails if nothing comes for `PATIENCE`."""
        while self.text.count(part) < count:
            piece = self._connection.recv(65536)
            assert piece, f"the stream was cut: {self.text[-500:]!r}"
            self.text += piece

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)


@contextmanager
def opened(url: str, request: str) -> Iterator[Stream]:
    """Send the head of a request."""
    host, port = urlsplit(url).netloc.split(":")
    with closing(socket.create_connection((host, int(port)), PATIENCE)) as connection:
        connection.sendall(f"{request}\r\nhost: {host}:{port}\r\nx-oms-version: 1.0.0\r\n\r\n".encode())
        stream = Stream(connection)
        stream.until(b"\r\n\r\n")
        assert stream.text.startswith(b"HTTP/1.1 200"), stream.text
        yield stream


def push(destination: str, accept: str) -> str:
    path = f"/v1/push?source={destination}&consumerid=g{len(accept)}&ack=true"
    return f"GET {path} HTTP/1.1\r\naccept: {accept}"


def produce(url: str, destination: str, body: bytes) -> None:
    answer = httpx.post(f"{url}/v1/destinations/{destination}/messages", content=body, trust_env=False)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("accept", FRAMINGS)
def test_each_message_of_a_stream_arrives_at_once(accept: str, url: str, destination: str) -> None:
    """Otherwise, nginx passes a stream on in pieces of 4 KiB."""
    with opened(url, push(destination, accept)) as stream:
        for number in range(3):
            produce(url, destination, b"%d" % number)
            stream.until([b"MA==", b"MQ==", b"Mg=="][number] if accept != FRAMINGS[2] else b"\r\n\r\n%d\r\n" % number)


def test_the_form_of_a_message_that_each_proxy_passes_on(url: str, destination: str) -> None:
    """In a header, default nginx drops names with an underscore, a dot or a percent sign, and extended values."""
    item = {"header": {"destination": destination}, "extensionHeader": {"messageKey": "schlüssel"}, "properties": NAMES}
    with httpx.Client(base_url=url, headers=VERSION, trust_env=False, timeout=PATIENCE) as client:
        assert client.post("/v1/messages", json=[item]).json()[0]["status"] == 200
        by_url = client.post(f"/v1/destinations/{destination}/messages", params={"key": "schlüssel", "id": "ü"})
        assert by_url.status_code == 200, by_url.text
        asked = {"version": "1.0.0", "source": destination, "consumerid": "g"}
        first, second = (client.get("/v1/messages", params=asked) for _ in range(2))
    names = {"x-oms-p-under_score": "1", "x-oms-p-dot.ted": "2", "x-oms-p-%4frder%49d": "3", "x-oms-p-a%20b": "4"}
    extended = {"x-oms-p-%53tadt*": "UTF-8''Z%C3%BCrich", "x-oms-h-messagekey*": "UTF-8''schl%C3%BCssel"}
    assert (names | extended).items() <= dict(first.headers).items()
    assert second.headers["x-oms-h-messagekey*"] == "UTF-8''schl%C3%BCssel"
    assert second.headers["x-oms-h-messageid*"] == "UTF-8''%C3%BC"


async def test_the_python_client_settles_many_messages(url: str, destination: str) -> None:
    """Their receipts as a header are larger than what nginx takes."""
    async with Client(url) as client:
        await client.produce_batch([Message(destination, b"%d" % number) for number in range(600)])
        receipts = []
        async with client.push(destination, "g", auto_ack=False, credit=1000, max_messages=600) as messages:
            async for received in messages:
                receipts.append(received.receipt or "")
                if len(receipts) == 600:
                    await client.extend(*receipts, lease_ms=60_000)
                    await client.ack(*receipts)
        assert await client.pull(destination, "g") is None


@pytest.mark.extended
def test_silent_streams_and_long_pulls_are_not_cut(proxy: str, url: str, destination: str) -> None:
    """Default nginx ends a response after 60 s of silence, Debian's HAProxy after 50 s."""
    pull = f"{url}/v1/messages?source={destination}-2&consumerid=g&waitmills=60000"
    with ExitStack() as stack:
        lines, events, parts = (stack.enter_context(opened(url, push(destination, accept))) for accept in FRAMINGS)
        # nginx waits for the end of a request before it passes it on
        results = None if proxy == "nginx" else stack.enter_context(opened(url, PRODUCE_STREAM))
        if proxy != "haproxy":  # its 50 s are shorter than the pull
            answer = httpx.get(pull, headers=VERSION, trust_env=False, timeout=2 * PATIENCE)
            assert answer.status_code == 204, answer.text
        events.until(b":\n\n", 5)
        produce(url, destination, b"late")
        for stream in (lines, events):
            stream.until(b"bGF0ZQ==")
        parts.until(b"\r\n\r\nlate\r\n")
        assert parts.text.count(b"content-length: 0\r\n") >= 4
        if results is not None:
            results.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LINE), LINE))
            results.until(b'{"end":"complete"}')
