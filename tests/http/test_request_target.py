"""A target in absolute form (RFC 9112, section 3.2.2): its host is the one that counts, on both ports."""

from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, problem, stored
from tests.http.conftest import Start
from tests.http.test_framing import exchange
from tests.launch import Bridge

ALLOWED: Final = (
    "127.0.0.1",
    "127.0.0.1:1",
    "localhost:8080",
    "LOCALHOST",
    "localhost.",
    "localhost.:80",
    "[::1]:8080",
)
STRANGERS: Final = (
    *("evil.example", "evil.example:80", "evil.localhost.example", "localhost..", "localhost:80:80x"),
    *("user@127.0.0.1", "127.0.0.1:x@evil.example", "127.0.0.1@evil.example", "[::1]evil.example", "127.0.0.1:80a"),
)


def request(target: str, host: str, body: bytes = b"", method: str = "POST") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_target_in_absolute_form_is_accepted_on_every_path(bridge: Bridge, subtests: pytest.Subtests) -> None:
    for scheme, target in (
        *(("http", path) for path in ("/v1/capabilities", "/openapi.json", "/docs", "/v1/callbacks")),
        ("https", "/v1/capabilities"),
        ("HTTP", "/v1/capabilities"),
        ("http", "/v1/messages?version=1.0.0&source=a&consumerid=g"),
    ):
        for host in ALLOWED:
            with subtests.test(f"{scheme} {target} {host}"):
                (answer,) = exchange(bridge, request(f"{scheme}://{host}{target}", host, method="GET"))
                assert answer.status in (200, 204)


def test_a_message_is_produced_by_a_target_in_absolute_form(bridge: Bridge) -> None:
    name = fresh()
    target = f"{bridge.url}/v1/destinations/{name.decode()}/messages?key=a"
    (answer,) = exchange(bridge, request(target, urlsplit(bridge.url).netloc, b"hello"))
    assert answer.status == 200
    with Frames(bridge.url) as frames:
        assert stored(frames, name) == [b"hello"]


def test_the_host_of_the_target_takes_the_place_of_the_header(
    bridge: Bridge, server: str, subtests: pytest.Subtests
) -> None:
    """A page that rebinds its name sends it in both. Granian passes on only the header."""
    for host in STRANGERS:
        with subtests.test(host):
            (answer,) = exchange(bridge, request(f"http://{host}/v1/capabilities", host, method="GET"))
            assert answer.status in ((400, 403) if server == "granian" else (403,))
            if answer.body:
                problem(answer)
            target, header = ("evil.example", "127.0.0.1") if server == "hypercorn" else ("127.0.0.1", "evil.example")
            (answer,) = exchange(bridge, request(f"http://{target}/v1/capabilities", header, method="GET"))
            problem(answer, "forbidden", "evil.example")


@pytest.mark.parametrize("server", ["hypercorn"])
def test_a_foreign_header_beside_an_allowed_target_is_ignored(bridge: Bridge) -> None:
    (answer,) = exchange(bridge, request("http://127.0.0.1/v1/capabilities", "evil.example", method="GET"))
    assert answer.status == 200


def test_both_forms_of_an_empty_path_and_other_schemes(bridge: Bridge, server: str, subtests: pytest.Subtests) -> None:
    for target in ("http://127.0.0.1", "http://127.0.0.1/", "http://127.0.0.1?a=b"):
        with subtests.test(target):
            (answer,) = exchange(bridge, request(target, "127.0.0.1", method="GET"))
            problem(answer, "not-found", "unknown path `/`")
    (answer,) = exchange(bridge, request("http:///v1/capabilities", "127.0.0.1", method="GET"))
    assert answer.status == 400
    if server == "hypercorn":  # Granian does not pass the scheme on
        (answer,) = exchange(bridge, request("ftp://127.0.0.1/v1/capabilities", "127.0.0.1", method="GET"))
        problem(answer, "not-found")


PAGES: Final = ("/livez", "/readyz", "/startedz", "/metrics", "/status", "/v1/transactions")


def management(bridge: Bridge) -> Bridge:
    """Return something whose `url` is that of the management port."""

    class Port:
        url = bridge.management

    return Port  # type: ignore[return-value]


def test_every_page_of_the_management_port_checks_host_and_origin(start: Start, subtests: pytest.Subtests) -> None:
    bridge = start(OMS_HTTP__HOSTS="bridge.svc")
    port = management(bridge)
    for path in PAGES:
        for host in (*ALLOWED, "10.1.2.3:9090", "bridge.svc:9090", "bridge.svc."):  # probes and scrapers use addresses
            with subtests.test(f"{path} {host}"):
                assert exchange(port, request(path, host, method="GET"))[0].status == 200
                assert exchange(port, request(f"http://{host}{path}", host, method="GET"))[0].status == 200
        for host in ("evil.example", "evil.example:9090", "127.0.0.1.evil.example"):
            with subtests.test(f"{path} {host}"):
                problem(exchange(port, request(path, host, method="GET"))[0], "forbidden", "host")
                problem(exchange(port, request(f"http://{host}{path}", host, method="GET"))[0], "forbidden", "host")
        for line in ("origin: https://evil.example", "sec-fetch-site: cross-site"):
            with subtests.test(f"{path} {line}"):
                asked = request(path, f"127.0.0.1\r\n{line}", method="GET")
                problem(exchange(port, asked)[0], "forbidden", line.partition(":")[0])
