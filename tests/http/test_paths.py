"""Paths, methods, hosts and origins."""

import re
from itertools import product
from pathlib import Path

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, post, producing, pulling, refusal, store, stored
from tests.http.conftest import Start
from tests.launch import Bridge

UNKNOWN = (
    *("/", "/v1", "/v1/", "/v1/messages/", "/v1//messages", "/v2/messages"),
    *("/../v1/messages", "/%00", "/%e9"),
)
METHODS = ("PUT", "DELETE", "PATCH", "HEAD", "TRACE", "BREW", "GET", "POST")
ALLOWED = {
    "/v1/messages": {"GET", "POST"},
    "/v1/ack": {"POST"},
    "/v1/nack": {"POST"},
    "/v1/extend": {"POST"},
    "/v1/capabilities": {"GET"},
}
STRANGERS = (b"evil.example", b"evil.example:80", b"localhost.evil.example", b"127.0.0.1.evil.example")
NO_HOSTS = (b"", b"a/b", b"[")
QUERIES = {
    "a=b": "header-invalid",
    "version=2": "version-unsupported",
    "version=1.0.0&source=%zz&consumerid=g": "destination-invalid",
    "version=1.0.0&source=%ff&consumerid=g": "header-invalid",
    "source=%zz": "header-missing",
    "%": "header-invalid",
    "version=1.0.0&version=1.0.0": "header-repeated",
}


def test_an_unknown_path_says_which_there_are(frames: Frames, subtests: pytest.Subtests) -> None:
    for method, path in product(("GET", "POST"), UNKNOWN):
        with subtests.test(f"{method} {path}"):
            refusal(frames.ask(method, path, [VERSION]), 404, "not-found", "/v1/messages")


def test_a_path_of_the_management_port_says_where_it_is(frames: Frames) -> None:
    refusal(frames.ask("GET", "/metrics", []), 404, "not-found", "`/metrics`", "`management`")


def test_an_unknown_method_says_which_there_are(frames: Frames, subtests: pytest.Subtests) -> None:
    for path, allowed in ALLOWED.items():
        for method in (method for method in METHODS if method not in allowed):
            with subtests.test(f"{method} {path}"):
                answer = frames.ask(method, path, [VERSION])
                assert answer.status == 405
                assert answer.headers[b"allow"].decode() == ", ".join(sorted(allowed, reverse=True))
                if method == "HEAD":
                    assert (answer.body, answer.headers[b"x-oms-error"]) == (b"", b"method-not-allowed")
                else:
                    refusal(answer, 405, "method-not-allowed", path, method)


def test_a_host_that_is_not_served_is_refused(bridge: Bridge, server: str, subtests: pytest.Subtests) -> None:
    target = fresh()
    for host in (*STRANGERS, *NO_HOSTS):
        with subtests.test(repr(host)), Frames(bridge.url) as frames:
            frames.authority = host
            answer = post(frames, producing(target), b"rebound")
            if server == "granian" and host in NO_HOSTS:  # it refuses the stream itself
                assert (answer.status, answer.ended) == (None, "reset")
            else:
                refusal(answer, 403, "forbidden", "host", "http.hosts")
    with Frames(bridge.url) as frames:
        assert stored(frames, target) == []


def test_a_forged_host_cannot_break_an_error(bridge: Bridge, server: str, subtests: pytest.Subtests) -> None:
    for host, path in product((b"evil.example/#", b"[", b"a b", b"x/v1/messages?"), ("/v1/messages", "/nowhere")):
        with subtests.test(f"{host!r} {path}"), Frames(bridge.url) as frames:
            frames.authority = host
            answer = frames.ask("DELETE", path, [VERSION])
            if server == "granian":  # it refuses the stream itself
                assert (answer.status, answer.ended) == (None, "reset")
            else:
                refusal(answer, 403, "forbidden", "host")


def test_loopback_and_addresses_are_always_served(bridge: Bridge, subtests: pytest.Subtests) -> None:
    for host in ("localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80", "10.1.2.3"):
        with subtests.test(host), Frames(bridge.url) as frames:
            frames.authority = host.encode()
            store(frames, fresh())


def test_a_host_of_the_settings_is_served(start: Start) -> None:
    with Frames(start(OMS_HTTP__HOSTS="bridge.shop.svc").url) as frames:
        frames.authority = b"Bridge.Shop.svc:8080"
        store(frames, fresh())
        frames.authority = b"other.shop.svc"
        refusal(post(frames, producing(fresh())), 403, "forbidden", "other.shop.svc")


def test_a_page_of_another_origin_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    for origin in (b"https://evil.example", b"null", b"", b"http://127.0.0.1:1", b"\xff"):
        with subtests.test(repr(origin)):
            answer = post(frames, producing(target, (b"origin", origin)), b"forged")
            refusal(answer, 403, "forbidden", "origin", "http.origins")
            assert b"access-control-allow-origin" not in answer.headers
            asked = [(b"origin", origin), (b"access-control-request-method", b"POST")]
            refusal(frames.ask("OPTIONS", "/v1/messages", asked), 403, "forbidden", "origin")
    assert stored(frames, target) == []


def test_a_page_of_a_named_origin_is_served_and_may_read_the_answer(start: Start) -> None:
    shop = (b"origin", b"https://shop.example")
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example").url) as frames:
        preflight = frames.ask("OPTIONS", "/v1/messages", [shop, (b"access-control-request-method", b"POST")])
        assert preflight.status == 204
        assert preflight.headers[b"access-control-allow-origin"] == shop[1]
        assert b"POST" in preflight.headers[b"access-control-allow-methods"]
        for answer in (
            post(frames, producing(fresh(), shop)),
            frames.ask("GET", "/v1/messages", pulling(fresh(), shop)),
            post(frames, producing(b"..", shop)),
            post(frames, producing(fresh(), shop, (b"x-oms-unknown", b"1"))),
            frames.ask("GET", "/v1/nowhere", [shop]),
            frames.ask("DELETE", "/v1/messages", [shop]),
            post(frames, producing(fresh(), shop, (b"x-oms-p-large", b"x" * 40_000))),  # refused by the server itself
        ):
            assert answer.headers[b"access-control-allow-origin"] == shop[1]
            assert answer.headers[b"vary"] == b"origin"


def taking(source: bytes) -> dict[str, str]:
    """Return the requests that take a message by query parameters alone, by what they are."""
    query = f"version=1.0.0&source={source.decode()}&consumerid=inspector"
    return {"pull": f"/v1/messages?{query}", "push": f"/v1/push?{query}&maxmessages=1&waitmills=0"}


def test_a_page_without_an_origin_takes_nothing(start: Start, subtests: pytest.Subtests) -> None:
    """An image or a frame sends no `Origin`; browsers name the site of their page, but only to loopback and https."""
    target = fresh()
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example", OMS_HTTP__HOSTS="bridge.lan").url) as frames:
        store(frames, target)
        for (what, path), site in product(taking(target).items(), (b"cross-site", b"same-site")):
            with subtests.test(f"{what}, {site.decode()}"):
                asked = [(b"sec-fetch-site", site), (b"sec-fetch-mode", b"no-cors")]
                refusal(frames.ask("GET", path, asked), 403, "forbidden", "sec-fetch-site", "http.origins")
        loopback = frames.authority
        for (what, path), host in product(taking(target).items(), (b"10.1.2.3:8080", b"bridge.lan")):
            with subtests.test(f"{what}, {host.decode()}"):
                frames.authority = host
                refusal(frames.ask("GET", path), 403, "forbidden", host.decode(), "x-oms- header")
        frames.authority = loopback
        assert stored(frames, target) == [b"good"]


def test_others_take_by_query_parameters_alone(start: Start, subtests: pytest.Subtests) -> None:
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example", OMS_HTTP__HOSTS="bridge.lan").url) as frames:
        loopback, target = frames.authority, fresh()
        clients: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = {
            "curl on loopback": (loopback, []),
            "the address bar": (loopback, [(b"sec-fetch-site", b"none")]),
            "an allowed page": (loopback, [(b"sec-fetch-site", b"cross-site"), (b"origin", b"https://shop.example")]),
            "an allowed page, by http": (b"bridge.lan", [(b"origin", b"https://shop.example")]),
            "a client that sets a header": (b"bridge.lan", [VERSION]),
        }
        for (who, (host, asked)), (what, path) in product(clients.items(), taking(target).items()):
            with subtests.test(f"{what} by {who}"):
                frames.authority = loopback
                store(frames, target)
                frames.authority = host
                answer = frames.ask("GET", path, asked)
                assert (answer.status, b"good" in answer.body) == (200, True)


def test_a_query_that_means_nothing_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    for query, code in QUERIES.items():
        with subtests.test(query):
            refusal(frames.ask("GET", f"/v1/messages?{query}"), 400, code)


def test_raw_bytes_in_a_query_are_refused_and_the_next_connection_works(bridge: Bridge, server: str) -> None:
    with Frames(bridge.url) as frames:
        answer = frames.ask("GET", "/v1/messages?\xff=1")
        if server == "granian":  # hyper ends the connection of a client that sends such a path
            assert (answer.status, answer.ended) == (None, "closed")
        else:
            refusal(answer, 400, "header-invalid", "query")
    with Frames(bridge.url) as frames:
        store(frames, fresh())


def test_a_produce_takes_no_query_it_would_not_obey(frames: Frames) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages?require=qos", producing(target), b"?")
    refusal(answer, 400, "header-invalid", "query")
    assert stored(frames, target) == []


def test_http1_gets_the_same_answers(bridge: Bridge) -> None:
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=20) as http:
        answer = http.post("/v1/messages", headers={"x-oms-version": "1.0.0", "x-oms-h-destination": ".."})
        assert (answer.http_version, answer.status_code) == ("HTTP/1.1", 400)
        assert answer.json()["code"] == answer.headers["x-oms-error"] == "destination-invalid"
        assert http.get("/nowhere").json()["code"] == "not-found"
        assert http.head("/v1/messages").status_code == 405


def test_the_host_of_an_ipv6_client_has_brackets(server: str, tmp_path: Path) -> None:
    with Bridge(tmp_path, server=server, settings={"OMS_LISTEN": "[::1]:0", "OMS_MANAGEMENT": "[::1]:0"}) as own:
        with httpx.Client(base_url=own.url, trust_env=False, timeout=20) as http:
            http.post("/v1/destinations/orders/messages").raise_for_status()
            pulled = http.get("/v1/messages?version=1.0.0&source=orders&consumerid=g")
            assert re.fullmatch(r"\[::1\]:\d+", pulled.headers["x-oms-h-bornhost"])
        assert httpx.get(f"{own.management}/status", trust_env=False).status_code == 200
