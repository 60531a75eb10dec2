import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from bridge.errors import CannotStart
from bridge.mirror.watch.port import CLIENTS, Answer, serving
from bridge.settings import Address

LOOPBACK = Address("127.0.0.1", 0)


def defect() -> Answer:
    raise ZeroDivisionError


@pytest.fixture
def at() -> Iterator[str]:
    with serving(LOOPBACK, {"/page": lambda: Answer(b"text\n"), "/defect": defect}) as address:
        yield f"http://{address}"


def test_a_page(at: str) -> None:
    answer = httpx.get(f"{at}/page?query=is&not=looked-at")
    assert (answer.status_code, answer.text) == (200, "text\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["server"] == "oms-bridge"
    head = httpx.head(f"{at}/page")
    assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", "5")


def test_there_is_nothing_else(at: str) -> None:
    assert httpx.get(f"{at}/").status_code == 404
    assert httpx.get(f"{at}//page/../../etc/passwd").status_code == 404
    assert httpx.post(f"{at}/page", content=b"x").status_code == 501


def test_a_defect_of_a_page_is_logged_and_the_port_goes_on(at: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{at}/defect")
    assert httpx.get(f"{at}/page").status_code == 200
    assert [record.getMessage() for record in caplog.records] == ["a defect of the mirror's port"]


def test_garbage_does_no_harm(at: str, caplog: pytest.LogCaptureFixture) -> None:
    host, port = at.removeprefix("http://").split(":")
    for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET " + b"a" * 100_000, b"GET http://[ HTTP/1.1\r\n\r\n"):
        # a connection that is closed before all was read is reset
        with socket.create_connection((host, int(port))) as client, suppress(OSError):
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert httpx.get(f"{at}/page").status_code == 200
    assert caplog.records == []


def test_too_many_clients_are_closed_and_room_comes_back(at: str) -> None:
    host, port = at.removeprefix("http://").split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(CLIENTS)]
    with socket.create_connection((host, int(port))) as one_more:
        assert one_more.recv(1) == b""
    for client in clients:
        client.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        while client.recv(4096):
            pass
        client.close()
    while True:  # its thread has to end yet
        try:
            assert httpx.get(f"{at}/page").status_code == 200
        except httpx.TransportError:
            continue
        break


def test_it_ends_with_its_block() -> None:
    with serving(LOOPBACK, {}) as address:
        assert "oms-mirror-port" in {thread.name for thread in threading.enumerate()}
    assert "oms-mirror-port" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_an_address_that_is_taken() -> None:
    with (
        serving(LOOPBACK, {}) as taken,
        pytest.raises(CannotStart, match=rf"^the metrics cannot be served: cannot listen on {taken}: .*in use"),
        serving(taken, {}),
    ):
        pass


def test_ipv6() -> None:
    with serving(Address("::1", 0), {"/page": lambda: Answer(b"six")}) as address:
        assert httpx.get(f"http://{address}/page").text == "six"
