"""Clients of HTTP/1.1 that close their sending side and wait for the answers."""

import re
import socket
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, stored
from tests.http.conftest import Start
from tests.launch import Bridge

BODIES: Final = [b"m%d" % number for number in range(5)]


@pytest.fixture(params=["memory", "journal"])
def bridge(request: pytest.FixtureRequest, start: Start, tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    """Return a bridge with and without a journal: with one, settling waits for the disk."""
    if request.param == "memory":
        return start()
    journal = tmp_path_factory.getbasetemp() / f"half-close-{request.getfixturevalue('server')}"
    return start(f"memory://?journal={journal}")


def ask_and_half_close(bridge: Bridge, data: bytes) -> list[int]:
    """Send bytes and the end of the input in one packet; return the statuses of the answers."""
    parts = urlsplit(bridge.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d\d\d) ", received)]


def produce(name: bytes, body: bytes) -> bytes:
    head = b"POST /v1/destinations/%b/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    return head % (name, len(body)) + body


def pull(name: bytes, more: bytes = b"", path: bytes = b"messages") -> bytes:
    query = b"version=1.0.0&source=%b&consumerid=g%b" % (name, more)
    return b"GET /v1/%b?%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (path, query)


def fill(bridge: Bridge, name: bytes) -> None:
    """Store messages and open the group."""
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=30) as http:
        for body in BODIES:
            http.post(f"/v1/destinations/{name.decode()}/messages", content=body).raise_for_status()
        asked = f"version=1.0.0&source={name.decode()}&consumerid=g&ack=true"
        receipt = http.get(f"/v1/messages?{asked}").headers["x-oms-receipt"]
        http.post("/v1/nack", headers={"x-oms-version": "1.0.0", "x-oms-receipt": receipt}).raise_for_status()


def left(bridge: Bridge, name: bytes) -> int:
    """Take what the group has left; return how much it was."""
    found = 0
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=30) as http:
        asked = f"/v1/messages?version=1.0.0&source={name.decode()}&consumerid=g"
        while (answer := http.get(asked)).status_code == 200:
            found += 1
    assert answer.status_code == 204
    return found


@pytest.mark.parametrize("server", ["hypercorn"])
def test_each_pull_without_ack_is_answered(bridge: Bridge) -> None:
    name = fresh()
    open_group(bridge, name)
    fill(bridge, name)
    assert [ask_and_half_close(bridge, pull(name)) for _ in BODIES] == [[200]] * len(BODIES)
    assert ask_and_half_close(bridge, pull(name)) == [204]


def open_group(bridge: Bridge, name: bytes) -> None:
    """Pull once as a client that stays: while a group is opened, a half-close is taken for a client that has left."""
    path = pull(name).split(b" ")[1].decode()
    assert httpx.get(bridge.url + path, headers={"x-oms-version": "1.0.0"}).status_code == httpx.codes.NO_CONTENT


@pytest.mark.parametrize("server", ["hypercorn"])
def test_pipelined_requests_are_all_answered(bridge: Bridge) -> None:
    name = fresh()
    open_group(bridge, name)
    assert ask_and_half_close(bridge, b"".join(produce(name, body) for body in BODIES)) == [200] * 5
    assert ask_and_half_close(bridge, pull(name) * 6) == [200] * 5 + [204]
    with Frames(bridge.url) as frames:
        assert sorted(stored(frames, name)) == BODIES


@pytest.mark.parametrize("server", ["hypercorn"])
def test_a_pull_that_would_wait_is_answered_at_once(bridge: Bridge) -> None:
    """The client may also have gone: a message that comes later must not be settled for it."""
    name = fresh()
    open_group(bridge, name)
    fill(bridge, name)
    waiting = pull(name, b"&waitmills=60000")
    assert ask_and_half_close(bridge, waiting * 7 + produce(name, b"last")) == [200] * 5 + [204, 204, 200]
    assert left(bridge, name) == 1


@pytest.mark.parametrize("server", ["hypercorn"])
def test_a_large_body_and_a_refusal_are_answered(bridge: Bridge) -> None:
    name = fresh()
    open_group(bridge, name)
    bad = b"GET /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert ask_and_half_close(bridge, produce(name, bytes(1 << 20)) + bad + pull(name)) == [200, 404, 200]


@pytest.mark.parametrize("server", ["granian"])
def test_granian_settles_nothing_for_a_client_that_it_cannot_answer(bridge: Bridge) -> None:
    """Hyper drops such a connection, and has no option for it that Granian passes on."""
    name = fresh()
    fill(bridge, name)
    for more, path in ((b"", b"messages"), (b"&waitmills=1000", b"messages"), (b"&maxmessages=5", b"push")):
        for _ in range(5):
            assert 200 not in ask_and_half_close(bridge, pull(name, more, path))
    assert 200 not in ask_and_half_close(bridge, pull(name) * 5)
    assert left(bridge, name) == 5


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_a_bridge_on_every_address_answers_and_settles_nothing_more(tmp_path: Path, server: str, host: str) -> None:
    """Granian names the address that it listens on, which is not the connection's."""
    settings = {"OMS_LISTEN": f"{host}:0", "OMS_HTTP__HOSTS": "*"}
    with Bridge(tmp_path, server=server, settings=settings) as bridge:
        bridge.url = f"http://127.0.0.1:{urlsplit(bridge.url).port}"
        name = fresh()
        fill(bridge, name)
        if server == "granian":
            for _ in range(5):
                assert 200 not in ask_and_half_close(bridge, pull(name))
        assert left(bridge, name) == 5


@pytest.mark.parametrize("server", ["hypercorn"])
def test_a_produce_stream_gets_its_results(bridge: Bridge) -> None:
    name = fresh()
    line = b'{"header": {"destination": "%b"}, "data": "YQ=="}\n' % name
    head = b"POST /v1/stream HTTP/1.1\r\nhost: localhost\r\nx-oms-version: 1.0.0\r\n"
    data = head + b"content-type: application/x-ndjson\r\ncontent-length: %d\r\n\r\n" % (20 * len(line))
    assert ask_and_half_close(bridge, data + 20 * line) == [200]
    with Frames(bridge.url) as frames:
        assert stored(frames, name) == [b"a"] * 20
