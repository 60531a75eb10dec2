"""HTTP/1.1 requests whose end two readers could see in different places, and requests that are no HTTP."""

import http.client
import json
import re
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, fresh, problem, stored
from tests.launch import Bridge

SECOND: Final = b"GET /v1/capabilities HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
"""The request that is smuggled in if the bridge and a proxy disagree."""


class Form(NamedTuple):
    """A produce: the head after its first fields, and what follows the head."""

    head: bytes
    rest: bytes
    granian: bool = True
    """Whether Granian refuses it too; see SECURITY.md."""


AMBIGUOUS: Final = {
    "both lengths": Form(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n", granian=False),
    "both, the other way": Form(b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", b"0\r\n\r\n", granian=False),
    "two lengths": Form(b"content-length: 5\r\ncontent-length: 0\r\n", b"hello"),
    "a signed length": Form(b"content-length: +5\r\n", b"hello"),
    "a folded line": Form(b"x-oms-p-a: 1\r\n x-oms-p-b: 2\r\ncontent-length: 0\r\n", b""),
    "a folded coding": Form(b"transfer-encoding:\r\n\tchunked\r\n", b"0\r\n\r\n"),
    "a bare LF": Form(b"x-oms-p-a: 1\ncontent-length: 0\r\n", b"", granian=False),
    "a bare LF at the end": Form(b"content-length: 0\r\n\n", b"", granian=False),
    "a bare CR": Form(b"x-oms-p-a: 1\rcontent-length: 5\r\ncontent-length: 0\r\n", b""),
    "a space before the colon": Form(b"transfer-encoding : chunked\r\n", b"0\r\n\r\n"),
    "an unknown coding": Form(b"transfer-encoding: gzip\r\n", b"0\r\n\r\n"),
    "a coding that is no more": Form(b"transfer-encoding: identity\r\n", b"hello"),
    "chunked twice": Form(b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunked twice in a line": Form(b"transfer-encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    "another coding first": Form(b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"),
    "a chunk of 0x5 bytes": Form(b"transfer-encoding: chunked\r\n", b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk without an end": Form(b"transfer-encoding: chunked\r\n", b"5\r\nhelloXX0\r\n\r\n"),
    "a bare LF in trailers": Form(
        b"transfer-encoding: chunked\r\n", b"5\r\nhello\r\n0\r\na: b\nc: d\r\n\r\n", granian=False
    ),
}
REFUSED_BY_BRIDGE: Final = {
    "chunked twice",
    "chunked twice in a line",
    "another coding first",
    "a chunk of 0x5 bytes",
    "a chunk without an end",
}
"""The only ones that reach the bridge's code on Granian. Hyper, below it, refuses the others with an empty 400."""

GONE: Final = (
    Form(b"content-length: 50\r\n", b"half"),
    Form(b"transfer-encoding: chunked\r\n", b"5\r\nhe"),
    Form(b"transfer-encoding: chunked\r\n", b"10000000000000005\r\nhello"),
    Form(b"transfer-encoding: chunked\r\n", b"5\r\nhello\r\n"),
)
NO_ONE_HOST: Final = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost:\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: evil.example\r\nhost: localhost\r\n\r\n",
)
NOT_HTTP: Final = (
    *NO_ONE_HOST,
    b"GET /v1/cap\0abilities HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
)


def exchange(bridge: Bridge, data: bytes, *, half_close: bool = False) -> list[Answer]:
    """Send bytes; return the responses until the bridge closes the connection."""
    parts = urlsplit(bridge.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return [_answer(each) for each in re.split(rb"(?=HTTP/1\.1 \d)", received) if each]


def _answer(response: bytes) -> Answer:
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, body, "complete")


def produce(destination: bytes, form: Form) -> bytes:
    head = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-oms-version: 1.0.0\r\n"
    return head + b"x-oms-h-destination: %b\r\n" % destination + form.head + b"\r\n" + form.rest


def test_an_ambiguous_request_is_refused_and_closes_its_connection(
    bridge: Bridge, server: str, subtests: pytest.Subtests
) -> None:
    target = fresh()
    for name, form in AMBIGUOUS.items():
        if server == "granian" and not form.granian:
            continue
        with subtests.test(name):
            answer, *more = exchange(bridge, produce(target, form) + SECOND)
            assert (answer.status, more) == (400, [])
            if server == "hypercorn" or name in REFUSED_BY_BRIDGE:
                problem(answer)
    with Frames(bridge.url) as frames:
        assert stored(frames, target) == []


@pytest.mark.parametrize("server", ["granian"])
def test_granian_closes_the_connection_after_both_lengths(bridge: Bridge) -> None:
    """It ignores content-length and hides it from the bridge. RFC 9112, section 6.1, allows that if it closes."""
    for name in ("both lengths", "both, the other way"):
        answer, *more = exchange(bridge, produce(fresh(), AMBIGUOUS[name]) + SECOND)
        assert (answer.status, answer.headers[b"connection"], more) == (200, b"close", [])


def test_what_is_no_http_is_refused(bridge: Bridge, server: str, subtests: pytest.Subtests) -> None:
    for data in NOT_HTTP:
        with subtests.test(repr(data)):
            (answer,) = exchange(bridge, data)
            assert answer.status == 400
            if server == "hypercorn" or data in NO_ONE_HOST:
                problem(answer, "request-malformed")


def test_an_empty_line_before_a_request_is_ignored(bridge: Bridge, subtests: pytest.Subtests) -> None:
    """RFC 9112, section 2.2. Old clients send one after a body."""
    sent = produce(fresh(), Form(b"content-length: 2\r\n", b"hi"))
    last = SECOND.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    for before, between in ((b"\r\n", b""), (b"\r\n" * 5, b""), (b"", b"\r\n"), (b"\r\n", b"\r\n" * 3)):
        with subtests.test(f"{before!r} {between!r}"):
            assert [answer.status for answer in exchange(bridge, before + sent + between + last)] == [200, 200]


def test_an_empty_line_may_come_in_pieces(bridge: Bridge) -> None:
    parts = urlsplit(bridge.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\n\r\nG":
            connection.sendall(bytes([byte]))
            time.sleep(0.02)
        connection.sendall(SECOND[1:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_empty_line_is_no_header_and_no_trailer(bridge: Bridge, server: str) -> None:
    answer, *more = exchange(bridge, b"\r\n\nGET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert (answer.status, more) == (403 if server == "granian" else 400, [])
    chunked = produce(fresh(), Form(b"transfer-encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n"))
    last = SECOND.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert [answer.status for answer in exchange(bridge, chunked + b"\r\n" + last)] == [200, 200]


def test_a_request_of_http_1_0_needs_no_host(bridge: Bridge) -> None:
    (answer,) = exchange(bridge, b"GET /v1/capabilities HTTP/1.0\r\n\r\n")
    assert answer.status == 200


def test_a_half_sent_body_stores_nothing(bridge: Bridge, server: str) -> None:
    target = fresh()
    answers = exchange(bridge, produce(target, Form(b"content-length: 50\r\n", b"half")), half_close=True)
    problem(answers[0], "body-invalid" if server == "granian" else "request-malformed")
    with Frames(bridge.url) as frames:
        assert stored(frames, target) == []


def test_clients_that_go_away_in_their_bodies_are_no_faults_of_the_bridge(tmp_path: Path, server: str) -> None:
    with Bridge(tmp_path, server=server) as own:
        parts = urlsplit(own.url)
        for form in GONE:
            with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
                connection.sendall(produce(fresh(), form))
                exchange(own, SECOND, half_close=True)
        exchange(own, SECOND, half_close=True)
    assert "exception" not in own.log


def test_too_many_header_bytes_are_refused_over_http_1(bridge: Bridge, server: str) -> None:
    for size in (33_000, 200_000):
        form = Form(b"connection: close\r\nx-oms-p-a: %b\r\ncontent-length: 0\r\n" % (b"x" * size), b"")
        answer, *_ = exchange(bridge, produce(fresh(), form))
        assert answer.status == 431
        if server == "hypercorn" or size < 200_000:
            problem(answer, "headers-too-large")


def test_a_body_of_any_size_leaves_its_connection_open(bridge: Bridge, subtests: pytest.Subtests) -> None:
    """Also one whose last bytes the bridge has before the server says that the body has ended."""
    target = fresh().decode()
    headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": target}
    for size in (0, 1, 4096, 4097, 65536, 70_000, 100_000, 131_072, 200_000, 900_000):
        with subtests.test(f"{size} bytes"):
            client = http.client.HTTPConnection(urlsplit(bridge.url).netloc, timeout=30)
            for _ in range(20):
                client.request("POST", "/v1/messages", bytes(size), headers)
                answer = client.getresponse()
                answer.read()
                assert (answer.status, answer.getheader("connection")) == (200, None)
            client.close()


def test_connect_has_a_problem_document(bridge: Bridge, frames: Frames) -> None:
    answer, *_ = exchange(bridge, b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert answer.status in (403, 404)
    assert json.loads(answer.body)["status"] == answer.status
    assert frames.ask("GET", "/v1/capabilities").status == 200


def test_only_the_encoding_of_unreserved_characters_is_removed(frames: Frames, subtests: pytest.Subtests) -> None:
    """RFC 3986, section 6.2.2.2: `%69` and `i` are the same. `%2f` is not `/`, which a proxy may read differently."""
    for method, path, status in (
        ("GET", "/v1/capabil%69ties", 200),
        ("GET", "/%76%31/capabilities", 200),
        ("GET", "/v1%2fcapabilities", 404),
        ("GET", "/v1/capabil%2569ties", 404),
        ("GET", "/v1/capabil%6", 404),
        ("GET", "/v1/messages%3fversion=1.0.0", 404),
        ("POST", "/v1/destinations/%6f%2E%2e/%6Dessages", 200),
        ("POST", "/v1/destinations/%2e%2E/messages", 400),
        ("POST", "/v1/destinations/a%2fb/messages", 400),
        ("get", "/v1/capabilities", 405),
    ):
        with subtests.test(f"{method} {path}"):
            answer = frames.ask(method, path, [VERSION])
            assert answer.status == status
            if status >= 400:
                problem(answer)
